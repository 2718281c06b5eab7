"""The closed table of scalar ops, and the expansions of its rows."""
