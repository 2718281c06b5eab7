"""Counts: structural figures of a source tree, for comparing two commits and as upper bounds in a test.

make counts                   this tree
make counts ARGS=<directory>  another one, such as the work tree of an older commit
make counts ARGS="--list"     what is counted, too

constants    Names in capitals that a module binds to a number, or to an arithmetic expression of numbers, alone or in
             a tuple: in kernels, passes, backend and frontend. Not counted: kernels/machine.py, the definitions of
             ops (frontend/ops) and of scalars (kernels/scalar), names that share one `range`, and fields of records,
             which say what they bound. Numbers of other interfaces (ELF, Linux, NumPy) are counted.
cycles       Groups of modules that import each other, with all imports at run time, also those inside of functions.
native       Lines of code that write the native run time: backend/cpu/runtime/native_*.py, and *_text.py before. Blank
             lines, comments, docstrings and imports are none.
mutables     Names of modules that functions rebind (`global`), or whose values functions of the same module change:
             by item, by attribute, or by a method such as append, update or pop. Not counted: values of contexts
             (ContextVar), and those that `process.keep` returned.
kept         What `process.keep` and `Once` are given: the state of the process.
caches       Functions that remember results (lru_cache, cache).
statements   For each class of loop statements the files that name it.
cuda         Comparisons with the text "cuda".
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"frontend": "smelt", "kernels": "smelt.kernels", "passes": "smelt.passes", "backend": "smelt.backend"}
COUNTED = tuple(PACKAGES)
# Older trees have no folder for scalars.
DEFINITIONS = ("frontend/ops/", "kernels/scalar/", "kernels/machine.py")
OLD_SCALARS = {
    f"kernels/{name}.py" for name in ("philox", "special", "trigonometry", "vecmath", "basic", "complexmath")
}
CHANGING = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem", "popleft",
    "register", "remove", "reset", "set", "setdefault", "update",
}  # fmt: skip
CACHES = {"lru_cache", "cache"}
LISTED = {"ContextVar", "process.keep"}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="counts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="the source tree; this one if none is given")
    parser.add_argument("--list", action="store_true", help="what is counted, line by line")
    options = parser.parse_args()
    for name, found in count(options.root.resolve()).items():
        print(f"{name:11} {len(found)}")
        if options.list:
            print(*(f"    {item}" for item in found), sep="\n")
    return 0


def count(root: Path) -> dict[str, list[str]]:
    """Return the findings of each kind, one line each."""
    return {
        "constants": constants(root),
        "cycles": [" ".join(group) for group in cycles(root)],
        "native": native_lines(root),
        "mutables": mutables(root),
        "kept": kept(root),
        "caches": caches(root),
        "statements": [f"{name} {files}" for name, files in statement_files(root).items()],
        "cuda": cuda_tests(root),
    }


def sources(root: Path, *folders: str) -> Iterator[tuple[str, Path]]:
    """Yield Python files with their paths relative to the root."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root).as_posix(), path


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def bindings(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield names and values of a module's assignments, also those in tuples."""
    for statement in module.body:
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, value
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=True)
                yield from ((name.id, item) for name, item in pairs if isinstance(name, ast.Name))


def is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=number):
            return isinstance(number, (int, float)) and not isinstance(number, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=items):
            return bool(items) and all(map(is_number, items))
    return False


def constants(root: Path) -> list[str]:
    return [
        f"{name}: {constant}"
        for name, path in sources(root, *COUNTED)
        if not name.startswith(DEFINITIONS) and name not in OLD_SCALARS
        for constant, value in bindings(tree(path))
        if constant.isupper() and is_number(value)
    ]


def module_name(name: str) -> str:
    folder, *rest = name.removesuffix(".py").split("/")
    return ".".join([PACKAGES[folder], *(part for part in rest if part != "__init__")])


def imported(name: str, module: ast.Module, is_package: bool, modules: set[str]) -> set[str]:
    """Return the modules of the tree that a module imports at run time."""
    package = name if is_package else name.rpartition(".")[0]
    found: set[str] = set()
    pending: list[ast.AST] = [module]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending.extend(node.orelse)
            continue
        pending.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            found.update(inner if (inner := f"{base}.{alias.name}") in modules else base for alias in node.names)
    return found & modules


def cycles(root: Path) -> list[list[str]]:
    """Return groups of modules that import each other. An __init__.py is not counted: it stands for its room."""
    files = {module_name(name): path for name, path in sources(root, *COUNTED) if path.name != "__init__.py"}
    after = {name: imported(name, tree(path), False, set(files)) for name, path in files.items()}
    for name in after:  # transitive closure (Warshall)
        pending = list(after[name])
        while pending:
            for target in after[pending.pop()] - after[name]:
                after[name].add(target)
                pending.append(target)
    groups = {
        frozenset(other for other in after[name] if name in after[other]) for name in after if name in after[name]
    }
    return sorted(map(sorted, groups))


def native_lines(root: Path) -> list[str]:
    return [
        f"{name}:{number}"
        for name, path in sources(root, "backend/cpu")
        if (path.name.startswith("native_") and path.parent.name == "runtime")
        or (path.name.endswith("_text.py") and path.name != "compile_text.py")
        for number in code_lines(path)
    ]


def code_lines(path: Path) -> list[int]:
    """The lines of a file that are code."""
    without: set[int] = set()
    for node in ast.walk(tree(path)):
        spans: list[ast.stmt] = []
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            spans.append(node)
        elif isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            spans.append(node.body[0])
        for span in spans:
            without.update(range(span.lineno, (span.end_lineno or span.lineno) + 1))
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [at for at, line in lines if at not in without and line.strip() and not line.strip().startswith("#")]


def mutables(root: Path) -> list[str]:
    found: list[str] = []
    for name, path in sources(root, *COUNTED):
        module = tree(path)
        names = {bound for bound, value in bindings(module) if called_name(value) not in LISTED}
        changed: set[str] = set()
        for function in (node for node in ast.walk(module) if isinstance(node, (ast.FunctionDef, ast.Lambda))):
            own = {item.arg for item in ast.walk(function.args) if isinstance(item, ast.arg)}
            own |= {
                node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            for node in ast.walk(function):
                if isinstance(node, ast.Global):
                    changed.update(node.names)
                elif (owner := changed_name(node)) is not None and owner not in own:
                    changed.add(owner)
        found += [f"{name}: {item}" for item in sorted(changed & names)]
    return found


def called_name(value: ast.AST) -> str:
    """Return the name of the called function, or '' if the expression is not a call."""
    function = value.func if isinstance(value, ast.Call) else None
    function = function.value if isinstance(function, ast.Subscript) else function
    return ast.unparse(function) if function is not None else ""


def kept(root: Path) -> list[str]:
    return [
        f"{name}: {ast.unparse(node.args[0])}"
        for name, path in sources(root, *COUNTED)
        for node in ast.walk(tree(path))
        if called_name(node) in ("process.keep", "Once") and isinstance(node, ast.Call) and len(node.args) == 2
    ]


def changed_name(node: ast.AST) -> str | None:
    """Return the name whose value an expression mutates, or None."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            return name
        case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in CHANGING:
            return name
    return None


def caches(root: Path) -> list[str]:
    return [
        f"{name}: {node.name}"
        for name, path in sources(root, *COUNTED)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef)
        if any(
            isinstance(item, ast.Name) and item.id in CACHES for mark in node.decorator_list for item in ast.walk(mark)
        )
    ]


def statement_files(root: Path) -> dict[str, int]:
    """Return the number of files that name each loop statement: the subclasses of `Statement`."""
    ir = next(path for name in ("kernels/loop/ir.py", "kernels/loop_ir.py") if (path := root / name).exists())
    module = tree(ir)
    unions = [value for name, value in bindings(module) if name == "Statement"]  # older trees: a union, no base class
    classes = {node.id for union in unions for node in ast.walk(union) if isinstance(node, ast.Name)}
    for item in module.body:
        if isinstance(item, ast.ClassDef) and any(
            isinstance(base, ast.Name) and base.id == "Statement" for base in item.bases
        ):
            classes.add(item.name)
    named: dict[str, set[str]] = {name: set() for name in sorted(classes)}
    for name, path in sources(root, *COUNTED):
        for node in ast.walk(tree(path)):
            word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
            if word in named:
                named[word].add(name)
    return {name: len(files) for name, files in named.items()}


def cuda_tests(root: Path) -> list[str]:
    return [
        f"{name}:{node.lineno}"
        for name, path in sources(root, *COUNTED, "tools")
        if path.name != "counts.py"
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.Compare, ast.MatchValue))
        if any(isinstance(item, ast.Constant) and item.value == "cuda" for item in ast.walk(node))
    ]


if __name__ == "__main__":
    sys.exit(main())
