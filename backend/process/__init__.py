"""Services of the process for compiling: forks that wait, threads without signal handlers, room on Python's stack."""
