"""How each library does the tasks: a module a library, a function a task, named after the workload.

Each uses the library as its documentation says is fastest; settings that depend on the machine are parameters, all of
which are tried. A function imports its library when it is called, and raises `measuring.NotOffered` for what the
library does not do. What it returns is what a consumer iterates over, or calls.
"""
