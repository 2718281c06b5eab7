"""Copy a kernel with other buffer names and other lines of the user's code: kernel reuse."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Location
from ...kernels.loop.ir import Buffer, Kernel, Site
from ...kernels.loop.roles import Rewrite


class Renaming:
    """A map of buffer names and of the user's lines, applied to kernels."""

    def __init__(
        self,
        names: dict[str, str],
        starts: Sequence[tuple[str, str]],
        locations: dict[int, Location | None],
    ):
        self.names = names
        self.starts = starts  # prefixes of names of scratch and temporaries
        self.locations = locations
        self.buffers: dict[int, Buffer] = {}  # by identity: most are mentioned many times

    def kernel(self, kernel: Kernel, name: str) -> Kernel:
        sites = tuple(Site(site.op, self.location(site.location)) for site in kernel.sites)
        rewrite = Rewrite(memory=self.buffer, origin=self.location)
        return Kernel(name, tuple(map(self.buffer, kernel.buffers)), rewrite.all(kernel.body), sites)

    def location(self, location: Location | None) -> Location | None:
        return self.locations.get(id(location), location)

    def buffer(self, buffer: Buffer) -> Buffer:
        known = self.buffers.get(id(buffer))
        if known is None:
            known = Buffer(self.name(buffer.name), buffer.dtype, buffer.shape, buffer.role)
            self.buffers[id(buffer)] = known
        return known

    def name(self, name: str) -> str:
        known = self.names.get(name)
        if known is None:
            known = name
            for start, other in self.starts:
                if name.startswith(start):
                    known = other + name[len(start) :]
                    break
            self.names[name] = known
        return known
