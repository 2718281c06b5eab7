"""Samples of ops on lists of tensors: the list has three shapes, and what stands beside it comes in each form."""

from __future__ import annotations

from smelt.ops.foreach import BINARY, SCALED, TERNARY, UNARY

from .table import FULL, Entry, S, T, entry, t, values

LOWS = {"acos": (-0.9, 0.9), "asin": (-0.9, 0.9)}
POSITIVE = {"log", "log10", "log1p", "log2", "rsqrt", "sqrt", "reciprocal", "lgamma", "pow", "div", "addcdiv"}
PLAIN = {"special": False, "dtypes": FULL}


def tensors(name: str) -> list[T]:
    low, high = LOWS.get(name, (0.3, 3.0) if name in POSITIVE else (-3.0, 3.0))
    return [t(3, 4, low=low, high=high), t(low=low, high=high), t(5, low=low, high=high)]


def beside(name: str) -> list[T]:
    return [t(3, 4, low=0.5, high=2.5), t(low=0.5, high=2.5), t(5, low=0.5, high=2.5)]


# PyTorch's foreach kernels have no forward mode of their own for all of these: it is made from the reverse.
ENTRIES: dict[str, Entry] = {f"_foreach_{name}": entry(S(tensors(name)), **PLAIN) for name in UNARY}
for _name in (*BINARY, *SCALED):
    samples = [S(tensors(_name), beside(_name))]
    if _name != "copy":
        samples += [S(tensors(_name), 1.5), S(tensors(_name), [1.5, 2.0, 0.5])]
    ENTRIES[f"_foreach_{_name}"] = entry(*samples, **PLAIN, forward_mode=False)
ENTRIES["_foreach_add"] = entry(
    S(tensors("add"), beside("add")), S(tensors("add"), beside("add"), alpha=2.0), S(tensors("add"), 1.5), **PLAIN
)
ENTRIES["_foreach_pow"] = entry(
    S(tensors("pow"), beside("pow")), S(tensors("pow"), 1.5), S(2.0, tensors("pow")), **PLAIN, forward_mode=False
)
ENTRIES["_foreach_div"] = entry(
    S(tensors("div"), beside("div")), S(tensors("div"), 1.5), S(tensors("div"), values(2.5, shape=())), **PLAIN
)
for _name in TERNARY:
    ENTRIES[f"_foreach_{_name}"] = entry(
        S(tensors(_name), tensors(_name), beside(_name)),
        S(tensors(_name), tensors(_name), beside(_name), 0.5),
        S(tensors(_name), tensors(_name), beside(_name), [0.5, 1.0, 2.0]),
        **PLAIN,
    )
ENTRIES["_foreach_lerp"] = entry(
    S(tensors("lerp"), tensors("lerp"), beside("lerp")), S(tensors("lerp"), tensors("lerp"), 0.3), **PLAIN
)
ENTRIES["_foreach_max"] = entry(S(tensors("max")), **PLAIN)
ENTRIES["_foreach_norm"] = entry(S(tensors("norm")), S(tensors("norm"), 1), **PLAIN)
