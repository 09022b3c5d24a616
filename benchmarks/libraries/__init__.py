"""How each library runs the workloads: a module a library, a function a workload, named after the workload.

Each uses the library as its documentation says is fastest; settings that depend on the machine are parameters, all of
which are tried. A function imports its library when it is called, and raises `harness.NotSupported` if the library
lacks what the workload needs. The consumer iterates over what the function returns, or calls it.
"""
