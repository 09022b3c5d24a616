"""The tasks: what every way is given. The same bytes, the same producer function, the same consumer."""
