"""The statements of the store in both dialects, a file for each module of ``stores/operations``; see `loader`.

On PostgreSQL a session plans a statement once, perhaps while the tables are empty. So forms such as ``LATERAL (...
OFFSET 0)`` and ``coalesce(hold, '') = 'parked'`` leave the planner one way to the rows (ADR 0021).
"""
