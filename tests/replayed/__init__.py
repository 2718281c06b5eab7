"""The programs of `make replay` and the record of their stages: run in each of two commits by tools/replay.py."""
