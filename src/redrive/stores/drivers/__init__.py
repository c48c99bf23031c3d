"""The libraries that talk to databases: each runs an operation in one transaction and translates errors.

Drivers do not know one another, and nothing else in redrive imports a database library.
"""
