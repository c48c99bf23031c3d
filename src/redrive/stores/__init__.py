"""Durable state.

Answers: how is a job kept, claimed, settled, found? May import: `redrive.engine` and below. Must never: know a task's
code, or decide what a failure means.

* `query`: the vocabulary: a `Query` is a named statement with parameters, an `Operation` a generator of them;
* `operations`: each store operation, written once, without colour and without a database (PURE);
* `dialects`: the statements, one per file, the same names in every dialect, and how values look in rows;
* `drivers`: the libraries that talk to databases: they run an operation in one transaction and translate errors;
* `migrate`: brings a database to the schema of this version;
* `store`: the interface of a store, and `opening`: opens one by its URL.

A statement is named by its file: ``Query("claim", ...)`` runs ``dialects/<dialect>/queries/claim.sql``.
"""
