"""The CPU that kernels are planned for: one record of nominal figures for each instruction set.

Tiles, block sizes and thresholds read this record and never the host's own caches, so a program has the same bits on
any machine with the same instruction set (docs/decisions/0001-nominal-machine.md). backend/cpu/host.py says which
record the host plans with; `smelt doctor` prints it beside the detected figures.
"""

from __future__ import annotations

from ..ir.record import Record

# Bytes. Alignment of temporaries, large results, code and the scratch of each thread: a contract between kernels and
# all that allocates their memory, the same for every machine.
CACHE_LINE = 64


class Sharing(Record):
    """How work is cut for threads, independently of their number. Work is counted in additions of one element
    (kernels/loop/analysis.py has the costs). No measurement is recorded."""

    worth: int = 1 << 17  # work of a loop, at least, that awake threads share; below, it stays serial
    wake: int = 1 << 20  # work of a graph, at least, for which waking a thread pays
    run: tuple[int, int] = (1 << 15, 1 << 20)  # work of one run of iterations: the least, and the most
    runs: int = 64  # runs of one loop that are enough: runs are not shortened to get more
    iterations: int = 16  # iterations of a loop, at least, that threads share evenly
    reduction: int = 1 << 16  # elements reduced to one number, at most, without partial results for threads
    partials: int = 64  # partial results of a larger reduction, at most
    partial_elements: int = 4096  # elements of each, at least
    scan_chunk: int = 4096  # elements of a chunk of a line that is cut for threads
    scan_length: int = 16 * 4096  # elements of a line, at least, that is cut
    scan_lines: int = 16  # lines, at least, that are shared out uncut
    scan_beside: int = 64  # adjacent lines that are scanned together, as lanes of vectors
    updates: int = 1 << 15  # updated elements of a scatter, at least, that is shared out


class ScatterTiling(Record):
    """How updates are shared out: by rows, by tiles of rows into which updates are sorted, or by slices of the last
    dim. No measurement is recorded."""

    rows: int = 16  # rows, at least, that are shared out, one by one or in tiles
    row_bytes: int = 64  # bytes of a row, at least, for tiles: shorter ones are updated faster than they are sorted
    tiles: int = 32  # tiles, at least, if there are enough rows
    most_tiles: int = 1024
    chunk: int = 4096  # updates that are sorted at a time
    slice: int = 64  # elements of the last dim in one slice


class Compaction(Record):
    """How the places of true elements are collected: chunk by chunk of the mask, then tile by tile of the result, each
    of which looks at all chunks. No measurement is recorded."""

    chunk: int = 1 << 14  # elements of the mask in one chunk, at least
    chunks: int = 1024  # chunks of a mask of known size, at most
    tile: int = 1 << 14  # places in one tile


class Machine(Record):
    """The nominal CPU that kernels are planned for. Sizes are bytes.

    The caches are those of a common server core: 1 MB of L2, of which a kernel's scratch takes shares of a half to an
    eighth, so that it fits the 512 KB of a Zen 3, too. A preset that differs from its like has a measurement to show.
    """

    name: str
    vector_bits: int
    dot_types: frozenset[str] = frozenset()  # narrow element types with dot-product instructions that accumulate in f32
    line: int = 64
    page: int = 4 << 10
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 32 << 20
    streamed: int = 8 << 20  # of a result, at least, for non-temporal stores (1.4 times faster where memory bounds)
    streamed_shared: int = 64 << 10  # the same for memory that the caches of other cores hold; not measured
    sharing: Sharing = Sharing()
    scatter: ScatterTiling = ScatterTiling()
    compaction: Compaction = Compaction()

    @property
    def registers(self) -> int:
        """Vector registers that tiles use. AVX-512 and Arm have 32 for short vectors, too, but the vector width alone
        decides the tile, so that vectors of 256 bits give the same bits with and without AVX-512."""
        return 32 if self.vector_bits == 512 else 16

    @property
    def vector_bytes(self) -> int:
        return self.vector_bits // 8

    def with_vector_bits(self, bits: int | None) -> Machine:
        """Return the machine with vectors of another width, or itself. Narrow dot products need its full width."""
        if bits in (None, self.vector_bits):
            return self
        name = f"{self.name.partition('@')[0]}@{bits}"
        return self.but(name=name, vector_bits=bits, dot_types=frozenset())


PRESETS = {
    machine.name: machine
    for machine in (
        Machine("x86-64", 128),
        Machine("x86-64-v3", 256),
        Machine("x86-64-v4", 512),
        Machine("aarch64", 128),
    )
}
# The machine of passes and tools that are not told one.
DEFAULT = PRESETS["x86-64-v3"]


def machine(name: str) -> Machine:
    """Return the machine of a name: a preset, or one with vectors of another width, as "x86-64-v4@256"."""
    preset, _, bits = name.partition("@")
    found = PRESETS[preset]
    return found.with_vector_bits(int(bits)) if bits else found
