"""The shape of the code base: which way imports point, who may import what, what is packaged."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "frontend": "smelt",
    "kernels": "smelt.kernels",
    "passes": "smelt.passes",
    "backend": "smelt.backend",
}
FOLDERS["tools"] = "smelt.tools"

# A module may import those of its own layer and of the layers before it.
LAYERS = (
    ("smelt.ir", "smelt.ops", "smelt.tensor", "smelt.numpy_calls", "smelt.promotion"),
    ("smelt.kernels",),
    ("smelt.passes",),
    ("smelt.backend",),
    ("smelt",),
    ("smelt.tools", "smelt.__main__"),
)

# The rooms of kernels, passes and backend, and the modules between them: each may import itself and those before it.
ROOMS = (
    "smelt.kernels.machine",
    "smelt.kernels.gemm",
    "smelt.kernels.sort",
    "smelt.kernels.gpu",
    "smelt.kernels.scalar",
    "smelt.kernels.loop",
    "smelt.passes.rewrite",
    "smelt.passes.registry",
    "smelt.passes.autodiff",
    "smelt.passes.fusion",
    "smelt.passes.graph",
    "smelt.passes.memory",
    "smelt.passes.loop",
    "smelt.passes.lower",
    "smelt.passes.pipelines",
    "smelt.passes.manager",
    "smelt.passes.stages",
    "smelt.backend.options",
    "smelt.backend.arrays",
    "smelt.backend.static_args",
    "smelt.backend.pytree",
    "smelt.backend.artifact",
    "smelt.backend.call_plan",
    "smelt.backend.process",
    "smelt.backend.store",
    "smelt.backend.report",
    "smelt.backend.stages",
    "smelt.backend.targets",
    "smelt.backend.compile",
    "smelt.backend.interp",
    "smelt.backend.cpu.abi",
    "smelt.backend.cpu.host",
    "smelt.backend.cpu.image",
    "smelt.backend.cpu.llvm",
    "smelt.backend.cpu.runtime",
    "smelt.backend.cpu.microkernels",
    "smelt.backend.cpu.codegen",
    "smelt.backend.cpu.call",
    "smelt.backend.cpu.build",
    "smelt.backend.cpu.kernels",
    "smelt.backend.cpu.compile",
    "smelt.backend.cuda.simulated",
    "smelt.backend.cuda.variant",
    "smelt.backend.cuda.codegen",
    "smelt.backend.cuda.program",
    "smelt.backend.cuda.build",
    "smelt.backend.cuda.toolchain",
    "smelt.backend.cuda.simulator",
    "smelt.backend.cuda.run",
    "smelt.backend.cuda.compile",
)
# Modules of one room that import each other, one of them inside a function. None joins them.
CYCLES: tuple[set[str], ...] = ()
MOST_LINES = 720  # of a file; one with more has two purposes

# Who may import a heavy dependency: modules, or packages and all in them. The workloads of `smelt bench` have to.
FENCES = {
    "sympy": ("smelt.ir.symbolic",),
    "llvmlite": ("smelt.backend.cpu", "smelt.backend.cuda"),
    "scipy": ("smelt.tools.ulp", "smelt.tools.workloads"),
    "numba": ("smelt.backend.cuda", "smelt.tools.workloads"),
    "cuda": ("smelt.backend.cuda",),
    "torch": ("smelt.torch", "smelt.tools.workloads", "smelt.tools.cuda"),
    "jax": ("smelt.tools.workloads",),
}


def module_name(path: Path) -> str:
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([FOLDERS[folder], *(part for part in rest if part != "__init__")])


def source_files() -> dict[str, Path]:
    return {module_name(path): path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))}


MODULES = source_files()


def imports(name: str) -> Iterator[tuple[str, int]]:
    """Every module that a module imports at run time, also inside functions, with the line."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending.extend(node.orelse)
            continue
        pending.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                # `from . import ops` names a module, `from .ops import exp` something inside of one.
                inner = f"{base}.{alias.name}"
                yield (inner if inner in MODULES else base, node.lineno)


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def layer(name: str) -> int:
    """The layer whose entry fits a module best."""
    fitting = [
        (len(entry), position) for position, layer in enumerate(LAYERS) for entry in layer if inside(name, entry)
    ]
    return max(fitting)[1]


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_one_way(name: str) -> None:
    wrong = [
        f"{MODULES[name].relative_to(ROOT)}:{line} imports {target}"
        for target, line in imports(name)
        if inside(target, "smelt") and layer(target) > layer(name)
    ]
    assert not wrong, "an import against the arrows of docs/architecture.md: " + "; ".join(wrong)


def room(name: str) -> str | None:
    """The entry of ROOMS that a module is in; None for an __init__.py that has rooms inside."""
    return next((entry for entry in ROOMS if inside(name, entry)), None)


@pytest.mark.parametrize(
    "name", [name for name in MODULES if name.split(".")[1:2] in (["kernels"], ["passes"], ["backend"])]
)
def test_rooms_are_in_order(name: str) -> None:
    """docs/architecture.md has the rooms in this order: no two of them import each other."""
    mine = room(name)
    assert mine is not None or MODULES[name].name == "__init__.py", f"{name} is in no room of ROOMS"
    wrong = [
        f"{MODULES[name].relative_to(ROOT)}:{line} imports {target}"
        for target, line in imports(name)
        if mine is not None and (other := room(target)) is not None and ROOMS.index(other) > ROOMS.index(mine)
    ]
    assert not wrong, f"{mine} comes before what it imports: " + "; ".join(wrong)


def test_import_cycles() -> None:
    after: dict[str, set[str]] = {
        name: {target for target, _ in imports(name) if target in MODULES and MODULES[target].name != "__init__.py"}
        for name in MODULES
    }
    for name in after:  # the transitive closure, a module at a time
        pending = list(after[name])
        while pending:
            for target in after[pending.pop()] - after[name]:
                after[name].add(target)
                pending.append(target)
    found = {frozenset(other for other in after[name] if name in after[other]) for name in after if name in after[name]}
    assert found == {frozenset(cycle) for cycle in CYCLES}


@pytest.mark.parametrize("name", MODULES)
def test_files_have_one_purpose(name: str) -> None:
    assert MODULES[name].read_text(encoding="utf-8").count("\n") <= MOST_LINES


@pytest.mark.parametrize("dependency", FENCES)
def test_fences(dependency: str) -> None:
    wrong = [
        f"{MODULES[name].relative_to(ROOT)}:{line}"
        for name in MODULES
        if not any(inside(name, place) for place in FENCES[dependency])
        for target, line in imports(name)
        if inside(target, dependency)
    ]
    assert not wrong, f"only {' and '.join(FENCES[dependency])} may import {dependency}: {', '.join(wrong)}"


def test_package_list_equals_the_folders() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert set(settings["packages"]) == found
    folders = {name: MODULES[name].parent.relative_to(ROOT).as_posix() for name in found}
    assert settings["package-dir"] == folders
    lonely = {path.parent for path in MODULES.values() if not (path.parent / "__init__.py").exists()}
    assert not lonely, "folders without __init__.py are not packaged"


def test_the_architecture_shows_every_room_by_its_own_words() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found, parents = {}, [""] * 4
    for indent, name, text in re.findall(
        r"^( *)(\w+)/ +(.+)$", page.split("## The tree")[1].split("```")[1], re.MULTILINE
    ):
        depth = len(indent) // 2
        parents[depth] = name
        found["/".join(parents[: depth + 1])] = text
    rooms = [path for path in MODULES.values() if path.name == "__init__.py"]
    wanted = {
        path.parent.relative_to(ROOT).as_posix(): (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
        for path in rooms
    }
    assert {name: found.get(name) for name in wanted} == wanted
    assert set(found) - set(wanted) == {"tests", "docs"}


def test_import_is_light() -> None:
    """`import smelt` is paid by every program that uses it: what is heavy loads when it is used."""
    script = f"import smelt, sys; print(*(name for name in {sorted(FENCES)} if name in sys.modules))"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []


def test_no_environment_switches() -> None:
    """Options travel down as CompileOptions. The terminal and the cache follow the platform's conventions; where the
    cache is, deployments have to say from outside: SMELT_CACHE_DIR, the only variable of smelt's own. Numba's switch
    to its simulator is looked at where Numba is not loaded."""
    wrong = [
        str(path.relative_to(ROOT))
        for name, path in MODULES.items()
        if name not in ("smelt.tools.terminal", "smelt.backend.store.cache", "smelt.backend.cuda.simulated")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    ]
    assert not wrong


@pytest.mark.parametrize("name", ["graph.cleanup", "graph.decompose", "lower.kernel_reuse", "manager"])
def test_any_module_of_passes_may_come_first(name: str) -> None:
    subprocess.run([sys.executable, "-c", f"import smelt.passes.{name}"], check=True, timeout=60)


INTERRUPTED = """
import importlib, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
try:
    import smelt.passes.manager
except KeyboardInterrupt:
    from smelt.passes.manager import PASSES, Pipeline
    from smelt.passes.pipelines import GRAPH
    print(Pipeline(GRAPH), *sorted(PASSES))
"""


@pytest.mark.parametrize(
    "name", ["smelt.passes.graph.decompose", "smelt.passes.fusion.fuse", "smelt.passes.loop.blocked_sum"]
)
def test_passes_are_all_there_after_an_interrupt(name: str) -> None:
    """Ctrl-C while passes are imported for the first time: the next compilation finds all of them."""
    from smelt.passes.manager import PASSES, Pipeline
    from smelt.passes.pipelines import GRAPH

    done = subprocess.run([sys.executable, "-c", INTERRUPTED, name], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [*str(Pipeline(GRAPH)).split(), *sorted(PASSES)], done.stderr


def test_the_builder_of_kernels_knows_no_groups() -> None:
    found = {target for target, _ in imports("smelt.passes.lower.builder")}
    assert not [target for target in found if inside(target, "smelt.passes") or inside(target, "smelt.ops")]
