"""Translation of the errors of psycopg and asyncpg into errors of redrive."""

from __future__ import annotations

import os
import socket

from redrive.errors import StoreBusy, StoreError, StoreFull, StoreOpenError, StoreUnreachable
from redrive.stores.drivers.postgres.servers import NoServer, TimeIsUp, Unsuitable
from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.store import unknown

_AGAIN = {
    "40001": "could not be serialised with another transaction",
    "40P01": "was in a deadlock with another transaction",
    "55P03": "waited too long for a lock that another transaction holds (see pg_stat_activity)",
    "57014": "was cancelled, or took longer than its timeout",
}
_AWAY = ("08", "25P03", "53300", "57P")
_CLOSED = ("28", "3D000")
# The session ended, or was never opened, before the statement arrived.
_UNDONE = frozenset({"08001", "08004", "25P03", "53300", "57P03"})

# The server refuses to write, or the session has ended or is about to.
_SPENT = ("08", "25006", "57P")

# The last ones are of pgbouncer whose server is away.
_AWAY_WORDS = (
    "starting up", "shutting down", "recovery", "accepting connections", "too many", "remaining connection slots",
    "terminating", "server login", "cannot connect to server", "server down", "query_wait_timeout",
    "no more connections",
)  # fmt: skip


def ends_session(error: object) -> bool:
    """Return True if a session that answered so must not be used again."""
    state = getattr(error, "sqlstate", None) or ""
    return state.startswith(_SPENT) or is_read_only(error)


def is_read_only(error: object) -> bool:
    """Return True if the server refused to write: it may have been the primary, and changed nothing."""
    state = getattr(error, "sqlstate", None) or ""
    # A standby refuses BEGIN READ WRITE as a feature that is not supported.
    return state == "25006" or (state == "0A000" and "recovery" in str(error))


def is_unsure(error: object) -> bool:
    """Return True if one of several statements was cancelled or had no memory, and it may be any of them."""
    state = getattr(error, "sqlstate", None) or ""
    return state == "57014" or state.startswith(("53", "XX"))


def translation(
    error: BaseException, settings: PostgresSettings, *, opening: bool = False, commits: str | None = None
) -> StoreError:
    """Return the error to raise for an error of a library.

    ``commits`` is the name of the operation that the statement commits, if it was sent: without an answer it is unknown
    whether the operation took effect.
    """
    state = getattr(error, "sqlstate", None) or ""
    text = _text(error)
    if state in _AGAIN:
        return StoreBusy(f"{settings}: this transaction {_AGAIN[state]}; it changed nothing ({text})")
    if state == "53100":
        return StoreFull(f"{settings} cannot grow, its disk is full; nothing was written: make room ({text})")
    if state.startswith(_CLOSED):
        return StoreOpenError(f"{settings} cannot be opened: {text}")
    refused = _refused(state, text, settings)
    if refused is not None:
        return refused
    if state == "42501":
        return (StoreOpenError if opening else StoreError)(f"{settings}: this role may not do that: {text}")
    if is_read_only(error):
        return StoreUnreachable(f"{settings} is read only: is it a standby?{_advice(settings)} ({text})")
    if state.startswith(_AWAY) or not state:
        return _without_state(error, text, settings, None if state in _UNDONE else commits)
    return (StoreOpenError if opening else StoreError)(f"{settings}: {text}")


def _text(error: BaseException) -> str:
    unnamed = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return (str(error).strip() or unnamed).splitlines()[0]


def _advice(settings: PostgresSettings) -> str:
    """Return what helps where one of several servers is a standby."""
    several = len(settings.servers.order) > 1 and settings.servers.wanted == "any"
    return " Add ?target_session_attrs=read-write to find the primary." if several else ""


def no_server(error: NoServer, settings: PostgresSettings) -> StoreError:
    """Return the error for servers that cannot be used: of the only one its own, otherwise one with each reason."""
    found = [_reason(each, settings) for _, each in error.failures]
    if len(found) == 1:
        return found[0]
    reasons = "; ".join(f"{address}: {_short(each)}" for address, each in error.failures)
    # A refusal stays as it is, such as that of a password. The others are over sooner or later.
    for each in found:
        if not isinstance(each, StoreUnreachable):
            return type(each)(f"{settings} cannot be opened: {reasons}")
    return StoreUnreachable(f"{settings} cannot be reached; this transaction wrote nothing ({reasons})")


def _reason(error: Exception, settings: PostgresSettings) -> StoreError:
    if isinstance(error, Unsuitable | TimeIsUp):
        return StoreUnreachable(f"{settings} cannot be used: it {error}")
    return translation(error, settings, opening=True)


def _short(error: Exception) -> str:
    """Return the reason of one of several servers, the same for both libraries."""
    if isinstance(error, OSError) and not isinstance(error, TimeoutError) and error.errno is not None:
        return (error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)) or _text(error)
    # libpq and psycopg repeat the address.
    return _text(error).rpartition(" failed: ")[2]


def _refused(state: str, text: str, settings: PostgresSettings) -> StoreOpenError | None:
    """Return the error for a schema without tables, or one that the role may not use; None for another error."""
    if state in {"42P01", "3F000", "42883"} and "redrive" in text:
        return StoreOpenError(
            f"{settings} has no redrive tables, or not all of them; redrive db migrate APP creates them ({text})"
        )
    # Without USAGE the schema is left out of the search path, and nothing can be created in the rest. Each entry gives
    # this error: the opening, a migration, and the first statement of an open App.
    if (state == "42501" and "for schema" in text) or (state == "3F000" and "no schema has been selected" in text):
        return StoreOpenError(
            f"{settings}: this role may not use the schema {settings.schema}, or may not create tables in it: let its "
            f"owner open or migrate it, and GRANT USAGE ON SCHEMA {settings.schema} TO the role ({text})"
        )
    return None


def _without_state(error: BaseException, text: str, settings: PostgresSettings, commits: str | None) -> StoreError:
    """Return the error for one that the server did not send: a lost connection, or a value that the library refuses."""
    if isinstance(error, ValueError | TypeError | OverflowError) or type(error).__name__ == "DataError":
        return StoreError(f"{settings}: {text}")
    if "FATAL:" in text and not any(word in text for word in _AWAY_WORDS):
        # It was refused before there was a session; libpq gives no code then.
        return StoreOpenError(f"{settings} cannot be opened: {text}")
    if commits is not None:
        return unknown(settings, commits, text)
    return StoreUnreachable(
        f"{settings} cannot be reached, or the connection was lost; this transaction wrote nothing ({text})"
    )
