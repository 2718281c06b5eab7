"""The disk cache: what is found, what is not and why, and that no trouble with files reaches the user."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend import cache, sources
from smelt.backend.artifact import decode, encode
from smelt.backend.compile import compile_graph, graph_key
from smelt.backend.cpu import cached, target
from smelt.backend.cpu.target import Target, host
from smelt.backend.options import CompileOptions
from smelt.ir.errors import IndexRangeError
from smelt.ir.proofs import ceil_divide, maximum, minimum
from smelt.ir.symbolic import Dim, Symbol, evaluate
from smelt.tools.workloads.contenders import arrays_of, prepare
from smelt.tools.workloads.suite import all_workloads

WORKLOADS = all_workloads()
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache directory of its own, and none behind it."""
    place = tmp_path / "cache"
    smelt.set_cache_dir(place)
    yield place
    smelt.set_cache_dir(None)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def entry_of(folder: Path, name: str) -> Path:
    """The entry of a function."""
    (found,) = [
        path for path in files(folder) if (cache.read_header(str(path)) or {"title": ""})["title"][: len(name)] == name
    ]
    return found


def fresh(folder: Path) -> None:
    """As a new process: nothing in memory."""
    smelt.set_cache_dir(folder)


def wave(x: Any, y: Any) -> Any:
    return ops.softmax(ops.sin(x) * y + 0.25, 1), x.sum()


def state_of(program: Any) -> str:
    return program.report().cache.state


def call(function: Any = wave, **settings: Any) -> Any:
    """A new jit of a function, called once."""
    program = smelt.jit(function, **settings)
    program.results = program(X, X)
    return program


# ----- hits


def test_what_was_compiled_is_found_again(folder: Path) -> None:
    first = call()
    assert state_of(first) == "missed"
    again = call()
    assert state_of(again) == "hit" and again.report().cache.detail == str(entry_of(folder, "wave"))
    for left, right in zip(first.results, again.results):
        assert left.tobytes() == right.tobytes()


PROGRAM = """
import json, sys
import numpy as np
import smelt
from smelt import ops

@smelt.jit
def layer(x, y):
    return ops.gelu(ops.layer_norm(x + y, (32,))) @ y.T

x = np.random.default_rng(0).standard_normal((64, 32)).astype("float32")
result = layer(x, x)
heavy = [name for name in ("smelt.passes.fuse", "smelt.kernels.loop_ir", "smelt.kernels.scalar", "sympy", "scipy",
                           "smelt.backend.cpu.engine", "smelt.backend.cpu.link", "llvmlite.binding",
                           "smelt.backend.cpu.gemm", "smelt.backend.cpu.writer", "smelt.backend.cpu.entry_text")
         if name in sys.modules]
print(json.dumps({"heavy": heavy, "bits": result.tobytes().hex(),
                  "state": layer.report().cache.state, "stages": list(layer.report().milliseconds)}))
"""


def run(code: str, *, environment: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_a_new_process_compiles_nothing_and_loads_little(tmp_path: Path) -> None:
    environment = {**os.environ, cache.VARIABLE: str(tmp_path)}
    first, second = (json.loads(run(PROGRAM, environment=environment).stdout) for _ in range(2))
    assert first["state"] == "missed" and "llvm" in first["stages"]
    assert second["state"] == "hit" and second["stages"] == ["key", "look up", "link", "matrix products"]
    assert "smelt.backend.cpu.engine" in first["heavy"]
    assert second["heavy"] == [], "the run time, too, comes from the cache"
    assert second["bits"] == first["bits"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_from_the_cache(folder: Path, name: str) -> None:
    inputs = WORKLOADS[name].make_inputs("tiny")
    threads = smelt.get_num_threads()
    found = []
    for expected in ("missed", "hit"):
        fresh(folder)
        # The seed is part of what a workload with random numbers computes.
        smelt.manual_seed(0)
        ready = prepare("smelt", WORKLOADS[name], inputs, threads)
        found.append(arrays_of(ready.call()))
        assert state_of(ready.call.func) == expected  # type: ignore[attr-defined]
    for left, right in zip(*found, strict=True):
        assert left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def rows(x: Any) -> Any:
    """Scratch, temporaries and results whose sizes are formulas."""
    wide = ops.cat([x, x * 2], 1)
    return ops.softmax(wide, 1) @ wide.mT, x.flatten() + 1, x


def test_symbolic_sizes_from_the_cache(folder: Path) -> None:
    def results() -> tuple[Any, list[np.ndarray]]:
        fresh(folder)
        program = smelt.jit(rows)
        arrays = [np.arange(n * m, dtype=np.float32).reshape(n, m) / 7 for n, m in ((3, 4), (5, 6), (17, 9))]
        return program, [item for array in arrays for item in program(array)]

    compiled, expected = results()
    found, actual = results()
    assert compiled.compiles == found.compiles == 2
    assert state_of(compiled) == "missed" and state_of(found) == "hit"
    for left, right in zip(expected, actual, strict=True):
        assert left.shape == right.shape and left.tobytes() == right.tobytes()


N, M = Symbol("N", 2).expr(), Symbol("M", 1).expr()
FORMULAS: list[Dim] = [
    0,
    7,
    N,
    3 * N * M + N - 2,
    ceil_divide(N * 4, 64) * 64,
    (N + M) % 5,
    maximum(N, M) + minimum(N, 8),
]


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_formulas_survive(formula: Dim) -> None:
    again = decode(json.loads(json.dumps(encode(formula))))
    assert str(again) == str(formula)
    for sizes in ({"N": 2, "M": 1}, {"N": 33, "M": 7}):
        assert evaluate(again, sizes) == evaluate(formula, sizes)


def test_errors_name_the_line_at_hand(folder: Path) -> None:
    def pick(x: Any, a: Any, b: Any) -> Any:
        return ops.index_select(x, 1, a), ops.cross_entropy(x, b)

    smelt.jit(pick)(X, np.array([0, 1]), np.array([0, 1, 2]))
    fresh(folder)

    def pick(x: Any, a: Any, b: Any) -> Any:  # type: ignore[no-redef]
        chosen = ops.index_select(x, 1, a)
        # The same graph, on other lines.
        loss = ops.cross_entropy(x, b)
        return chosen, loss

    again = smelt.jit(pick)
    again(X, np.array([0, 1]), np.array([0, 1, 2]))
    assert state_of(again) == "hit"
    for op, line, a, b in (("index_select", 1, [0, 7], [0, 1, 2]), ("cross_entropy", 3, [0, 1], [0, 9, 2])):
        with pytest.raises(IndexRangeError) as caught:
            again(X, np.array(a), np.array(b))
        location = caught.value.location
        assert location is not None and location.line == pick.__code__.co_firstlineno + line
        assert f"{op}: index" in str(caught.value)


def test_where_a_graph_was_traced_and_what_was_traced_before_does_not_matter(folder: Path) -> None:
    def name_of(shift: int) -> str:
        for _ in range(shift):
            smelt.jit(wave).trace(X, X)
        key, _ = graph_key(smelt.jit(wave).trace(X, X), CompileOptions())
        assert key is not None
        return key.name

    assert name_of(0) == name_of(3)


def test_different_programs_have_different_keys() -> None:
    def name_of(function: Any, array: np.ndarray = X, **options: Any) -> str:
        key, _ = graph_key(smelt.jit(function).trace(array), CompileOptions(**options))
        assert key is not None
        return key.name

    names = [
        name_of(lambda x: x + 1),
        name_of(lambda x: x + 2),
        name_of(lambda x: x * 0.0),
        name_of(lambda x: x * -0.0),
        name_of(lambda x: x + 1, X.astype(np.float64)),
        name_of(lambda x: x + 1, X[:2]),
        name_of(lambda x: x + 1, vector_bits=128),
        name_of(lambda x: x + 1, max_cost=3),
    ]
    assert len(set(names)) == len(names)


# ----- misses, and what they say


def missed(folder: Path, **settings: Any) -> str:
    fresh(folder)
    found = call(**settings).report().cache
    assert found.state == "missed"
    return found.detail


def test_a_miss_names_the_field(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missed(folder).startswith("program: ")
    text = missed(folder, options=CompileOptions(max_cost=7))
    assert text == "options: max_cost is 7, the entry has 1024"
    with monkeypatch.context() as patch:
        patch.setattr(host(), "instructions", [*host().instructions, "sse9"])
        assert missed(folder) == "isa: only this machine has sse9"
    with monkeypatch.context() as patch:
        patch.setattr(host(), "llvm", "99.1")
        assert missed(folder).startswith("llvm: llvm is 99.1, the entry has ")
    with monkeypatch.context() as patch:
        patch.setattr(cached, "fingerprint", lambda folder: "0" * 64)
        assert missed(folder).startswith("smelt: ")
    fresh(folder)
    assert state_of(call()) == "hit"


def test_tuning_is_no_part_of_the_key() -> None:
    one = Target("x86_64-linux", "znver3", "+avx2,+fma,-sse9,+rtm", "22.1")
    other = Target("x86_64-linux", "raptorlake", "+fma,+avx2,+pku", "22.1")
    assert one.instructions == other.instructions == ["avx2", "fma"]


def test_the_report_as_text_and_json(folder: Path) -> None:
    program = call()
    assert "cache: missed: program" in str(program.report())
    fresh(folder)
    report = call().report()
    read = json.loads(report.json())
    assert f"cache: hit: {read['cache']['detail']}" in str(report)
    assert read["cache"]["state"] == "hit" and set(read["milliseconds"]) == {"key", "look up", "link"}
    assert read["kernels"] == json.loads(program.report().json())["kernels"]


def test_threads_of_a_kernel() -> None:
    program = smelt.jit(lambda x: ops.sin(x) * 2)
    program(np.ones((1024, 1024), np.float32))
    program_small = smelt.jit(lambda x: x + 1)
    program_small(np.ones(8, np.float32))
    with smelt.threads(2):
        (large,), (small,) = program.report().kernels, program_small.report().kernels
        assert large.pieces > 2 and large.threads == 2 and "2 threads" in str(large)
        assert small.pieces == small.threads == 1
    with smelt.threads(1):
        assert program.report().kernels[0].threads == 1


def test_off() -> None:
    smelt.set_cache_dir(None)
    assert smelt.get_cache_dir() is None
    assert str(call().report().cache) == str(call().report().cache) == "off"


@pytest.mark.parametrize(
    "options", [CompileOptions(verify=True), CompileOptions(annotate=True)], ids=["verify", "annotate"]
)
def test_who_asks_for_the_stages_gets_them(folder: Path, options: CompileOptions) -> None:
    call()
    program = call(options=options)
    assert state_of(program) == "off" and "graph passes" in program.report().milliseconds
    seen: list[str] = []
    compile_graph(smelt.jit(wave).trace(X, X), CompileOptions(), lambda stage, thing: seen.append(stage))
    assert "loops" in seen


def test_smelt_edited_while_it_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call()
    before = files(folder)
    monkeypatch.setattr(sources, "LOADED", 0.0)
    call(lambda x, y: x - y)
    assert files(folder) == before, "what a changed smelt compiled belongs to no key"
    sources.fingerprint.cache_clear()
    try:
        assert call().report().cache.detail == "smelt's own files were changed since it was imported"
    finally:
        sources.fingerprint.cache_clear()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """smelt as it is installed: all parts inside of one package."""
    root = Path(__file__).resolve().parent.parent
    place = tmp_path / "site"
    copy(root / "frontend", place / "smelt")
    for part in ("kernels", "passes", "backend"):
        copy(root / part, place / "smelt" / part)
    return place


def fingerprint_of(place: Path, memory: Path | None = None) -> list[str]:
    """Whether a process that looks for smelt there finds it there, and the hash of its files."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import smelt; from smelt.backend import sources;"
        "sources.SETTLED_SECONDS = 0;"
        "print(smelt.__file__.startswith(sys.argv[1]), sources.fingerprint(sys.argv[2] or None))"
    )
    command = [sys.executable, "-c", script, str(place), str(memory or "")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_the_fingerprint_is_that_of_the_sources(tmp_path: Path, installed: Path) -> None:
    """A changed file changes it, another place does not."""
    here = fingerprint_of(tmp_path)
    assert fingerprint_of(installed) == ["True", here[1]] and here[0] == "False"
    with open(installed / "smelt" / "passes" / "fuse.py", "a") as file:
        file.write("# another smelt\n")
    assert fingerprint_of(installed)[1] != here[1]


@pytest.mark.skipif(os.name != "posix", reason="no time of a file's last change")
def test_the_fingerprint_is_remembered_as_long_as_it_is_true(tmp_path: Path, installed: Path) -> None:
    memory = tmp_path / "memory"
    assert fingerprint_of(installed, memory)[1] == fingerprint_of(installed)[1], "no folder is made"
    assert not memory.exists()
    memory.mkdir()
    true = fingerprint_of(installed, memory)[1]
    (file,) = memory.iterdir()
    false = "0" * len(true)
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in (true, false)]
    file.write_text(file.read_text().replace(true, false).replace(*hashes))
    assert fingerprint_of(installed, memory)[1] == false, "the files were not read again"
    # A change that leaves the size and the time of the content as they were.
    source = installed / "smelt" / "passes" / "fuse.py"
    before = source.stat()
    source.write_bytes(source.read_bytes().replace(b"def fuse(", b"def fus3("))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_size == before.st_size and source.stat().st_mtime_ns == before.st_mtime_ns
    changed = fingerprint_of(installed, memory)[1]
    assert changed not in (true, false) and changed == fingerprint_of(installed)[1]
    for damage in ("", "nonsense", file.read_text()[:-1]):
        file.write_text(damage)
        assert fingerprint_of(installed, memory)[1] == changed


@pytest.mark.skipif(not os.path.exists("/proc/cpuinfo"), reason="nobody describes the processor")
def test_the_machine_is_remembered_as_long_as_it_is_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    ask_llvm = target.ask_llvm
    monkeypatch.setattr(target, "ask_llvm", lambda: asked.append(ask_llvm()) or asked[-1])

    def look() -> list[str]:
        found = host.__wrapped__()
        return [found.triple, found.cpu, found.features, found.llvm]

    true = list(ask_llvm())
    assert [look(), look()] == [true, true] and len(asked) == 1
    (file,) = folder.glob("machine-*")
    for damage in ("", "nonsense", file.read_text()[:-1], file.read_text().replace("+", "-")):
        file.write_text(damage)
        assert look() == true
        assert look() == true
    assert len(asked) == 5
    monkeypatch.setattr(target, "DECISIVE", {"flags", "Features"})
    assert look() == true and len(asked) == 6, "what is known of another processor does not count"


def test_files_whose_times_say_little_are_read(tmp_path: Path) -> None:
    """Images of file systems that always come out the same have whole seconds; what was just written may change."""
    path = tmp_path / "file.py"
    path.write_text("")

    def facts(changed: int) -> Any:
        numbers = list(path.stat())
        return os.stat_result(numbers, {"st_mtime_ns": changed, "st_ctime_ns": changed})

    old = 1_600_000_000_123_456_789
    known = sources._facts([("file.py", str(path), facts(old))])
    assert (known is None) == (os.name != "posix")
    if known is not None:
        assert known != sources._facts([("file.py", str(path), facts(old + 1))])
    for changed in (1_600_000_000_000_000_000, time.time_ns()):
        assert sources._facts([("file.py", str(path), facts(changed))]) is None


def copy(source: Path, target: Path) -> None:
    for path in source.rglob("*.py"):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())


# ----- files that are not what they should be


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)


def foreign(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + b"\n\0" * 50)


def senseless(path: Path) -> None:
    """A whole entry of the right key, of which nothing can be made."""
    header = cache.read_header(str(path))
    assert header is not None
    key = cache.Key(header["title"], header["program"], header["fields"])
    cache.write_entry(str(path), key, {"stored": "nonsense"}, b"")


def swapped(path: Path) -> None:
    """The entry of another program under this name."""
    key = cache.Key("other", "0" * 64, {})
    cache.write_entry(str(path), key, {}, b"code")


@pytest.mark.parametrize("damage", [cut, empty, flip, foreign, senseless, swapped], ids=lambda item: item.__name__)
def test_damaged_entries_are_ignored_noted_and_replaced(folder: Path, damage: Any) -> None:
    expected = call().results
    path = entry_of(folder, "wave")
    good = path.read_bytes()
    damage(path)
    fresh(folder)
    program = call()
    found = program.report().cache
    assert found.state == "missed"
    (note,) = found.notes
    assert note.startswith(f"{path} ignored: ") and note in str(program.report())
    np.testing.assert_array_equal(program.results[0], expected[0])
    assert path.read_bytes() == good
    fresh(folder)
    assert state_of(call()) == "hit"


def test_a_directory_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    smelt.set_cache_dir(tmp_path / "file" / "cache")
    try:
        with pytest.warns(RuntimeWarning, match="cannot keep compiled code") as caught:
            first = call()
            call(lambda x, y: x - y)
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = call()
        assert "memory" in again.report().cache.detail
        np.testing.assert_array_equal(first.results[0], again.results[0])
    finally:
        smelt.set_cache_dir(None)


def test_no_room_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        call()
    assert files(folder) == []


def test_the_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.default_directory() == str(tmp_path / ".cache" / "smelt")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.default_directory() == str(tmp_path / ".cache" / "smelt")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache.default_directory() == "/xdg/smelt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.default_directory() == str(tmp_path / "Library" / "Caches" / "smelt")
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    assert cache.default_directory() is None


def test_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def directories(text: str) -> tuple[str | None, tuple[str, ...]]:
        monkeypatch.setenv(cache.VARIABLE, text)
        found = cache.from_environment()
        return found.directory, found.baked

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert directories("") == ("/xdg/smelt", ())
    assert directories("off") == (None, ())
    assert directories(os.pathsep.join(["/a", "/b", "", "/c"])) == ("/a", ("/b", "/c"))
    assert directories(f"off{os.pathsep}/b") == (None, ("/b",))
    assert directories(f"{os.pathsep}/b") == ("/xdg/smelt", ("/b",))


def test_no_home_at_all(tmp_path: Path) -> None:
    home = tmp_path / "missing"
    done = run(PROGRAM, environment={"HOME": str(home)}, cwd=tmp_path)
    assert json.loads(done.stdout)["state"] == "off"
    assert done.stderr.count("RuntimeWarning") == 1 and "no home directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_wrong_limits() -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        smelt.set_cache_dir("/tmp", limit=-1)


# ----- directories that are only read


def test_baked_directories_are_read_and_left_alone(folder: Path, tmp_path: Path) -> None:
    call()
    before = {path: path.stat().st_mtime_ns for path in files(folder)}
    other = tmp_path / "other"
    for place in (None, other):
        smelt.set_cache_dir(place, baked=[folder])
        assert call().report().cache.detail == str(entry_of(folder, "wave"))
    call(lambda x, y: x - y)
    assert [cache.read_header(str(path))["title"][:6] for path in files(other)] == ["lambda"]  # type: ignore[index]
    smelt.set_cache_dir(None, baked=[folder])
    assert state_of(call(lambda x, y: x - y * 2)) == "missed"
    assert {path: path.stat().st_mtime_ns for path in files(folder)} == before


# ----- size


def test_what_was_not_used_for_longest_goes_first(folder: Path) -> None:
    store = cache.Cache(str(folder), limit=12_000)
    # Names for which storing does not look at the size.
    keys = [cache.Key(f"f{number}", f"{number:02x}{'f' * 62}", {}) for number in range(11)]
    for number, key in enumerate(keys[:8]):
        store.store(key, {}, bytes(1000))
        past = time.time() - 10_000 * (number + 1)
        os.utime(str(store.path(key)), (past, past))
    assert store.sweep() == 0
    assert store.find(keys[7], lambda about, code: len(code))[0] == 1000  # the oldest, used again just now
    for key in keys[8:]:
        store.store(key, {}, bytes(1000))
    abandoned = Path(str(store.path(keys[0]))).with_suffix(".1-1.tmp")
    abandoned.write_bytes(b"half")
    os.utime(abandoned, (1, 1))
    assert store.sweep() > 0
    left = {entry.name[:2] for entry in cache.entries(str(folder))}
    assert sum(entry.size for entry in cache.entries(str(folder))) <= 10_800
    assert "07" in left and "00" in left and "06" not in left
    assert not abandoned.exists()


def test_storing_keeps_the_limit(folder: Path) -> None:
    store = cache.Cache(str(folder), limit=50_000)
    for number in range(300):
        digits = f"{number * 2654435761 % 2**32:08x}"
        store.store(cache.Key("f", digits * 8, {}), {}, bytes(1000))
    total = sum(entry.size for entry in cache.entries(str(folder)))
    assert total <= 50_000 + 2 * cache.SWEEP_ONE_IN * 1200


# ----- many processes


CROWD = """
import sys
import numpy as np
import smelt
x = np.arange(12, dtype="float32")
for number in range(8):
    assert smelt.jit(lambda x: x * number + 1)(x)[1] == number + 1
"""


def test_many_processes_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, cache.VARIABLE: str(tmp_path)}
    crowd = [subprocess.Popen([sys.executable, "-W", "error", "-c", CROWD], env=environment) for _ in range(4)]
    assert [process.wait() for process in crowd] == [0] * 4
    found = [path for path in files(tmp_path) if path.suffix == cache.SUFFIX]
    assert len(found) == 9  # and the run time
    for path in found:
        cache.read_entry(str(path))


# ----- the commands

MODULE = """
import os
import smelt
from smelt import ops

def layer(x, w):
    return ops.relu(x @ w)

layer.example_args = ["f32[6, 8]", "f32[8, 4]"]

@smelt.jit(static_argnames="axis", options=smelt.CompileOptions(max_cost=9))
def norm(x, scale, axis):
    return ops.softmax(x, axis) * scale

def moody(x):
    return x * os.getpid()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODULE)
    return tmp_path


def command(project: Path, *words: str, code: int = 0, place: str | None = None) -> str:
    environment = {**os.environ, cache.VARIABLE: place or str(project / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "smelt.tools.main", *words], cwd=project, env=environment, capture_output=True, text=True
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stderr if code else done.stdout


def test_bake_and_look(project: Path) -> None:
    shown = command(project, "bake", "model.py:layer", "--verify")
    assert "layer(x: f32[6, 8], w: f32[8, 4])" in shown and "hit:" in shown
    assert "found in" in command(project, "bake", "model.py:layer")
    assert "hit:" in command(project, "cache", "why", "model.py:layer")
    listed = json.loads(command(project, "cache", "list", "--json"))
    assert {item["usable"] for item in listed} == {"yes"} and len(listed) == 3
    text = command(project, "cache")
    for part in ("layer(x: f32[6, 8]", "the run time", "matrix products of f32", "3 entries"):
        assert part in text
    assert command(project, "cache", "dir").strip() == str(project / "cache")
    assert "3 entries, all intact" in command(project, "cache", "verify")
    flip(entry_of(project / "cache", "layer"))
    assert "1 of 3 entries are damaged" in command(project, "cache", "verify", code=1)
    assert "checksum" in command(project, "cache", "why", "model.py:layer", code=1)
    assert "3 entries removed" in command(project, "cache", "clear")
    assert "0 entries" in command(project, "cache")


def test_why_not(project: Path) -> None:
    assert "program" in command(project, "cache", "why", "model.py:layer", code=1)
    command(project, "bake", "model.py:layer")
    said = command(project, "cache", "why", "model.py:layer", "--args", "f32[7, 8]", "f32[8, 4]", code=1)
    assert "there is layer(x: f32[6, 8], w: f32[8, 4])" in said
    assert "the cache is off" in command(project, "cache", code=1, place="off")
    assert "the cache is off" in command(project, "bake", "model.py:layer", code=1, place="off")


def test_what_is_baked_is_what_a_program_runs(project: Path) -> None:
    """With the options and static arguments that jit was given."""
    command(project, "bake", "model.py:norm", "--args", "f32[6, 8]", "2.5", "-1", "--dir", "baked", "--verify")
    program = """
import numpy as np, model
model.norm(np.ones((6, 8), np.float32), 2.5, axis=-1)
print(model.norm.report().cache.state)
"""
    environment = {**os.environ, cache.VARIABLE: f"off{os.pathsep}{project / 'baked'}", "PYTHONPATH": str(project)}
    assert run(program, environment=environment, cwd=project).stdout.strip() == "hit"


def test_bake_fails_where_a_fresh_process_would_compile(project: Path) -> None:
    said = command(project, "bake", "model.py:moody", "--args", "f32[4]", "--verify", code=1)
    assert "a fresh process does not find the code" in said and "program" in said
    (project / "cache.txt").write_text("")
    assert "could not be kept" in command(project, "bake", "model.py:layer", "--dir", "cache.txt", code=1)
