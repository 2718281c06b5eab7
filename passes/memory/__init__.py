"""Live ranges of a kernel's buffers, places in the arena, results in place of parameters."""
