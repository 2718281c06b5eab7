"""Records: immutable fields with defaults, for settings and thresholds.

    class FusionCosts(Record):
        views: int = 8  # elements that ...

    COSTS = FusionCosts()
    other = COSTS.but(views=2)

A record is declared and used as a frozen dataclass. Making the class takes 20 us instead of 700: a dataclass compiles
source for each of its methods, and a process that compiles its first program would make thirty of them.
"""

from __future__ import annotations

from typing import Any, NoReturn, Self, dataclass_transform


@dataclass_transform(frozen_default=True)
class Record:
    """Fields are the annotations of the class; values that are not given are its attributes."""

    def __init__(self, *values: Any, **fields: Any):
        kind = type(self)
        names = kind._names()
        given = dict(zip(names, values)) | fields
        if len(given) < len(values) + len(fields) or not given.keys() <= set(names):
            wrong = [name for name in fields if name not in names] or list(names[: len(values)])
            raise TypeError(f"{kind.__name__} has the fields {', '.join(names)}: {', '.join(wrong)} does not fit")
        missing = [name for name in names if name not in given and not hasattr(kind, name)]
        if missing:
            raise TypeError(f"{kind.__name__}: {', '.join(missing)} is missing")
        self.__dict__.update(given)

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return tuple(cls.__annotations__)

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self._names()])

    def but(self, **changes: Any) -> Self:
        """Return the record with other values of some fields."""
        return type(self)(**dict(zip(self._names(), self._values())) | changes)

    def __setattr__(self, name: str, value: Any = None) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: make another one by .but({name}=...)")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self._values() == other._values())  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        known = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = hash(self._values())
        return known  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        return type(self), self._values()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._names(), self._values()))
        return f"{type(self).__name__}({shown})"
