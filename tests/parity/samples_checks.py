"""Samples of assertions that hold (tests/jit/test_errors.py has those that do not)."""

from __future__ import annotations

from typing import Any

from .table import Entry, S, entry, t, values

TRUE = values(1, dtype="bool", shape=())
PLAIN = {"special": False, "derivative": False}


def token(condition: Any, message: str, token: Any) -> Any:
    return token.clone()


ENTRIES: dict[str, Entry] = {
    "_functional_assert_async": entry(
        S(TRUE, "no", t(3, 4)), S(values(2.5, differentiate=False), "no", t()), special=False, torch=token
    ),
    "_functional_assert_scalar": entry(S(1, "no", t(3, 4)), S(values(2.5), "no", t()), **PLAIN, torch=token),
    "_assert_async": entry(S(TRUE, "no"), S(values(3.0)), **PLAIN, torch=lambda value, message="": value.clone()),
    "_assert_scalar": entry(S(values(3.0), "no"), **PLAIN, torch=lambda value, message: (value == value).all()),
}
