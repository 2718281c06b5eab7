"""The graph IR and its text."""
