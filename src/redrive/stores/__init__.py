"""Durable state: how a job is kept, claimed, settled and found.

May import: `redrive.engine` and below. Must never: import a task's code, or decide what a failure means. The statements
of ``operations/leases.py`` stand in ``statements/leases.sql``: ``Query("claim", ...)`` runs the block ``claim`` there.
"""
