"""Native code: whether an argument of a call is what its guards expect. A part of entry_text.py."""

from __future__ import annotations

TEXT = """
; Whether an object is what the guards expect; the words behind them if so, null if not.
define internal ptr @matches(ptr %plan, ptr %ctx, ptr %words, ptr %object) #0 {{
entry:
  %overflow = alloca i32, align 4
  %dict.place = alloca i64, align 8
  %key.at = alloca ptr, align 8
  %value.at = alloca ptr, align 8
  %kind = load i64, ptr %words
  %word1.at = getelementptr i64, ptr %words, i64 1
  %word1 = load i64, ptr %word1.at
  %expected = inttoptr i64 %word1 to ptr
  %type.at = getelementptr i8, ptr %object, i64 {TYPE_AT}
  %type = load ptr, ptr %type.at
  switch i64 %kind, label %no [
    i64 {IS_ARRAY}, label %array
    i64 {IS_TUPLE}, label %tuple
    i64 {IS_LIST}, label %list
    i64 {IS_DICT}, label %dict
    i64 {IS_SAME}, label %same
    i64 {IS_EQUAL}, label %equal
    i64 {IS_ANYTHING}, label %anything
  ]
no:
  ret ptr null

array:
  %slot = getelementptr i64, ptr %ctx, i64 %word1
  %rank.at = getelementptr i64, ptr %words, i64 3
  %rank = load i64, ptr %rank.at
  %sizes = getelementptr i64, ptr %words, i64 {ARRAY_WORDS}
  %behind.array = getelementptr i64, ptr %sizes, i64 %rank
  %ndarray.at = getelementptr i64, ptr %plan, i64 {NDARRAY}
  %ndarray = load ptr, ptr %ndarray.at
  %is.array = icmp eq ptr %type, %ndarray
  br i1 %is.array, label %array.fields, label %number
array.fields:
  %fields = getelementptr i8, ptr %object, i64 {DATA}
  %dtype.at = getelementptr i64, ptr %words, i64 2
  %dtype = load i64, ptr %dtype.at
  %descriptor.at = getelementptr i8, ptr %fields, i64 {DESCRIPTOR_AT}
  %descriptor = load ptr, ptr %descriptor.at
  %own.dtype.at = getelementptr i8, ptr %descriptor, i64 {DTYPE_AT}
  %own.dtype.all = load i64, ptr %own.dtype.at
  %own.dtype = and i64 %own.dtype.all, {DTYPE_MASK}
  %same.dtype = icmp eq i64 %dtype, %own.dtype
  %own.rank.at = getelementptr i8, ptr %fields, i64 {RANK_AT}
  %own.rank.32 = load i32, ptr %own.rank.at
  %own.rank = sext i32 %own.rank.32 to i64
  %same.rank = icmp eq i64 %rank, %own.rank
  %flags.at = getelementptr i8, ptr %fields, i64 {FLAGS_AT}
  %flags = load i32, ptr %flags.at
  %plain.flags = and i32 %flags, {PLAIN_FLAGS}
  %is.plain = icmp eq i32 %plain.flags, {PLAIN_FLAGS}
  %fits.some = and i1 %same.dtype, %same.rank
  %fits = and i1 %fits.some, %is.plain
  %own.sizes.at = getelementptr i8, ptr %fields, i64 {SIZES_AT}
  %own.sizes = load ptr, ptr %own.sizes.at
  br i1 %fits, label %next.size, label %no
next.size:
  %axis = phi i64 [ 0, %array.fields ], [ %axis.next, %size ]
  %more.sizes = icmp slt i64 %axis, %rank
  br i1 %more.sizes, label %size, label %array.fits
size:
  %axis.next = add i64 %axis, 1
  %wanted.at = getelementptr i64, ptr %sizes, i64 %axis
  %wanted = load i64, ptr %wanted.at
  %own.size.at = getelementptr i64, ptr %own.sizes, i64 %axis
  %own.size = load i64, ptr %own.size.at
  %same.size = icmp eq i64 %wanted, %own.size
  br i1 %same.size, label %next.size, label %no
array.fits:
  store ptr %object, ptr %slot
  call void @Py_IncRef(ptr %object)
  call void @keep(ptr %plan, ptr %object)
  ret ptr %behind.array

number:
  ; A Python number where an array without axes is expected: native code finds it as the data of one.
  %number.kind.at = getelementptr i64, ptr %words, i64 4
  %number.kind = load i64, ptr %number.kind.at
  %stand.in.at = getelementptr i64, ptr %words, i64 5
  %stand.in = load ptr, ptr %stand.in.at
  %place.at = getelementptr i8, ptr %stand.in, i64 {DATA}
  switch i64 %number.kind, label %no [
    i64 {FLOAT_NUMBER}, label %float
    i64 {INT_NUMBER}, label %int
    i64 {BOOL_NUMBER}, label %bool
  ]
float:
  %float.type.at = getelementptr i64, ptr %plan, i64 {FLOAT}
  %float.type = load ptr, ptr %float.type.at
  %is.float = icmp eq ptr %type, %float.type
  br i1 %is.float, label %take.float, label %no
take.float:
  %double = call double @PyFloat_AsDouble(ptr %object)
  %float.place = load ptr, ptr %place.at
  store double %double, ptr %float.place
  br label %number.fits
int:
  %int.type.at = getelementptr i64, ptr %plan, i64 {INT}
  %int.type = load ptr, ptr %int.type.at
  %is.int = icmp eq ptr %type, %int.type
  br i1 %is.int, label %take.int, label %no
take.int:
  %integer = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %over = load i32, ptr %overflow
  %in.range = icmp eq i32 %over, 0
  br i1 %in.range, label %store.int, label %no
store.int:
  %int.place = load ptr, ptr %place.at
  store i64 %integer, ptr %int.place
  br label %number.fits
bool:
  %true.at = getelementptr i64, ptr %plan, i64 {TRUE}
  %true = load ptr, ptr %true.at
  %true.type.at = getelementptr i8, ptr %true, i64 {TYPE_AT}
  %bool.type = load ptr, ptr %true.type.at
  %is.bool = icmp eq ptr %type, %bool.type
  br i1 %is.bool, label %take.bool, label %no
take.bool:
  %is.true = icmp eq ptr %object, %true
  %bit = zext i1 %is.true to i8
  %bool.place = load ptr, ptr %place.at
  store i8 %bit, ptr %bool.place
  br label %number.fits
number.fits:
  store ptr %stand.in, ptr %slot
  ret ptr %behind.array

tuple:
  %tuple.type.at = getelementptr i64, ptr %plan, i64 {TUPLE}
  %tuple.type = load ptr, ptr %tuple.type.at
  %is.tuple = icmp eq ptr %type, %tuple.type
  br i1 %is.tuple, label %tuple.length, label %no
tuple.length:
  %tuple.count = call i64 @PyTuple_Size(ptr %object)
  br label %sequence
list:
  %list.type.at = getelementptr i64, ptr %plan, i64 {LIST}
  %list.type = load ptr, ptr %list.type.at
  %is.list = icmp eq ptr %type, %list.type
  br i1 %is.list, label %list.length, label %no
list.length:
  %list.count = call i64 @PyList_Size(ptr %object)
  br label %sequence
sequence:
  %own.count = phi i64 [ %tuple.count, %tuple.length ], [ %list.count, %list.length ]
  %same.count = icmp eq i64 %own.count, %word1
  %items = getelementptr i64, ptr %words, i64 2
  br i1 %same.count, label %next.item, label %no
next.item:
  %position = phi i64 [ 0, %sequence ], [ %position.next, %item.fits ]
  %item.words = phi ptr [ %items, %sequence ], [ %behind.item, %item.fits ]
  %more.items = icmp slt i64 %position, %word1
  br i1 %more.items, label %item, label %container.fits
item:
  %position.next = add i64 %position, 1
  %of.tuple = icmp eq i64 %kind, {IS_TUPLE}
  br i1 %of.tuple, label %tuple.item, label %list.item
tuple.item:
  %from.tuple = call ptr @PyTuple_GetItem(ptr %object, i64 %position)
  br label %item.known
list.item:
  %from.list = call ptr @PyList_GetItem(ptr %object, i64 %position)
  br label %item.known
item.known:
  %member = phi ptr [ %from.tuple, %tuple.item ], [ %from.list, %list.item ]
  %behind.item = call ptr @matches(ptr %plan, ptr %ctx, ptr %item.words, ptr %member)
  %item.differs = icmp eq ptr %behind.item, null
  br i1 %item.differs, label %no, label %item.fits
item.fits:
  br label %next.item
container.fits:
  ret ptr %item.words

dict:
  %dict.type.at = getelementptr i64, ptr %plan, i64 {DICT}
  %dict.type = load ptr, ptr %dict.type.at
  %is.dict = icmp eq ptr %type, %dict.type
  br i1 %is.dict, label %dict.length, label %no
dict.length:
  %entry.count = call i64 @PyDict_Size(ptr %object)
  %same.entries = icmp eq i64 %entry.count, %word1
  %entries = getelementptr i64, ptr %words, i64 2
  store i64 0, ptr %dict.place
  br i1 %same.entries, label %next.entry, label %no
next.entry:
  %entry.number = phi i64 [ 0, %dict.length ], [ %entry.count.so.far, %entry.fits ]
  %entry.words = phi ptr [ %entries, %dict.length ], [ %behind.entry, %entry.fits ]
  %more.entries = icmp slt i64 %entry.number, %word1
  br i1 %more.entries, label %entry.at, label %dict.fits
entry.at:
  ; In the dict's own order, which a function may look at. No code of the user's runs: keys are str and no subclass.
  %entry.count.so.far = add i64 %entry.number, 1
  %found = call i32 @PyDict_Next(ptr %object, ptr %dict.place, ptr %key.at, ptr %value.at)
  %is.entry = icmp ne i32 %found, 0
  br i1 %is.entry, label %entry.key, label %no
entry.key:
  %expected.key = load ptr, ptr %entry.words
  %key = load ptr, ptr %key.at
  %same.key = icmp eq ptr %key, %expected.key
  br i1 %same.key, label %has.entry, label %key.type
key.type:
  %key.type.at = getelementptr i8, ptr %key, i64 {TYPE_AT}
  %own.key.type = load ptr, ptr %key.type.at
  %str.type.at = getelementptr i8, ptr %expected.key, i64 {TYPE_AT}
  %str.type = load ptr, ptr %str.type.at
  %is.str = icmp eq ptr %own.key.type, %str.type
  br i1 %is.str, label %key.text, label %no
key.text:
  %key.compared = call i32 @PyUnicode_Compare(ptr %key, ptr %expected.key)
  %equal.key = icmp eq i32 %key.compared, 0
  br i1 %equal.key, label %has.entry, label %no
has.entry:
  %value = load ptr, ptr %value.at
  %value.words = getelementptr i64, ptr %entry.words, i64 1
  %behind.entry = call ptr @matches(ptr %plan, ptr %ctx, ptr %value.words, ptr %value)
  %entry.differs = icmp eq ptr %behind.entry, null
  br i1 %entry.differs, label %no, label %entry.fits
entry.fits:
  br label %next.entry
dict.fits:
  ret ptr %entry.words

anything:
  %behind.anything = getelementptr i64, ptr %words, i64 2
  ret ptr %behind.anything
same:
  %behind.same = getelementptr i64, ptr %words, i64 2
  %is.same = icmp eq ptr %object, %expected
  br i1 %is.same, label %same.fits, label %no
same.fits:
  ret ptr %behind.same
equal:
  ; Of one of the types whose equal values are the same to a program, and whose comparison is harmless.
  %behind.equal = getelementptr i64, ptr %words, i64 2
  %identical = icmp eq ptr %object, %expected
  br i1 %identical, label %equal.fits, label %equal.type
equal.type:
  %expected.type.at = getelementptr i8, ptr %expected, i64 {TYPE_AT}
  %expected.type = load ptr, ptr %expected.type.at
  %same.type = icmp eq ptr %type, %expected.type
  br i1 %same.type, label %compare, label %no
compare:
  %compared = call i32 @PyObject_RichCompareBool(ptr %object, ptr %expected, i32 2)
  %is.equal = icmp eq i32 %compared, 1
  br i1 %is.equal, label %equal.fits, label %no
equal.fits:
  ret ptr %behind.equal
}}
"""
