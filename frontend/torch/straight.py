"""The call of a program that is one native call and nothing else, written out: what is known of it is not looked up.

Results may be computed in the memory of arguments, as those of an optimizer's step are. Where these do not lie as
expected, the program takes its usual way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from .native import Call
    from .program import Program

Run = Callable[[list[Any]], list[Any]]


def straight_line(program: Program, template: list[Any]) -> Run | None:
    """A function that does what the program does, if it has one step of known sizes with plain results."""
    from . import native

    writes = program.partition.writes
    if len(program.steps) != 1 + len(writes) or not isinstance(step := program.steps[0], native.NativeStep):
        return None
    call = step.calls.get(())
    on_host = step.device.type == "cpu"
    if step.symbols or call is None or call.copies or call.spread or call.seeded:
        return None
    if any(is_lazy for _, is_lazy, _, _ in call.read):
        return None
    over = {at: slot for at, slot in call.over.items() if _is_plain(program, slot)}
    targets = {step.outputs[at].slot: slot for at, slot in over.items()}
    copies = [tuple(program.slot(item) for item in node.args[:2]) for node in writes]  # type: ignore[arg-type]
    if len(over) < len(call.over) or any(targets.get(source) != target for target, source in copies):
        return None
    space: dict[str, Any] = {
        "empty": _empty_strided_cpu if on_host else call.empty,
        "get_num_threads": torch.get_num_threads,
        "native": native,
        "launch": call.launch,
        "laid_out": native._laid_out,
        "moved": native._moved,
        "run_steps": partial(program.run_steps, template=template),
        "increment_version": torch.autograd.graph.increment_version,
    }
    lines = ["def run(args):"]
    names = _bind_slots(program, template, call, space, lines)
    made = {item.slot: names[over[at]] if at in over else f"r{at}" for at, item in enumerate(step.outputs)}
    made |= {program.slot(node): names[target] for node, (target, _) in zip(writes, copies)}
    known: dict[tuple[int, tuple[int, ...]], str] = {}  # addresses, of what lies in these slots with these strides
    for at, slot in over.items():
        _, strides, _ = call.made[at]
        name, address = names[slot], f"p{at}"
        space[f"apart{at}"] = strides
        misaligned = f" or {address} & {call.misalignment(at)}"
        lines.append(f"    {address} = {name}.data_ptr()")
        lines.append(f"    if {name}.stride() != apart{at}{misaligned}:")
        lines.append("        return run_steps(args)")
        known[slot, strides] = address
    if over:
        lines.append(f"    increment_version([{', '.join(names[slot] for slot in over.values())}])")
    lines.append("    args.clear()")
    if on_host:
        lines += ["    if get_num_threads() != native._threads:", "        native.follow_threads()"]
    addresses: list[str] = []
    for at, (slot, _, shape, strides) in enumerate(call.read):
        if (slot, strides) in known and not call.misaligned:
            addresses.append(known[slot, strides])
            continue
        addresses.append(f"i{at}.data_ptr()")
        space |= {f"shape{at}": shape, f"strides{at}": strides}
        lines.append(f"    i{at} = {names[slot]}")
        lines += [f"    if i{at}.stride() != strides{at}:", f"        i{at} = laid_out(i{at}, shape{at}, strides{at})"]
        if call.misaligned:
            lines += [f"    if i{at}.data_ptr() & {call.misaligned}:", f"        i{at} = moved(i{at})"]
    for at, (shape, strides, dtype) in enumerate(call.made):
        if at in over:
            continue
        space |= {f"made{at}": shape, f"apart{at}": strides, f"dtype{at}": dtype}
        lines.append(f"    r{at} = empty(made{at}, apart{at}, {'' if on_host else 'dtype='}dtype{at})")
    addresses += [str(item) for item in call.hidden]
    addresses += [f"p{at}" if at in over else f"r{at}.data_ptr()" for at in call.stored]
    lines.append(f"    launch({', '.join(addresses)})")
    for at, (slot, base, *view) in enumerate(call.shown):
        space |= {f"view{at}": view, "view_of": native.view_of}
        lines.append(f"    v{at} = view_of({made.get(base) or names[base]}, *view{at})")
        made[slot] = f"v{at}"
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


def _bind_slots(
    program: Program, template: list[Any], call: Call, space: dict[str, Any], lines: list[str]
) -> dict[int, str]:
    """Names of what is in the slots before the call: arguments, and constants of the program."""
    given = len(program.placeholders)
    names = {slot: f"a{slot}" for slot in range(given)}
    for slot, _, _, _ in call.read:
        if slot >= given:
            names[slot] = f"constant{slot}"
            space[f"constant{slot}"] = template[slot]
    if given:
        lines.append(f"    {', '.join(names[slot] for slot in range(given))}{',' if given == 1 else ''} = args")
    return names


def _is_plain(program: Program, slot: int) -> bool:
    """Whether what is in a slot is an argument that is read as it lies."""
    if slot >= len(program.placeholders):
        return False
    tensor = program.placeholders[slot].meta["val"]
    return not (tensor.dtype.is_complex or tensor.is_neg())
