"""The workloads: the input of all libraries. The same bytes, the same producer function, the same consumer."""
