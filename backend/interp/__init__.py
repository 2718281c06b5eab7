"""NumPy interpreters of both IRs: the reference of every test."""
