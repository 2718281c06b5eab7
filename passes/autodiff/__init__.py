"""Reverse and forward mode, as construction of graphs."""
