"""`torch.compile(model, backend="smelt")`: compiles Dynamo's graph, through AOTAutograd, to smelt programs."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.fx import GraphModule

from ..backend.options import ROUNDING
from ..backend.process.stack_chunk import with_room
from ..ir.errors import ArgumentError, CompileError, suggest
from . import convolution as _convolution  # noqa: F401  (adds its rules)
from . import foreach as _foreach  # noqa: F401  (adds its rules)
from . import random as _random  # noqa: F401  (adds its rules)
from .freeze import Frozen, freeze
from .importer import op_name
from .norms import correct_statistics
from .partition import partition
from .program import Program
from .receipt import record, timed_tracing
from .whole_ops import whole_ops


@dataclass(frozen=True)
class Options:
    """The options of torch.compile(..., options={...}).

    fallback: "allow" lets PyTorch run what smelt cannot compile, "error" forbids it
    rng: "smelt" draws random numbers by smelt's own generator, seeded from torch's; "eager" gives PyTorch's own
    freeze: True makes constants of parameters, for inference
    rounding: where f16 and bf16 are rounded, at the end of each "kernel" or after each "op", as eager does
    """

    fallback: str = "allow"
    rng: str = "smelt"
    freeze: bool = False
    rounding: str = "kernel"


CHOICES: dict[str, tuple[Any, ...]] = {
    "fallback": ("allow", "error"),
    "rng": ("smelt", "eager"),
    "freeze": (False, True),
    "rounding": ROUNDING,
}


def read_options(given: dict[str, Any] | None) -> Options:
    for name, value in (given or {}).items():
        if name not in CHOICES:
            raise ArgumentError(f"unknown option {name!r}{suggest(name, CHOICES)}; there are {', '.join(CHOICES)}")
        if value not in CHOICES[name]:
            raise ArgumentError(f"option {name} is {value!r}, expected one of {', '.join(map(repr, CHOICES[name]))}")
    return Options(**(given or {}))


def compile_program(
    kind: str,
    options: Options,
    module: GraphModule,
    packed: Sequence[tuple[str, int]] = (),
    returned: int | None = None,
) -> Program:
    """Compile a functional graph of aten ops. The receipt names the weights that were packed for it. `returned`: the
    number of results that the caller gets, None for all; AOTAutograd keeps the others for the backward graph."""
    return with_room(lambda: _compile_program(kind, options, module, packed, returned))


def _compile_program(
    kind: str, options: Options, module: GraphModule, packed: Sequence[tuple[str, int]], returned: int | None
) -> Program:
    started = time.perf_counter()
    found = partition(module.graph, options.rng == "eager", returned)
    if found.refused and options.fallback == "error":
        refused = {op_name(node): reason for node, reason in found.refused.items()}
        reasons = "\n".join(f"    {name}: {reason}" for name, reason in refused.items())
        raise CompileError(f"smelt cannot compile these ops, and the option fallback forbids PyTorch's:\n{reasons}")
    program = Program(module, found, options, kind)
    sizes = {symbol.name: size for symbol, size in found.sizes.items()}
    for step in program.natives:
        step.compile(sizes)
    for step in program.natives:
        step.finish()
    # Other sizes are compiled when they come.
    before = time.perf_counter() - started - sum(step.compile_seconds for step in program.natives)
    record(
        {
            "kind": kind,
            "devices": list(dict.fromkeys(str(step.device) for step in program.natives)),
            "native_ops": sum(len(level.nodes) for level in found.levels if level.native) + len(found.deciding),
            "fallback": program.fallback,
            "packed": packed,
            "kernels": lambda: sum(step.kernels for step in program.natives),
            "steps": len(program.natives),
            "natives": program.natives,
            "compilations": lambda: sum(len(step.versions) for step in program.natives),
            "compile_ms": lambda: 1000 * (before + sum(step.compile_seconds for step in program.natives)),
        }
    )
    return program


def compile_frozen(kind: str, options: Options, module: GraphModule, static: Mapping[int, str]) -> Frozen:
    """Compile a graph with the inputs of these positions and names as constants."""
    prologue = freeze(module, static)
    return Frozen(compile_program(kind, options, module, prologue.packed), prologue)


def compile_inference(
    options: Options, names: Sequence[str], module: GraphModule, example_inputs: Sequence[Any]
) -> Callable[..., Any]:
    if not options.freeze:
        return compile_program("inference", options, module)
    context = TracingContext.get()
    assert context.fw_metadata is not None
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    static: dict[int, str] = {}
    for number in context.fw_metadata.static_input_indices:
        origin = getattr(placeholders[number].meta.get("desc"), "idx", None)
        static[number] = placeholders[number].name if origin is None else names[origin]
    return compile_frozen("inference", options, module, static)


def input_names(module: GraphModule) -> list[str]:
    """Return the model's names for the inputs of Dynamo's graph, such as `layers.0.weight`."""
    found: list[str] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            source = getattr(getattr(node, "_dynamo_source", None), "name", node.name)
            _, *parts = re.findall(r"\['([^']+)'\]", source) or [""]
            found.append(".".join(parts) or source)
    return found


def compile_fx(kind: str, options: Options, module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a forward or backward graph of AOTAutograd: its compiler where gradients are needed."""
    if options.freeze:
        raise CompileError(
            "freeze makes constants of parameters, but gradients are wanted: call the compiled model under "
            "torch.no_grad() or torch.inference_mode(), or compile it without freeze to train it"
        )
    context = TracingContext.try_get()
    if kind != "forward" or context is None or (metadata := context.fw_metadata) is None:
        return compile_program(kind, options, module)
    return compile_program(kind, options, module, returned=metadata.num_forward_returns + len(metadata.tokens))


def split(joint: GraphModule, inputs: Sequence[Any], **arguments: Any) -> tuple[GraphModule, GraphModule]:
    """Split a joint graph into forward and backward by AOTAutograd's partitioner, after correcting types of
    statistics."""
    correct_statistics(joint.graph)
    return min_cut_rematerialization_partition(joint, inputs, **arguments)


def smelt(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
    **_: Any,
) -> Any:
    """The back end that Dynamo calls."""
    chosen = read_options(options)
    if mode is not None:
        warnings.warn(
            f"mode={mode!r} of torch.compile is Inductor's and changes nothing here; smelt has options={{...}}: "
            f"{', '.join(CHOICES)}",
            stacklevel=2,
        )
    compiler = aot_autograd(
        fw_compiler=partial(compile_fx, "forward", chosen),
        bw_compiler=partial(compile_fx, "backward", chosen),
        inference_compiler=partial(compile_inference, chosen, input_names(module) if chosen.freeze else ()),
        partition_fn=split,
        keep_inference_input_mutations=True,
    )
    with timed_tracing(), whole_ops():
        return compiler(module, example_inputs)
