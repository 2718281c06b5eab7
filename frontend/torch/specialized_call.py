"""Generate a specialized call for a program of one native call: Python source with all known facts written in.

Results may be computed in the memory of arguments, as in an optimizer's step. If these do not have the expected layout,
the program's general path runs instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from .native import Call
    from .program import Program

Run = Callable[[list[Any]], list[Any]]


def specialized_call(program: Program, template: list[Any]) -> Run | None:
    """Generate a function equivalent to the program if it has one step, known sizes and plain results; else None."""
    from . import memory, native

    writes = program.partition.writes
    if len(program.steps) != 1 + len(writes) or not isinstance(step := program.steps[0], native.NativeStep):
        return None
    call = step.calls.get(())
    on_host = step.device.type == "cpu"
    if step.symbols or call is None or call.plan.copies or call.spread or call.plan.is_seeded:
        return None
    if any(item.number is not None for item in call.read):
        return None
    over = call.over
    targets = {step.outputs[at].slot: item.slot for at, item in over.items()}
    copies = [tuple(program.slot(item) for item in node.args[:2]) for node in writes]  # type: ignore[arg-type]
    if any(targets.get(source) != target for target, source in copies):
        return None
    space: dict[str, Any] = {
        "empty": _empty_strided_cpu if on_host else call.empty,
        "get_num_threads": torch.get_num_threads,
        "threads": native.followed,
        "follow_threads": native.follow_threads,
        "launch": call.launch,
        "laid_out": memory.laid_out,
        "moved": memory.moved,
        "are_apart": memory.are_apart,
        "run_steps": partial(program.run_steps, template=template),
        "increment_version": torch.autograd.graph.increment_version,
    }
    lines = ["def run(args):"]
    given = len(program.placeholders)
    names = _bind_slots(program, template, call, space, lines)
    made = {item.slot: names[over[at].slot] if at in over else f"r{at}" for at, item in enumerate(step.outputs)}
    made |= {program.slot(node): names[target] for node, (target, _) in zip(writes, copies)}
    read = {item.slot: item for item in call.read}
    for slot, item in read.items():
        space |= {f"shape{slot}": item.shape, f"strides{slot}": item.strides}
        if slot >= given:
            continue
        # Checked before any write: arguments without the expected layout take the general path.
        if item.may_differ:
            space[f"type{slot}"] = item.dtype
            lines.append(
                f"    if a{slot}.dtype is not type{slot} or a{slot}.shape != shape{slot}: return run_steps(args)"
            )
        if item.may_be_lazy:
            lines.append(f"    if {_is_lazy(slot, item.dtype)}: return run_steps(args)")
        if item.overlaps:
            lines.append(f"    if a{slot}.stride() != strides{slot}: return run_steps(args)")
    for slot in dict.fromkeys((*read, *(item.slot for item in over.values()))):
        lines.append(f"    p{slot} = {names[slot]}.data_ptr()")
    for target in over.values():
        slot = target.slot
        space[f"apart{slot}"] = target.strides
        lines.append(f"    if a{slot}.stride() != apart{slot} or p{slot} & {target.misaligned}: return run_steps(args)")
        if slot not in read and target.may_be_lazy:
            lines.append(f"    if {_is_lazy(slot, target.dtype)}: return run_steps(args)")
    if over:
        space |= {"sizes": tuple(call.pieces.values()), "apart": [None]}  # the last addresses known to be apart
        lines.append(f"    pieces = ({_listed(f'p{slot}' for slot in call.pieces)},)")
        lines.append("    if pieces != apart[0]:")
        lines += ["        if not are_apart(pieces, sizes): return run_steps(args)", "        apart[0] = pieces"]
        lines.append(f"    increment_version([{_listed(f'a{target.slot}' for target in over.values())}])")
    lines.append("    args.clear()")
    if on_host:
        lines += ["    if get_num_threads() != threads.count: follow_threads()"]
    for slot, item in read.items():
        name = names[slot]
        if not item.overlaps and not any(
            target.slot == slot and target.strides == item.strides for target in over.values()
        ):
            # The name stays that of the argument itself: a result may be a view of it.
            lines.append(f"    if {name}.stride() != strides{slot}:")
            lines.append(
                f"        i{slot} = laid_out({name}, shape{slot}, strides{slot}); p{slot} = i{slot}.data_ptr()"
            )
        if call.misaligned:
            lines.append(f"    if p{slot} & {call.misaligned}:")
            lines.append(f"        m{slot} = moved(laid_out({name}, shape{slot}, strides{slot}))")
            lines.append(f"        p{slot} = m{slot}.data_ptr()")
    addresses = [f"p{item.slot}" for item in call.read]
    for at, (shape, strides, dtype) in enumerate(call.made):
        if at in over:
            continue
        space |= {f"made{at}": shape, f"apart{at}": strides, f"dtype{at}": dtype}
        lines.append(f"    r{at} = empty(made{at}, apart{at}, {'' if on_host else 'dtype='}dtype{at})")
    addresses += [str(item) for item in call.hidden]
    addresses += [f"p{over[at].slot}" if at in over else f"r{at}.data_ptr()" for at in call.plan.owners]
    lines.append(f"    launch({_listed(addresses)})")
    for at, view in enumerate(call.shown):
        space[f"view{at}"] = view.of
        lines.append(f"    v{at} = view{at}({made.get(view.base) or names[view.base]})")
        made[view.slot] = f"v{at}"
    returned: list[str] = []
    for at, place in enumerate(program.result_places()):
        if place is None:
            space[f"result{at}"] = program.results[at]
            returned.append(f"result{at}")
        elif place in made or place in names:
            returned.append(made.get(place) or names[place])
        else:
            return None
    lines.append(f"    return [{_listed(returned)}]")
    exec("\n".join(lines), space)
    return space["run"]


def _bind_slots(
    program: Program, template: list[Any], call: Call, space: dict[str, Any], lines: list[str]
) -> dict[int, str]:
    """Bind names to the slots that are filled before the call: arguments, and constants of the program."""
    given = len(program.placeholders)
    names = {slot: f"a{slot}" for slot in range(given)}
    lazy = {item.slot for item in call.read if item.may_be_lazy}
    for slot, item in enumerate(template):
        if slot >= given and item is not None:
            names[slot] = f"constant{slot}"
            space[names[slot]] = item.resolve_conj().resolve_neg() if slot in lazy else item
    if given:
        lines.append(f"    {', '.join(names[slot] for slot in range(given))}{',' if given == 1 else ''} = args")
    return names


def _is_lazy(slot: int, dtype: torch.dtype) -> str:
    """Write the condition that an argument is lazily conjugated or negated."""
    return f"a{slot}.is_neg()" + f" or a{slot}.is_conj()" * dtype.is_complex


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items)
