"""Programs named on the command line: `module.py:function` with `--args`, or a file of IR text."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..backend.options import CompileOptions
from ..backend.targets import targets
from ..ir.errors import suggest
from ..ir.graph import Graph
from ..ir.types import dtype
from ..jit import Jitted
from ..passes.graph.layout import layout
from .terminal import UsageError, UserError

if TYPE_CHECKING:
    from ..passes.stages import Kernels

# An array argument, as opposed to a Python literal: a type name with sizes in brackets.
_ARRAY = re.compile(r"\s*\w+\s*\[.*\]\s*$")


def configure_function(parser: ArgumentParser) -> None:
    """Add the arguments that name a function and the types of its arguments."""
    parser.add_argument("function", help="module.py:function (or package.module:function)")
    parser.add_argument(
        "--args",
        nargs="*",
        metavar="TYPE",
        help='types of the arguments, such as "f32[64, 784]"; a name for a size ("f32[N, 64]") leaves it '
        "open; a Python literal is passed as it is. Default: the function's example_args",
    )
    parser.add_argument("--grad", action="store_true", help="its gradient by all float arguments instead")


def split_name(name: str) -> tuple[str, str]:
    """Split `module.py:function` into module and function. A file must exist; it is not run yet."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise UsageError(f"expected module.py:function, got {name!r}")
    path = os.path.abspath(place)
    if place.endswith(".py") and not os.path.isfile(path):
        folder = os.path.dirname(path)
        nearby = os.listdir(folder) if os.path.isdir(folder) else []
        raise UserError(f"no file {place}{suggest(os.path.basename(place), nearby)}")
    return place, attribute


def load_function(name: str) -> Callable[..., Any]:
    """Import the module and return the function that `module.py:function` names."""
    place, attribute = split_name(name)
    module = _load_module(place)
    function: Any = module
    for part in attribute.split("."):
        if not hasattr(function, part):
            known = [key for key, value in vars(function).items() if callable(value) and not key.startswith("_")]
            raise UserError(f"{place} has no function {attribute!r}{suggest(part, known)}")
        function = getattr(function, part)
    if not callable(function):
        raise UserError(f"{attribute} in {place} is a {type(function).__name__}, expected a function")
    return function


def _load_module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise UserError(f"{error}: expected a file such as model.py, or a module that can be imported") from None
        except Exception as error:
            raise UserError(f"{place} could not be loaded\n{_user_traceback(error, '')}") from None
    path = os.path.abspath(place)
    # Put the module's folder on sys.path, as Python does for a script.
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{place} could not be loaded\n{_user_traceback(error, path)}") from None
    return module


def _user_traceback(error: Exception, path: str) -> str:
    """Return the traceback from the user's file on, without smelt's and the import system's frames before it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != path:
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame or error.__traceback__)).rstrip()


def trace_program(name: str, types: Sequence[str] | None, gradient: bool = False) -> tuple[Graph, CompileOptions]:
    """Return the graph of a function for arguments of the given types, as compiled, and the options."""
    _, graph, options = trace_stages(name, types, gradient)
    return graph, options


def trace_stages(name: str, types: Sequence[str] | None, gradient: bool = False) -> tuple[Graph, Graph, CompileOptions]:
    """Return the graph of a function as traced, the graph with the dims of results in stored order, and the options of
    the compilation."""
    import smelt

    given = load_function(name)
    if types is None and not hasattr(given, "example_args") and (made := _torch_module(given, name)) is not None:
        graph = _exported_graph(name, *made, gradient)
        return graph, graph, CompileOptions(addresses=True)  # PyTorch decides on the layout of results
    function = getattr(given, "__wrapped__", given)
    arguments = _arguments(given, name, types)
    _check_count(function, arguments, name)
    options = given.options if isinstance(given, Jitted) else CompileOptions()
    if isinstance(given, Jitted) and not gradient:
        program = given  # it has its own static arguments
    else:
        static = tuple(index for index, value in enumerate(arguments) if not _arrays_in(value))
        traced = _gradient(function, arguments, name) if gradient else function
        program = smelt.jit(traced, static_argnums=static, options=options)
    try:
        graph = program.trace(*arguments)
        return graph, layout(graph), options
    except (smelt.SmeltError, UserError):
        raise
    except Exception as error:
        path = inspect.getsourcefile(inspect.unwrap(function)) or name
        raise UserError(f"{name} failed while it was traced\n{_user_traceback(error, path)}") from None


MODULE_EXPECTED = (
    "expected a function without arguments that returns a PyTorch module and its inputs (a tensor, a tuple, or a dict "
    "of named ones)"
)


def _torch_module(function: Callable[..., Any], name: str) -> tuple[Any, Any] | None:
    """Return the PyTorch module and inputs that a function without arguments returns; None for other functions."""
    torch = sys.modules.get("torch")
    if torch is None or inspect.isclass(function):
        return None
    if isinstance(function, torch.nn.Module):
        raise UserError(f"{name} is a PyTorch module: {MODULE_EXPECTED}")
    if inspect.signature(function).parameters:
        return None
    made = function()
    parts = made if isinstance(made, (tuple, list)) else (made,)
    match parts:
        case (torch.nn.Module() as module, inputs):
            return module, inputs if isinstance(inputs, (tuple, dict)) else (inputs,)
    if any(callable(item) for item in parts):  # a callable is not a program's result
        kinds = " and ".join(type(item).__name__ for item in parts)
        raise UserError(f"{name} returns {kinds}: {MODULE_EXPECTED}")
    return None


def load_module(name: str) -> tuple[Any, Any]:
    """Return the PyTorch module that a function without arguments returns, and its inputs: a tuple, or a dict by
    name."""
    found = _torch_module(load_function(name), name)
    if found is None:
        raise UserError(f"{name}: {MODULE_EXPECTED}")
    return found


def _exported_graph(name: str, module: Any, inputs: Any, gradient: bool) -> Graph:
    if gradient:
        raise UsageError(f"{name} makes a PyTorch module: --grad is for functions of smelt's")
    from ..torch.exported import from_module

    graphs = from_module(module, inputs).graphs
    if len(graphs) != 1:
        raise UserError(
            f"{name}: {len(graphs)} native calls, since PyTorch has to run some ops; smelt.torch.report() says which"
        )
    return graphs[0]


def _check_count(function: Callable[..., Any], arguments: Sequence[Any], name: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise UserError(f"{name}{signature}: {error}") from None


def _arrays_in(argument: Any) -> list[Any]:
    """Return the arrays and array types in an argument, which may be a pytree."""
    import optree
    import smelt

    leaves = optree.tree_leaves(argument)
    return [leaf for leaf in leaves if isinstance(leaf, smelt.ArraySpec) or hasattr(leaf, "__array__")]


def _arguments(function: Callable[..., Any], name: str, types: Sequence[str] | None) -> list[Any]:
    if types is not None:
        return [_argument(text) for text in types]
    examples = getattr(function, "example_args", None)
    if examples is None:
        with contextlib.suppress(TypeError, ValueError):
            signature = inspect.signature(function)
            if not signature.parameters:
                return []
            name += str(signature)
        raise UsageError(
            f'the types of the arguments of {name} are not known: give them with --args "f32[64, 784]" ..., '
            "or set example_args on the function (for trees of arrays, too)"
        )
    import optree

    return [optree.tree_map(_example, example) for example in examples]


def _argument(text: str) -> Any:
    """Parse an argument: an array type as a spec, anything else as a Python literal."""
    if _ARRAY.match(text):
        return _example(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise UserError(f'argument {text!r}: expected a type such as "f32[64, 784]", or a Python literal') from None


def _example(value: Any) -> Any:
    import smelt

    return smelt.spec(value) if isinstance(value, str) and _ARRAY.match(value) else value


def _gradient(function: Callable[..., Any], arguments: Sequence[Any], name: str) -> Callable[..., Any]:
    """Return the gradient function of the sum of all results by all float arguments."""
    import optree
    import smelt

    floats = []
    for index, argument in enumerate(arguments):
        kinds = [dtype(array.dtype).is_inexact for array in _arrays_in(argument)]
        if kinds and all(kinds):
            floats.append(index)
    if not floats:
        raise UserError(f"{name} has no float argument to differentiate by")

    @functools.wraps(function)
    def total(*values: Any) -> Any:
        results = [result for result in optree.tree_leaves(function(*values)) if result.dtype.is_inexact]
        return sum(result.sum() for result in results)

    total.__name__ = f"{function.__name__}_grad"
    return smelt.grad(total, argnums=tuple(floats))


def configure_target(parser: ArgumentParser, default: str = "the GPU's own") -> None:
    """Add the arguments that name a target."""
    usual = CompileOptions.target
    parser.add_argument(
        "--target", default=usual, choices=targets.names, help=f"what to compile for (default: {usual})"
    )
    parser.add_argument(
        "--arch", metavar="SM", help=f"with --target cuda: architecture of the GPU, such as sm_90 (default: {default})"
    )


def check_target(options: Namespace) -> None:
    if options.arch is not None and not targets.find(options.target).has_architectures:
        raise UsageError(f"--arch {options.arch} is for GPUs: add --target cuda")


def for_target(chosen: CompileOptions, options: Namespace) -> CompileOptions:
    """Return a function's options with the target of the command line."""
    target = chosen.target if options.target == CompileOptions.target else options.target
    return replace(chosen, target=target, architecture=options.arch or chosen.architecture)


def compile_stages(
    graph: Graph, wanted: Sequence[str], target: str = "cpu", architecture: str | None = None
) -> dict[str, Any]:
    """Compile a graph; return the results of the stages up to the last wanted one, by name."""
    from ..backend import compile

    return compile.compile_stages(graph, wanted, CompileOptions(target=target, architecture=architecture))


def read_program(path: str) -> Graph | Kernels:
    """The graph or the kernels in a file; `-` is standard input."""
    from ..ir.parser import parse_graph
    from ..kernels.loop.parser import parse_kernels
    from ..passes.stages import Kernels

    text, name = (sys.stdin.read(), "<stdin>") if path == "-" else (_read_text(path), path)
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("//")), "")
    return Kernels(parse_kernels(text, name)) if first.split()[:1] == ["kernel"] else parse_graph(text, name)


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file") from None
