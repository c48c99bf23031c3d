"""Logins on the dashboard. PURE.

A session is a row, so that it is known to all dashboards of a store, outlasts their processes, and ends at the logout.
It is found by the digest of a random text that only the browser has.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Statements, reads, writes

# Expired sessions that one login deletes.
_OLD: Final = 100


class Session(msgspec.Struct, frozen=True, gc=False):
    """A session that has not expired.

    Attributes:
        name: of the user.
        account: the digest of the account at the login.
    """

    name: str
    account: str


@writes
def begin(digest: str, session: Session, *, lasts: timedelta, now: datetime | None = None) -> Statements[None]:
    """Store a session, found by a digest for some time."""
    at = yield from instant(now)
    yield Query("sessions_forget", {"now": at, "count": _OLD})
    row = {"digest": digest, "name": session.name, "account": session.account, "expires_at": at + lasts}
    yield Query("session_insert", row)


@reads
def find(digest: str, *, now: datetime | None = None) -> Statements[Session | None]:
    """Return the session of a digest; None if there is none, or it has expired."""
    rows = yield Query("session_get", {"digest": digest, "now": now}, into=Session)
    return rows[0] if rows else None


@writes
def end(digest: str) -> Statements[None]:
    """Delete a session, if there is one."""
    yield Query("session_delete", {"digest": digest})
