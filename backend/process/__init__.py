"""What compiling asks of the process: forks that wait, threads apart from signals, room on Python's stack."""
