"""Turso through ``pyturso``: an embedded database of its own that speaks SQLite's SQL.

There is no Turso dialect and no second driver. `redrive.stores.drivers.turso.connection` makes pyturso look like the
``sqlite3`` module, and the SQLite driver runs on that, with these differences:

* One process. Turso locks its file while it is open; a second process, or a program that opens the file with SQLite,
  is refused, and so it must be, since two kinds of writers corrupt the file. Within one process nothing would stop
  them, so `redrive.stores.drivers.files` does.
* One connection, used by one thread. Connections of their own make threads starve each other.
* Every write begins with ``BEGIN IMMEDIATE``. ``BEGIN CONCURRENT`` makes all but one of several claimers do their work
  in vain: they all want the same rows.
* Each operation has a transaction of its own: savepoints, which let operations share one, have been seen to corrupt
  the file when the cache spills.
* No fork: the child of a process that has opened a database must not use it.

``synchronous=FULL`` is the default here, too.
"""

from __future__ import annotations

from redrive.stores.drivers.turso.driver import TursoDriver

__all__ = ["TursoDriver"]
