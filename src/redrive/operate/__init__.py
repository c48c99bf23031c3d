"""The desk: the views and actions of operators, which the command line and the dashboard show. One noun, one module.

A view is a generator (`redrive.operate.exchange.Handler`) with a struct as its data. In the structs, ids are texts,
because a browser cannot hold 64 bits, instants are aware, and spans are seconds.

May import: everything below it. Must never: import a web framework, a template engine, or anything about terminals; a
view or an action is a struct, whatever shows it.
"""
