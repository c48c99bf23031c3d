"""Stores on SQLite through the standard library's ``sqlite3``, for one process or several on one file.

SQLite lets one connection write at a time. A process has one thread that writes, with a connection of its own, and runs
the operations of a queue. All operations that were queued while it wrote the last transaction share the next one, each
in a savepoint (group commit): a hundred threads that enqueue share one fsync, and an operation that fails does not
affect the others. A second thread reads, on a connection of its own; in WAL mode it never waits for the writer. A
database in memory has one connection and one thread. ``run`` executes its operation in the thread of the caller if no
other one uses or waits for the connection, since a hand-over costs as much as a small transaction; otherwise it waits
for a future of these threads, as ``arun`` always does.

Between processes there is only SQLite's file lock. ``BEGIN IMMEDIATE`` takes it before the first read, so that no
transaction fails halfway, and waits up to ``busy_timeout``; after that it is `StoreBusy`. ``ctx.transaction()`` opens a
connection for one transaction; handlers wait for the lock in a queue of the process (`WriteQueue`).

``synchronous=FULL`` in WAL mode syncs the log at each commit, so an acknowledged enqueue survives a power cut. With
``NORMAL``, a power cut can lose the last moments.

Before a fork all connections are closed, and parent and child open their own when they need them: SQLite keeps its
locks in tables of the process, and a child that inherits them uses locks that it does not hold. A fork waits up to 2 s
for open transactions. If one is still open then, the store cannot be used in the child.
"""

from redrive.stores.drivers.sqlite.connection import fill
from redrive.stores.drivers.sqlite.settings import SQLiteSettings, parse_url
from redrive.stores.drivers.sqlite.store import SQLiteStore

__all__ = ["SQLiteSettings", "SQLiteStore", "fill", "parse_url"]
