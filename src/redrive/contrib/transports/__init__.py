"""The source of `redrive.contrib.httpx` and `redrive.contrib.httpx2`, which have the same classes under two names.

Nothing here imports either of them: each of the two modules gives its package to `redrive.contrib.transports.package`,
and binds the transports to it.
"""
