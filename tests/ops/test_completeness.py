"""Nothing is left out: kinds, derivatives, scalar rows, docstrings, samples."""

from __future__ import annotations

import pytest
from parity.gaps import INTERNAL, KNOWN_GAPS
from parity.runner import MODES, entry_of, tables
from smelt.ir.graph import Value
from smelt.ir.types import ANY, DType, TensorType, bool_
from smelt.kernels.scalar.table import BASE, COMBINERS, SCALARS, cuda_spelling, expansion, spelling
from smelt.ops.define import REGISTRY
from smelt.ops.kinds import Element, Elementwise, Generate, Kind, Reduce, Scan
from smelt.ops.opdef import OpDef
from smelt.passes.autodiff.vjp import rule_parameters
from support import ALL_BACKENDS, OWN_OPS

OPS = sorted(OWN_OPS)
PRIMITIVES = sorted(name for name, op in OWN_OPS.items() if not op.is_composite)
ELEMENTWISE = sorted(name for name in PRIMITIVES if isinstance(REGISTRY[name].kind, Elementwise))


def inexact_result(op: OpDef) -> bool:
    """Whether a result can have a derivative at all."""
    result = getattr(op.kind, "result", "same")
    return result not in ("bool", "i64")


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitive_has_a_kind_and_a_derivative_or_says_it_has_none(name: str) -> None:
    op = REGISTRY[name]
    assert isinstance(op.kind, Kind)
    if not op.differentiable or not op.tensors or not inexact_result(op):
        return
    if not any(item.is_inexact for item in op.dtypes):
        return
    assert op.vjp_rule is not None, f"{name}: no vjp rule; give one or say differentiable=False"
    derived = isinstance(op.kind, (Elementwise, Generate)) or op.kind.linear
    assert derived or op.jvp_rule is not None, f"{name}: a {op.kind.name} that is not linear needs a jvp rule"


@pytest.mark.parametrize("name", OPS)
def test_derivative_rules_name_what_there_is(name: str) -> None:
    """A rule's parameters are grad(s), result(s), the op's own, and in forward mode their tangents."""
    op = REGISTRY[name]
    common = {"grad", "grads", "result", "results", *op.by_name}
    tangents = {f"{parameter.name}_tangent" for parameter in op.tensors}
    for rule, known in ((op.vjp_rule, common), (op.jvp_rule, common | tangents)):
        if rule is not None:
            unknown = set(rule_parameters(rule)) - known
            assert not unknown, f"{name}: {rule.__name__} asks for {', '.join(sorted(unknown))}"


def reaching(op: OpDef) -> list[DType]:
    """The element types that reach the scalar op, after promotion, each as the type computed in."""
    found: dict[DType, None] = {}
    for dtype in op.dtypes:
        operands = [Value(TensorType(dtype, (2,))) for _ in op.tensors]
        if getattr(op.kind, "promote", "") == "where":
            operands[0] = Value(TensorType(bool_, (2,)))
        found.setdefault(op(*operands).op.operands[-1].dtype.compute)
    return list(found)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_primitive_has_a_scalar_op(name: str) -> None:
    op = REGISTRY[name]
    scalar = op.kind.scalar  # type: ignore[union-attr]
    assert scalar in SCALARS, f"{name}: kernels/scalar/table.py has no row {scalar!r}"
    row = SCALARS[scalar]
    assert row.arity == len(op.tensors), f"{name}: {scalar} takes {row.arity} operands, {name} has {len(op.tensors)}"
    assert callable(row.numpy)
    if scalar in BASE:
        return
    for dtype in reaching(op):
        known = spelling(row, dtype) or expansion(row, dtype)
        assert known, f"{name}: {scalar} has neither a spelling nor an expansion for {dtype}"
        known = cuda_spelling(row, dtype) or (row.complex_expansion if dtype.is_complex else row.expansion)
        assert known, f"{name}: {scalar} has neither a spelling for CUDA nor an expansion for {dtype}"


@pytest.mark.parametrize("name", PRIMITIVES)
def test_combiner_exists(name: str) -> None:
    kind = REGISTRY[name].kind
    if isinstance(kind, (Reduce, Scan)):
        assert kind.combiner in COMBINERS, f"{name}: kernels/scalar/table.py has no combiner {kind.combiner!r}"


@pytest.mark.parametrize("name", PRIMITIVES)
def test_element_kinds_have_an_element(name: str) -> None:
    kind = REGISTRY[name].kind
    if isinstance(kind, Element):
        assert callable(kind.element) and callable(kind.type)


@pytest.mark.parametrize("name", OPS)
def test_op_has_a_docstring_of_one_sentence_first(name: str) -> None:
    doc = REGISTRY[name].doc
    assert doc and doc.endswith("."), f"{name}: the docstring's first line should be a sentence: {doc!r}"


def test_every_op_has_samples() -> None:
    without = [name for name in OPS if name not in INTERNAL and entry_of(REGISTRY[name]) is None]
    assert not without, f"no samples in tests/parity/samples_*.py for: {', '.join(without)}"


def test_samples_are_of_ops_that_exist() -> None:
    unknown = sorted(set(tables()) - set(OWN_OPS))
    assert not unknown, f"samples for ops that are not defined: {', '.join(unknown)}"


def test_samples_cover_the_declared_types() -> None:
    """A primitive is sampled in every element type it accepts, or is not sampled by a table at all."""
    missing = []
    for name in ELEMENTWISE:
        if name in tables() and name not in INTERNAL:
            sampled = {dtype for _, dtype in tables()[name].cases()}
            lacking = [item.name for item in REGISTRY[name].dtypes if item.name not in sampled and item in ANY]
            if lacking:
                missing.append(f"{name} ({', '.join(lacking)})")
    assert not missing, f"element types without a sample: {'; '.join(missing)}"


def test_known_gaps_are_well_formed() -> None:
    for gap, reason in KNOWN_GAPS.items():
        name, mode, backend, _ = gap.split("/")
        assert name in REGISTRY and mode in MODES and backend in ALL_BACKENDS and reason, gap
