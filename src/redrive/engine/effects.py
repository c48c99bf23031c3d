"""The effects of a successful attempt: changes that commit with the end of the attempt, or not at all. PURE.

A handler adds effects while it runs. If the attempt fails, they are discarded with it; if it succeeds, they are part of
`redrive.engine.outcome.Succeeded`, and the store writes them in the transaction that settles the attempt.
"""

from __future__ import annotations

import msgspec


class Effect(msgspec.Struct, frozen=True, gc=False):
    """The base class of effects; `redrive.stores.operations.origins` writes each kind."""
