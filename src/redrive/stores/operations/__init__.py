"""Store operations: each one written once, without colour, without a database. PURE.

Every function here is a generator of `redrive.stores.query.Query` made into an `Operation`. It may ask the engine what
to decide; it may not know which database answers. Each operation is one transaction.

Every operation that writes a time begins with the query ``clock``: the database's instant in production, the injected
one in tests (ADR 0001). All statements of the transaction use that one instant.
"""
