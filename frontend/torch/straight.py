"""The call of a program that is one native call and nothing else, written out: what is known of it is not looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from .native import Call
    from .program import Program

Run = Callable[[list[Any]], list[Any]]


def straight_line(program: Program) -> Run | None:
    """A function that does what the program does, if it has one step of known sizes with plain results."""
    from . import native

    if len(program.steps) != 1 or not isinstance(step := program.steps[0], native.NativeStep) or step.symbols:
        return None
    call = step.calls.get(())
    on_host = step.device.type == "cpu"
    if call is None or call.over or call.copies or call.spread or call.shown or call.seeded:
        return None
    if any(is_lazy for _, is_lazy, _, _ in call.read):
        return None
    space: dict[str, Any] = {
        "empty": _empty_strided_cpu if on_host else call.empty,
        "get_num_threads": torch.get_num_threads,
        "native": native,
        "launch": call.launch,
        "laid_out": native._laid_out,
        "moved": native._moved,
    }
    lines = ["def run(args):"]
    names = _bind_slots(program, call, space, lines)
    made = {output.slot: f"r{at}" for at, output in enumerate(step.outputs)}
    if on_host:
        lines += ["    if get_num_threads() != native._threads:", "        native.follow_threads()"]
    for at, (slot, _, shape, strides) in enumerate(call.read):
        space |= {f"shape{at}": shape, f"strides{at}": strides}
        lines.append(f"    i{at} = {names[slot]}")
        lines += [f"    if i{at}.stride() != strides{at}:", f"        i{at} = laid_out(i{at}, shape{at}, strides{at})"]
        if call.misaligned:
            lines += [f"    if i{at}.data_ptr() & {call.misaligned}:", f"        i{at} = moved(i{at})"]
    for at, (shape, strides, dtype) in enumerate(call.made):
        space |= {f"made{at}": shape, f"apart{at}": strides, f"dtype{at}": dtype}
        lines.append(f"    r{at} = empty(made{at}, apart{at}, {'' if on_host else 'dtype='}dtype{at})")
    addresses = [f"i{at}.data_ptr()" for at in range(len(call.read))]
    addresses += [str(item) for item in call.hidden] + [f"r{at}.data_ptr()" for at in call.stored]
    lines.append(f"    launch({', '.join(addresses)})")
    returned: list[str] = []
    for at, place in enumerate(program.result_places()):
        if place is None:
            space[f"result{at}"] = program.results[at]
            returned.append(f"result{at}")
        elif place in made or place in names:
            returned.append(made.get(place) or names[place])
        else:
            return None
    lines.append(f"    return [{', '.join(returned)}]")
    exec("\n".join(lines), space)
    return space["run"]


def _bind_slots(program: Program, call: Call, space: dict[str, Any], lines: list[str]) -> dict[int, str]:
    """Names of what is in the slots before the call: arguments, and constants of the program."""
    given = len(program.placeholders)
    names = {slot: f"a{slot}" for slot in range(given)}
    for slot, _, _, _ in call.read:
        if slot >= given:
            names[slot] = f"constant{slot}"
            space[f"constant{slot}"] = program.template[slot]
    if given:
        lines.append(f"    {', '.join(names[slot] for slot in range(given))}{',' if given == 1 else ''} = args")
    lines.append("    args.clear()")
    return names
