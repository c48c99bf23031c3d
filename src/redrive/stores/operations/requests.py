"""Requests of programs that carry a key of their own, so that a repeated one is not carried out again. PURE.

The key is stored before the request is carried out, and its answer afterwards. If the process dies between them, a
repeated request is refused, because it is unknown whether the first one had an effect.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Statements, writes

#: How long a key is kept.
KEPT: Final = timedelta(days=1)

# Old keys that one request deletes.
_OLD: Final = 100


class StoredRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that came before.

    Attributes:
        digest: of its content.
        answer: None if it has not ended, or its process died.
    """

    digest: str
    answer: bytes | None = None


@writes
def begin(actor: str, key: str, digest: str, *, now: datetime | None = None) -> Statements[StoredRequest | None]:
    """Store the key of a request; return the request of the same actor that has it already, if there is one."""
    at = yield from instant(now)
    yield Query("requests_forget", {"before": at - KEPT, "count": _OLD})
    given = {"actor": actor, "key": key, "digest": digest, "now": at, "before": at - KEPT}
    if (yield Query("request_insert", given)):
        return None
    rows = yield Query("request_get", {"actor": actor, "key": key}, into=StoredRequest)
    # It may have been forgotten between the two statements.
    return rows[0] if rows else StoredRequest(digest)


@writes
def answered(actor: str, key: str, answer: bytes) -> Statements[None]:
    """Store the answer to a request."""
    yield Query("request_answer", {"actor": actor, "key": key, "answer": answer})


@writes
def forget(actor: str, key: str) -> Statements[None]:
    """Forget a request that was refused, so that it can be repeated."""
    yield Query("request_delete", {"actor": actor, "key": key})
