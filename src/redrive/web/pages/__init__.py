"""The pages: one noun, one module. Each page is a generator (`redrive.web.exchange.Handler`) with a struct as its data.

In the structs, ids are texts, because a browser cannot hold 64 bits, instants are aware, and spans are seconds.
"""
