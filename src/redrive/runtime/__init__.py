"""The worker process and its background duties.

May import: `redrive.app` and below. Must never: decide. Every decision is made in `redrive.policy` or `redrive.engine`;
this layer calls handlers, waits, and carries values to and from the store. The architecture page lists the duties.
"""

from redrive.observe.logs import logger

# The log of the worker and its duties.
log = logger("redrive.worker")
