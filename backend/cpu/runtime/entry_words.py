"""What the native code of entry_text.py reads. A call's plan, guards, results and output are lists of 64-bit words;
objects of CPython and NumPy have their fields in fixed places. The names are those in the braces of the texts.
"""

from __future__ import annotations

# Words of a plan.
(
    BUSY, CONTEXT, RUN, POOL_AT, GUARDS, RESULTS, RESULT_COUNT, FIRST_RESULT, OUTPUT, HELD, HELD_COUNT, ERROR_AT,
    ON_ERROR, SEED, SEED_SLOT, BORROWED, ARENA_BYTES, STATE, ALLOCATE, RELEASE, HANDLER, NUMPY, OTHERWISE, TRUE,
    NDARRAY, TUPLE, LIST, DICT, FLOAT, INT, PLAN_WORDS,
) = range(31)  # fmt: skip

# Guards. An array: its kind, its slot in ctx, its dtype's word, its rank, the kind of number that will do instead and
# where that goes, its sizes. A tuple or list: its kind, its length, its items; a dict has a key before each. What is
# the same object or equals it: its kind and the object. Anything: its kind and a word that is not looked at.
IS_ARRAY, IS_TUPLE, IS_LIST, IS_DICT, IS_SAME, IS_EQUAL, IS_ANYTHING = range(7)
ARRAY_WORDS = 6
NO_NUMBER, FLOAT_NUMBER, INT_NUMBER, BOOL_NUMBER = range(4)

# The output. A result: its kind and its number; the containers as in guards; any other object: its kind and itself.
PUT_RESULT, PUT_TUPLE, PUT_LIST, PUT_DICT, PUT_OBJECT = range(5)

TYPE_AT = 8  # in an object
# In an array object, behind the address of its data.
RANK_AT, SIZES_AT, DESCRIPTOR_AT, FLAGS_AT, HANDLER_AT = 8, 16, 40, 48, 72
PLAIN_FLAGS = 0x101  # contiguous and aligned
NEW_FLAGS = PLAIN_FLAGS | 0x400  # writable, too
OWNING = 0x4
DTYPE_AT = 24  # in a dtype: its kind, its letter, its byte order, something else, its number
DTYPE_MASK = ~(0xFF << 24)
NEW_FROM_DESCRIPTOR = 94  # its place in the table of NumPy's functions
