"""`smelt run`: runs a program in a file on arrays from .npy files."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..ir.graph import Graph
from ..ir.types import DType, dtype
from .program import read_program
from .terminal import FINE, UserError, paint, progress

if TYPE_CHECKING:
    from ..passes.stages import Kernels


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("file", help="a file of IR text; - for standard input")
    parser.add_argument("--inputs", nargs="*", default=[], metavar="FILE", help="one .npy file for each parameter")
    parser.add_argument("--output", metavar="FILE", help="write the results to an .npz file (or one to a .npy file)")
    parser.add_argument("--interpret", action="store_true", help="with the NumPy reference interpreter")
    parser.add_argument("--check-bounds", action="store_true", help="check every index of native code; slow")


def run(options: Namespace) -> int:
    from ..passes.stages import signature

    program = read_program(options.file)
    arrays = [_read_array(path) for path in options.inputs]
    arrays = check_inputs(program if isinstance(program, Graph) else signature(program), arrays, options.inputs)
    with progress(f"running {options.file}"):
        results = evaluate(program, arrays, options.interpret, options.check_bounds)
    if options.output:
        write_results(options.output, results)
    else:
        for position, result in enumerate(results):
            print(paint(f"result {position}: {dtype(result.dtype)}{list(result.shape)}", "bold"))
            print(np.array2string(result, threshold=64))
    return FINE


def evaluate(
    program: Graph | Kernels, arrays: Sequence[np.ndarray], interpreted: bool, checked: bool = False
) -> list[np.ndarray]:
    from ..backend.compile import compile_graph
    from ..backend.options import CompileOptions

    options = CompileOptions(check_bounds=checked)
    if isinstance(program, Graph):
        if interpreted:
            from ..backend.interp.graph import interpret

            return list(interpret(program, arrays))
        return list(compile_graph(program, options)(arrays))
    if interpreted:
        from ..backend.interp.loops import interpret_text

        return interpret_text(program, arrays)
    from ..backend.cpu.kernels import compile_kernels

    return list(compile_kernels(program, options)(arrays))


def _read_array(path: str) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except Exception as error:  # the exception type depends on the defect of the file
        raise UserError(f"{path}: not a .npy file ({error})") from None
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path}: has several arrays, expected a .npy file with one")
    return array


def check_inputs(graph: Graph, arrays: Sequence[np.ndarray], names: Sequence[str]) -> list[np.ndarray]:
    """Return the arrays if they fit the parameters; raise otherwise."""
    wanted = ", ".join(f"%{param.name}: {param.type}" for param in graph.params)
    if len(arrays) != len(graph.params):
        raise UserError(f"{len(arrays)} inputs given, @{graph.name} takes {len(graph.params)}: {wanted}")
    checked = []
    for param, array, name in zip(graph.params, arrays, names, strict=True):
        array = _restored(array, param.dtype)
        fits = array.ndim == param.ndim and all(
            not isinstance(size, int) or size == given for size, given in zip(param.shape, array.shape)
        )
        if array.dtype != param.dtype.numpy or not fits:
            raise UserError(f"{name} is {array.dtype}{list(array.shape)}, expected {param.type} for %{param.name}")
        checked.append(array)
    return checked


def _restored(array: np.ndarray, wanted: DType) -> np.ndarray:
    """Return an array with bf16 restored: .npy files have no such type, so NumPy reads raw bytes."""
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.bytes:
        return array.view(wanted.numpy)
    return array


def write_results(path: str, results: Sequence[np.ndarray]) -> None:
    if path.endswith(".npy") and len(results) != 1:
        raise UserError(f"{path} can hold one array, the program has {len(results)} results: name an .npz file")
    try:
        if path.endswith(".npy"):
            np.save(path, results[0])
        else:
            with open(path, "wb") as file:
                np.savez(file, *results)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
