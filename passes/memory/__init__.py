"""When a kernel needs each of its buffers, places in the arena, results in place of parameters."""
