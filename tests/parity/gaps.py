"""What is known to differ from PyTorch, each with its reason. A gap that no longer fails is an error."""

from __future__ import annotations

# "op/mode/backend/sample-dtype": reason. The sample may be a pattern; op, mode and back end may not.
KNOWN_GAPS: dict[str, str] = {}

# Ops that a program never calls by itself, so that there is nothing to sample.
INTERNAL: dict[str, str] = {
    "extent": "a symbolic size as a tensor: there is none in a sample (test_symbolic.py)",
    "seed_state": "stands for a hidden parameter of the traced function (test_random_ops.py)",
    "captured": "holds an array until tracing ends and makes it a parameter (test_jit.py)",
    "checked_cast": "a Python number that came as an argument, in the type of what it meets (test_promotion.py)",
    "checked_exponent": "the exponent of NumPy's integers, which must not be negative (test_promotion.py)",
    "checked_divisor": "the divisor of PyTorch's integers, which must not be zero (test_torch_numbers.py)",
    "round_off": "made of each result where f16 and bf16 are rounded after each op (test_torch_rounding.py)",
    "normal_cdf": "what gelu is made of, and tested with it (and in test_vecmath.py)",
}
