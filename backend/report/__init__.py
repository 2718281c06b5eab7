"""The receipt of a compilation: fusion, bytes, widths, threads, memory, seconds of each stage."""
