"""Native services of the process: thread pool, OpenMP threads, allocator, limits of the control group."""
