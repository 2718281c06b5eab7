"""The loop IR: statements, text both ways, and what the verifier proves of them."""
