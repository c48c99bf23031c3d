"""The server that a process works with, and what follows when another one has taken its place.

A standby that is promoted begins a new *timeline* of the write-ahead log, and so does a restored server. It may lack
the last commits of its predecessor. Each session reads the system identifier and the timeline when it is opened. When
they are others than before, a new *era* begins: connections of earlier eras are not used again, and an operation that
was made in an earlier era is refused (`redrive.stores.query.Operation.era`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from redrive.errors import StoreUnreachable
from redrive.stores.drivers.postgres.settings import PostgresSettings

# The function of the position of the log has the timeline from the promotion on; pg_control_checkpoint() has that of
# the last checkpoint. Every role may call these functions, unless an administrator has revoked it.
SERVER = (
    "CASE WHEN NOT pg_is_in_recovery() THEN (SELECT system_identifier FROM pg_control_system()) || ' ' "
    "|| left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
)

# The conditions of a role that may not call them, and of a service that does not have them.
UNKNOWN = frozenset({"42501", "42883", "0A000"})


class Timeline:
    """The server of one store. Safe to use from any thread.

    Attributes:
        era: the number of times that the server was replaced.
        present: the server and its timeline; None before the first session, and if it is not known.
        server: the expression that a session evaluates.
        listeners: called when an era begins, in the thread that has met the new server; they must return at once.
    """

    def __init__(self) -> None:
        self.era: int = 0
        self.server: str = SERVER
        self.listeners: list[Callable[[], None]] = []
        self.present: str | None = None
        self._lock = threading.Lock()

    def meet(self, server: str | None) -> int:
        """Record the server of a session, and return the present era; None if it is not known."""
        with self._lock:
            if server is None or server == self.present:
                return self.era
            is_first, self.present = self.present is None, server
            if is_first:
                return self.era
            self.era += 1
        for each in tuple(self.listeners):
            each()
        return self.era

    def refused(self, condition: str | None) -> bool:
        """Return True if this error means that the server does not name its timeline; then it is not asked again."""
        if condition not in UNKNOWN or self.server != SERVER:
            return False
        self.server = "NULL"
        return True

    def check(self, era: int | None, settings: PostgresSettings) -> None:
        """Raise `StoreUnreachable` for an operation of an earlier era; None is of any era."""
        if era is not None and era != self.era:
            raise StoreUnreachable(
                f"{settings}: another server has taken over, which may lack what this relies on; nothing was sent"
            )
