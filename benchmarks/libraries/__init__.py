"""The code that runs the workloads: a module for each library, with a function for each workload, named after it.

Each function uses its library in the way that the library's documentation describes as the fastest. Settings that
depend on the machine are parameters; the benchmarks try several values. A function imports its library when it is
called, and raises `harness.NotSupported` if the library lacks a feature that the workload needs. It returns an iterator
over batches, or a callable.
"""
