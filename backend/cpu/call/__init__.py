"""One call of a compiled graph: guards of arguments, results, the native entry."""
