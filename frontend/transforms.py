"""grad, value_and_grad, vjp and jvp: derivatives of Python functions, as Python functions.

Each works on traced tensors, inside `jit` or inside each other, and there it is plain graph construction: the
differentiated leaves become fresh values, the function runs on them, and passes/autodiff walks the graph that it built.
On arrays the same function goes through `jit`, once for each function and argument types: a second call does not trace
again, so, as with `jit`, arrays that the function reads from outside are constants.

Arguments and results may be nested in tuples, lists, dicts and whatever else optree knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from types import MethodType
from typing import Any

import numpy as np

from .backend.pytree import flatten, leaves_like, paths, shown, unflatten
from .ir import asked
from .ir.errors import ArgumentError, DerivativeError, DTypeError, ShapeError
from .ir.graph import Array, Handle, Value, current_location, plain
from .ir.open_size import OpenSize
from .ir.types import TensorType, number_dtype
from .jit import Jitted, jit
from .opened import opened
from .ops.captures import as_array, captured
from .ops.define import REGISTRY, constant
from .passes.autodiff.jvp import jvp as push_forward
from .passes.autodiff.vjp import vjp as pull_back
from .passes.autodiff.vjp import zeros

Function = Callable[..., Any]


def grad(function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """Return the gradient function of a scalar function with respect to the arguments `argnums`.

    With an int the gradient looks like that argument, with a sequence it is a tuple of them. With `has_aux`
    the function returns (scalar, anything) and its gradient (gradient, anything).
    """
    return _transformed(_traced_grad, function, _positions(argnums), has_aux)


def value_and_grad(function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """As `grad`, returning (value, gradient), or ((value, anything), gradient) with `has_aux`."""
    return _transformed(_traced_value_and_grad, function, _positions(argnums), has_aux)


def vjp(function: Function, *primals: Any) -> tuple[Any, Function]:
    """Return function(*primals), and a function from the result's cotangent to the cotangents of the primals."""
    if _any_traced(primals):
        return _linearized(function, primals)
    result = _compiled(_traced_call, function)(*primals)

    def gradients(cotangent: Any) -> tuple:
        if _any_traced(cotangent):
            return _linearized(function, primals)[1](cotangent)
        return _compiled(_traced_vjp, function)(primals, cotangent)  # type: ignore[no-any-return]

    return result, gradients


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Return function(*primals), and its tangent along the tangents of the primals."""
    for what, given in (("primals are", primals), ("tangents are", tangents)):
        if not isinstance(given, (tuple, list)):
            raise ArgumentError(
                f"jvp of {_name(function)}: the {what} {type(given).__name__}, expected a tuple with an entry for each "
                "argument, such as smelt.jvp(function, (x,), (direction,))",
                current_location(),
            )
    primals, tangents = tuple(primals), tuple(tangents)
    if _any_traced((primals, tangents)):
        return _traced_jvp(function)(primals, tangents)
    return _compiled(_traced_jvp, function)(primals, tangents)


def _transformed(make: Function, function: Function, *options: Any) -> Function:
    """Return a function that runs `make(function, *options)` on traced tensors, and jits it on arrays."""
    traced = make(function, *options)

    @wraps(function)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        if _any_traced((args, kwargs)):
            return traced(*args, **kwargs)
        return _compiled(make, function, *options)(*args, **kwargs)

    return transformed


def _compiled(make: Function, function: Function, *options: Any) -> Jitted:
    """Return the jitted `make(function, *options)`, memoised. Not inside a trace: the function may close over tensors
    of the trace, which must not outlive it."""
    if asked.current() is not None:
        return jit(make(function, *options))  # type: ignore[no-any-return]
    return _remembered(make, _Identity(function), *options)


class _Identity:
    """A function as a dict key, compared by identity, whatever its __eq__ and __hash__. A bound method, a new object at
    each access, is compared by its instance and function."""

    def __init__(self, function: Function):
        self.function = function
        self.parts: tuple[Any, ...] = (function,)
        if isinstance(function, MethodType):
            self.parts = function.__self__, function.__func__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and list(map(id, self.parts)) == list(map(id, other.parts))

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.parts)))


@lru_cache(maxsize=256)
def _remembered(make: Function, function: _Identity, *options: Any) -> Jitted:
    return jit(make(function.function, *options))  # type: ignore[no-any-return]


def _any_traced(tree: Any) -> bool:
    return any(isinstance(leaf, Value) or type(leaf) is OpenSize for leaf in flatten(tree)[0])


def _positions(argnums: int | Sequence[int]) -> int | tuple[int, ...]:
    return argnums if isinstance(argnums, int) else tuple(argnums)


def _traced_call(function: Function) -> Function:
    return function


def _traced_grad(function: Function, argnums: int | tuple[int, ...], has_aux: bool) -> Function:
    @wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        _value, gradients, aux = _differentiate(function, argnums, has_aux, args, kwargs)
        return (gradients, aux) if has_aux else gradients

    return traced


def _traced_value_and_grad(function: Function, argnums: int | tuple[int, ...], has_aux: bool) -> Function:
    @wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        value, gradients, aux = _differentiate(function, argnums, has_aux, args, kwargs)
        return ((value, aux) if has_aux else value), gradients

    return traced


def _traced_vjp(function: Function) -> Function:
    def traced(primals: tuple, cotangent: Any) -> tuple:
        return _linearized(function, primals)[1](cotangent)

    traced.__name__ = _name(function)
    return traced


def _traced_jvp(function: Function) -> Function:
    def traced(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        name = _name(function)
        leaves, given, structure = _independent(
            primals, lambda path: f"jvp of {name}: argument {path[0]}{_inside(path)}"
        )
        directions = leaves_like(structure, tangents)
        if directions is None:
            nesting, wanted = shown(flatten(tangents)[1]), shown(structure)
            raise ArgumentError(
                f"jvp of {name}: the tangents are nested as {nesting}, expected {wanted}", current_location()
            )
        seeds = [
            _seed(direction, leaf.type, f"jvp of {name}: tangent {position}")
            for position, (direction, leaf) in enumerate(zip(directions, leaves, strict=True))
        ]
        outputs, output_structure = flatten(opened(function)(*unflatten(structure, given)))
        results = [_value(output, f"jvp of {name}: the result") for output in outputs]
        changes = push_forward(results, leaves, seeds)
        filled = [
            _like(output, zeros(result.type) if change is None else change)
            for output, result, change in zip(outputs, results, changes, strict=True)
        ]
        return unflatten(output_structure, list(map(_like, outputs, results))), unflatten(output_structure, filled)

    traced.__name__ = _name(function)
    return traced


def _differentiate(
    function: Function, argnums: int | tuple[int, ...], has_aux: bool, args: tuple, kwargs: dict[str, Any]
) -> tuple[Value, Any, Any]:
    """Return the value of a scalar function, its gradients nested as the arguments, and its auxiliary result."""
    name = _name(function)
    wanted = (argnums,) if isinstance(argnums, int) else argnums
    for position in wanted:
        if not isinstance(position, int) or not -len(args) <= position < len(args):
            raise ArgumentError(
                f"grad of {name}: argnums has {position!r}, the call has {len(args)} positional arguments",
                current_location(),
            )
    if len({position % len(args) for position in wanted}) < len(wanted):
        raise ArgumentError(f"grad of {name}: argnums {wanted} names an argument twice", current_location())
    chosen = tuple(args[position] for position in wanted)
    leaves, given, structure = _independent(
        chosen, lambda path: f"grad of {name}: argument {wanted[path[0]]}{_inside(path)}"
    )
    replaced = list(args)
    for position, argument in zip(wanted, unflatten(structure, given), strict=True):
        replaced[position] = argument
    returned = opened(function)(*replaced, **kwargs)
    aux = None
    if has_aux:
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise ArgumentError(
                f"grad of {name}: with has_aux the function must return (scalar, anything), "
                f"got {type(returned).__name__}",
                current_location(),
            )
        returned, aux = returned
    value = _scalar_result(returned, name)
    gradients = pull_back([value], [constant(1, value.dtype)], leaves)
    filled = [
        _like(item, zeros(item.type) if gradient is None else gradient)
        for item, gradient in zip(given, gradients, strict=True)
    ]
    nested = unflatten(structure, filled)
    return _like(returned, value), nested[0] if isinstance(argnums, int) else nested, aux


def _scalar_result(returned: Any, name: str) -> Value:
    if isinstance(returned, (tuple, list, dict)) or returned is None:
        raise DerivativeError(
            f"grad of {name}: the function must return one scalar, got {type(returned).__name__}. "
            "Use has_aux=True if it returns (scalar, anything), or smelt.vjp for several results",
            current_location(),
        )
    value = _value(returned, f"grad of {name}: the result")
    if value.ndim:
        raise DerivativeError(
            f"grad of {name}: the result is {value.type}, expected a scalar. Sum or average it first, "
            "or use smelt.vjp, which takes a cotangent",
            current_location(),
        )
    if not value.dtype.is_float:
        raise DerivativeError(f"grad of {name}: the result is {value.type}, expected a float", current_location())
    return value


def _linearized(function: Function, primals: tuple) -> tuple[Any, Function]:
    """`vjp` on traced tensors."""
    name = _name(function)
    leaves, traced, structure = _independent(primals, lambda path: f"vjp of {name}: argument {path[0]}{_inside(path)}")
    outputs, output_structure = flatten(opened(function)(*unflatten(structure, traced)))
    results = [_value(output, f"vjp of {name}: the result") for output in outputs]

    def gradients(cotangent: Any) -> tuple:
        given = leaves_like(output_structure, cotangent)
        if given is None:
            nesting, wanted = shown(flatten(cotangent)[1]), shown(output_structure)
            raise ArgumentError(
                f"vjp of {name}: the cotangent is nested as {nesting}, expected {wanted} as the result",
                current_location(),
            )
        seeds = [
            _seed(item, result.type, f"vjp of {name}: cotangent {position}")
            for position, (item, result) in enumerate(zip(given, results, strict=True))
        ]
        found = pull_back(results, seeds, leaves)
        filled = [
            _like(leaf, zeros(leaf.type) if item is None else item) for leaf, item in zip(traced, found, strict=True)
        ]
        return tuple(unflatten(structure, filled))

    return unflatten(output_structure, list(map(_like, outputs, results))), gradients


def _independent(tree: Any, describe: Callable[[tuple], str]) -> tuple[list[Value], list[Value], Any]:
    """Return the leaves as fresh values, so that nested derivatives do not mix; the same as the function gets them; and
    the structure."""
    leaves, structure = flatten(tree)
    values: list[Value] = []
    for path, leaf in zip(paths(structure), leaves, strict=True):
        value = _value(leaf, describe(path))
        if not value.dtype.is_inexact:
            raise DerivativeError(
                f"{describe(path)} is {value.type}: only floats and complex numbers have derivatives. "
                "Cast it, or leave it out of the differentiated arguments",
                current_location(),
            )
        values.append(REGISTRY["alias"](value))
    return values, list(map(_like, leaves, values)), structure


def _like(leaf: Any, value: Value) -> Value:
    """Return a value with the operators of a leaf that the function gave or got: NumPy's, unless the leaf is a plain
    `Value`."""
    if leaf.__class__ is Value:
        return value
    if leaf.__class__ is Handle:
        return Handle(value)
    if leaf.__class__ is Array:
        return Array(value, leaf.weak if value.dtype is leaf.dtype else None)
    return Array(value, next((kind for kind in (int, float, complex) if type(leaf) is kind), None))


def _inside(path: tuple) -> str:
    """Return a leaf's path inside an argument as Python text: ["weights"][0]."""
    return "".join(f"[{json.dumps(key) if isinstance(key, str) else repr(key)}]" for key in path[1:])


def _value(leaf: Any, what: str) -> Value:
    """Return a leaf as a value: numbers and arrays become constants."""
    if isinstance(leaf, Value):
        return plain(leaf)  # type: ignore[no-any-return]
    if isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic):
        return constant(leaf, number_dtype(leaf))
    return captured(as_array(leaf, what))


def _seed(leaf: Any, type: TensorType, what: str) -> Value:
    """Return a tangent or cotangent for a value of `type`, checked and cast to it."""
    value = _value(leaf, what)
    if value.shape != type.shape:
        raise ShapeError(f"{what} has shape {list(value.shape)}, expected {list(type.shape)}", current_location())
    if value.dtype.is_complex and not type.dtype.is_complex:
        raise DTypeError(f"{what} is {value.dtype}, expected {type.dtype}", current_location())
    return value if value.dtype is type.dtype else REGISTRY["cast"](value, type.dtype)


def _name(function: Function) -> str:
    return getattr(function, "__name__", type(function).__name__)
