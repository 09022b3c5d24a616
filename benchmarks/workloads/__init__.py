"""The workloads: all libraries get the same bytes, the same producer function and the same consumer."""
