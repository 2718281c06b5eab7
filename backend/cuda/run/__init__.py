"""Calls on a GPU: programs, device memory, launches."""
