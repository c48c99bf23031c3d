"""The parts that differ between databases: the statements, and the representation of values in rows.

A dialect is a folder: ``queries/*.sql`` (one statement per file, with the name of the query), ``migrations/*.sql`` (in
order, ``pre`` or ``post`` the new code), ``schema.sql`` (for readers; a test proves it equal to the sum of the
migrations), and ``values.py`` (encodes parameters, decodes rows).

On PostgreSQL a session plans a statement once, perhaps while the tables are empty. So forms such as ``LATERAL (...
OFFSET 0)`` and ``coalesce(hold, '') = 'parked'`` leave the planner one way to the rows (ADR 0021).
"""
