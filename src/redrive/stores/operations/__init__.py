"""Store operations, each written once for all databases and both colours. PURE.

Every function here is a generator of `redrive.stores.query.Query` made into an `Operation`. Each operation is one
transaction. It may import the engine; it does not depend on the database that runs it.

An operation that writes a time begins with the query ``clock``, and all statements of the transaction use that instant.
Its parameter ``now`` replaces the instant of the database in tests. Parameters named ``samples`` are random numbers in
[0, 1) for jitter.
"""
