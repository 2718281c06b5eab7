"""The graph IR and its text."""

from . import printer  # noqa: F401  (gives graphs their text)
