"""Stores on Turso through ``pyturso``: an embedded database with SQLite's SQL. The SQLite store runs on it.

* One process. Turso locks its file while it is open and refuses a second process, or a program that opens the file with
  SQLite, since two kinds of writers corrupt the file. Within one process, `redrive.stores.drivers.files` prevents that.
* One connection, used by one thread. Several connections make threads starve each other.
* Every write begins with ``BEGIN IMMEDIATE``. With ``BEGIN CONCURRENT``, all but one of several claimers would work in
  vain, since they need the same rows.
* Each operation has a transaction of its own: savepoints, which let operations share one, have been seen to corrupt
  the file when the cache spills.
* No fork: the child of a process that has opened a database must not use it.
"""

from redrive.stores.drivers.turso.connection import TursoStore

__all__ = ["TursoStore"]
