"""Durable state: how a job is kept, claimed, settled and found.

May import: `redrive.engine` and below. Must never: import a task's code, or decide what a failure means. A statement is
named by its file: ``Query("claim", ...)`` runs ``dialects/<dialect>/queries/claim.sql``.
"""
