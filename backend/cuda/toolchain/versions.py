"""Versions of the compilers that turn source into machine code: a part of the key of code."""

from __future__ import annotations

from functools import lru_cache

# The compilers' packages, by the names under which they are installed.
COMPILERS = ("numba-cuda", "numba", "llvmlite", "nvidia-nvvm", "nvidia-nvjitlink")


@lru_cache
def versions() -> dict[str, str]:
    """Return the compilers' versions. NVIDIA libraries not installed as packages are asked themselves."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str] = {}
    for name in COMPILERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            from cuda.bindings import nvjitlink, nvvm

            asked = {"nvidia-nvvm": nvvm.version, "nvidia-nvjitlink": nvjitlink.version}
            found[name] = str(asked[name]()) if name in asked else "none"
    return found
