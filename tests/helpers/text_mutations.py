"""Mutations of the texts of graphs and kernels, from a seed: what a program that writes such text may get wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import smelt
from golden import FOLDER
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from smelt.ir.graph import Graph, Value
from smelt.ir.printer import print_graph
from smelt.ir.types import TensorType
from smelt.kernels.loop.text import print_kernel
from support import OWN_OPS, flatten

TOKEN = re.compile(r'"[^"\n]*"|//[^\n]*|[%@#]?[\w.]+|>=|<=|\.\.|\s+|.', re.DOTALL)
VALUES = (
    "-1", "0", "1", "2", "3", "-2", "7", "1.5", "-0.5", "1e400", "inf", "-inf", "nan", "(1.0+2.0j)", "N",
    "99999999999999999999", "9223372036854775807", "-9223372036854775808", "true", "false", "none", '"text"', '""',
    "()", "(1, 2)", "(1)", "(0, 1, 2, 3)", "(1.5)", '("a")', "(none)", "(true)", "f32", "i32", "bool", "c64",
)  # fmt: skip
# What belongs somewhere else, or nowhere.
STRANGE = (
    "-1", "0", "1", "-2", "1.5", "-0.0", "1e400", "inf", "-inf", "nan", "(1.0+2.0j)", "99999999999999999999",
    "9223372036854775807", "-9223372036854775808", "true", "false", "none", '"text"', '"\\x"', "()", "(1, 2)", "((1))",
    "f32", "i32", "bool", "u8", "c64", "i64", "f16", "N", "M", "N + 1", "N // 0", "N % 0", "N // (N - N)", "min(N, 2)",
    "max(",
    "%x", "%0", "%undefined", "@name", "#c", "[", "]", "(", ")", "{", "}", ",", ":", ";", "=", "..", "*", "//", "-",
    "graph", "return", "where", "kernel", "store", "load", "yield", "parallel", "reduce", "site", "wrap", "as", "by",
    "f32[]", "f32[-2]", "f32[N, 0]", "f32[99999999999999999999]", "-inf:i32", "nan:i64", "300:u8", "1e40:f32", "2:bool",
    "[%x, %x]", "[none]", "[]", "0.5:f32", "1:i64", "dim = -9", "keepdim = 2", "dtype = 3", "size = (2.5)", 'dim = "a"',
    "\0", "\u00e9", "\u0661", "\ud800", "\t", "\n", "// x.py:3\n", "// x.py:99999999999999999999999\n", "1" * 5000,
    "(" * 3000,
)  # fmt: skip


def programs() -> list[tuple[Any, tuple[Any, ...]]]:
    """Functions whose texts have attributes of all kinds, and whose kernels have all statements."""
    x, v = np.ones((12, 16), np.float32), np.ones(16, np.float32)
    index, image = np.array([1, 0, 3]), np.ones((1, 2, 9, 9), np.float32)
    return [
        (lambda x: ops.softmax(ops.gelu(x, approximate="tanh"), 1).sum(0), (x,)),
        (lambda x, i: ops.index_add(x, 0, i, x[:3] * 2.5), (x, index)),
        (lambda x, i: (ops.gather(x, 0, i.reshape(1, 3)), ops.cumsum(x, 1), ops.flip(x, (0, 1))), (x, index)),
        (lambda x: ops.conv2d(x, x[:, :, :3, :3], padding=1), (image,)),
        (lambda x: ops.max_pool2d(x, (2, 2), (1, 2), 1), (image,)),
        (lambda x, v: ops.layer_norm(x @ x.T @ x, (16,), v, v), (x, v)),
        (lambda x: (ops.argmax(x, 1), ops.split(x, (2, 14), 1), ops.pad(x, (1, 2), value=0.5)), (x,)),
        (lambda x: ops.cat([x, ops.cast(x, smelt.i64), ops.full((2, 16), -3)], 0), (x,)),
        (lambda x: ops.permute(ops.reshape(x, (3, 4, 16)), (2, 0, 1)) + ops.arange(4), (x,)),
        (lambda x: ops.where(x > 0.25, ops.exp(x * 1j), -1), (x,)),
        (lambda x: ops.scaled_dot_product_attention(x, x, x, is_causal=True), (x.reshape(1, 12, 16),)),
    ]


@lru_cache
def graph_texts() -> tuple[str, ...]:
    """Valid graphs: those of the golden files, and some traced ones, with known and open sizes."""
    found = [
        part
        for file in sorted((FOLDER / "graph").glob("*.ir"))
        for section in file.read_text().split("// =====\n")
        if "// error:" not in section
        for part in section.split("// ----- expect\n")
    ]
    for function, arrays in programs():
        found.append(print_graph(smelt.jit(function).trace(*arrays)))
        try:
            types = [smelt.spec(f"{smelt.dtype(a.dtype)}[{', '.join(['N', *map(str, a.shape[1:])])}]") for a in arrays]
            found.append(print_graph(smelt.jit(function).trace(*types)))
        except smelt.SmeltError:
            pass  # it needs the size
    return (*found, *op_texts())


def op_texts() -> Iterator[str]:
    """Every op of the registry, on two of its samples: floats, strings and sizes where they belong."""
    from parity.runner import entry_of
    from parity.table import make

    for op in OWN_OPS.values():
        entry = entry_of(op)
        for sample in (entry.samples[0], entry.samples[-1]) if entry is not None and entry.samples else ():
            call = make(sample, (sample.dtypes or entry.dtypes)[0], op.name)
            params = [Value(TensorType(smelt.dtype(a.dtype), a.shape), name=f"x{i}") for i, a in enumerate(call.arrays)]
            args, kwargs = call.arguments(params, False)
            try:
                results = flatten(op(*args, **kwargs))
            except smelt.SmeltError:
                continue  # the sample is one of a refusal
            if all(isinstance(value, Value) for value in results):
                yield print_graph(Graph.build(op.name, params, results))


@lru_cache
def kernel_texts() -> tuple[str, ...]:
    """Valid kernels: those of the golden files, and those of some programs."""
    found = [
        "\n".join(re.findall(r"^kernel @.*?^}", part, re.MULTILINE | re.DOTALL)[:1])
        for file in sorted((FOLDER / "loops").glob("*"))
        for section in file.read_text().split("// =====\n")
        for part in section.split("// ----- expect\n")
    ]
    for function, arrays in programs():
        seen: dict[str, Any] = {}
        compile_graph(smelt.jit(function).trace(*arrays), CompileOptions(), seen.__setitem__)
        found += map(print_kernel, seen["loops"])
    return tuple(text for text in found if text)


def mutations(texts: tuple[str, ...], seed: int, count: int) -> Iterator[str]:
    """So many texts that are not quite those given."""
    choose = random.Random(seed)
    everything = [token for text in texts for token in TOKEN.findall(text) if not token.isspace()]
    for _ in range(count):
        text = choose.choice(texts)
        for _ in range(choose.choice((1, 1, 1, 2, 3))):
            text = _by_characters(text, choose) if choose.random() < 0.3 else _by_tokens(text, choose, everything)
        yield text


def _by_characters(text: str, choose: random.Random) -> str:
    at = choose.randrange(len(text) + 1)
    kind = choose.randrange(4)
    if kind == 0:
        return text[:at] + text[at + 1 :]
    if kind == 1:
        return text[:at] + choose.choice('0123456789-.,:;=%@#()[]{}<>"/\\*+ \n\0abcNxyf_é') + text[at:]
    if kind == 2:
        return text[:at]
    return text[:at] + chr((ord(text[at : at + 1] or " ") + choose.choice((-1, 1, 16))) % 0x500) + text[at + 1 :]


def _by_tokens(text: str, choose: random.Random, everything: list[str]) -> str:
    tokens = TOKEN.findall(text)
    solid = [at for at, token in enumerate(tokens) if not token.isspace()]
    if not solid:
        return choose.choice(everything)
    at, to = choose.choice(solid), choose.choice(solid)
    kind = choose.randrange(10)
    if kind == 0:
        del tokens[at]
    elif kind == 1:
        tokens.insert(at, tokens[to])
    elif kind == 2:
        tokens[at], tokens[to] = tokens[to], tokens[at]
    elif kind == 3:
        tokens[at] = choose.choice(everything)
    elif kind >= 7:  # a number or string, as attributes and sizes are
        values = [here for here in solid if tokens[here][0] in '"0123456789']
        tokens[choose.choice(values or solid)] = choose.choice(VALUES)
    elif kind == 4:  # another one of the same kind: numbers, names, marks
        alike = [token for token in everything if token[:1].isdigit() == tokens[at][:1].isdigit()]
        tokens[at] = choose.choice(alike)
    else:
        tokens[at] = choose.choice(STRANGE)
    return "".join(tokens)
