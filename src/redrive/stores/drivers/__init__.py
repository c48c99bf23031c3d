"""Stores by database library: each runs an operation in one transaction and translates the errors of its library.

Drivers do not import one another, except that Turso's is based on SQLite's. Nothing else in redrive imports a database
library.
"""
