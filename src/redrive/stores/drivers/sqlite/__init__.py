"""SQLite through the standard library's ``sqlite3``, for one process or several on one file.

One writer, readers apart
-------------------------

SQLite lets one connection write at a time. So a process needs only one that does: a *lane*, a thread with its own
connection that takes operations from a queue. Whatever has gathered in the queue while the last transaction was
written goes into the next one, each operation in a savepoint of its own (group commit): a hundred threads that enqueue
share one fsync, and one that fails takes no other with it. A second lane reads, on a connection of its own; in WAL
mode it never waits for the writer. A database in memory has one connection, so both lanes are one.

A handler may borrow a connection of its own for one transaction. Those that want one wait for their turn in a queue of
the process, in which the writing lane comes next (`redrive.stores.drivers.sqlite.turns`).

Between processes there is only SQLite's file lock. ``BEGIN IMMEDIATE`` takes it before the first read, so that no
transaction is ever refused halfway, and waits up to ``busy_timeout``. Then it is `StoreBusy`: somebody holds the file.

The same thread serves both colours: `submit` answers a `concurrent.futures.Future`, which a caller waits for or awaits.

Durability: ``synchronous=FULL`` in WAL mode syncs the log at each commit, so an acknowledged enqueue survives a power
cut. ``NORMAL`` is a setting for those who can lose the last moments.

A file that is deleted or replaced while it is open is noticed (`redrive.stores.drivers.sqlite.place`): the path is
compared with the open file before each transaction, and again after its commit, before anything is acknowledged.

Before a fork all connections are closed, and parent and child open their own when they need them: SQLite keeps its
locks in tables of the process, and a child that inherits them believes locks that it does not have. A fork waits for up
to 2 s for what is being written or read. If that is not enough, as inside of a lent transaction, the child is refused.
"""

from __future__ import annotations

from redrive.stores.drivers.sqlite.driver import SQLiteDriver
from redrive.stores.drivers.sqlite.settings import Settings

__all__ = ["SQLiteDriver", "Settings"]
