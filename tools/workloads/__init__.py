"""The workloads of `smelt bench`, and the processes that measure them."""
