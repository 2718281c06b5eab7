"""`python -m smelt`: the same as the `smelt` command."""

from __future__ import annotations

import sys

from .tools.main import main

if __name__ == "__main__":
    sys.exit(main())
