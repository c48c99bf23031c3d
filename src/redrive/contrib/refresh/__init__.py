"""Refreshes that store their state in your own table: library mode.

Integrations never commit and never send anything. The caller does both, in this order. SQLAlchemy and Django are each
imported only by the module of that name.

===================  ============================================================================================
you have             take
===================  ============================================================================================
SQLAlchemy 2         `redrive.contrib.refresh.sqlalchemy`: a mixin with the columns, their indexes, and the moves
Django               `redrive.contrib.refresh.django`: an abstract model with the same
another library      `Refreshes` over a `Rows` of your own: five small methods
a file, a dict       `redrive.schedule.RefreshState` and the moves themselves; a field is a column
===================  ============================================================================================

**Races.** A move is a function of the state that was read, so it is written on condition that the state is unchanged:
``UPDATE ... WHERE id = ? AND <every field is as it was read>``. If two processes start one row, complete one attempt,
or one pauses a row that the other starts, exactly one of them writes. A process that loses a start leaves the row
alone; a process that loses another move reads and decides again. This needs no lock. If the database has
``FOR UPDATE SKIP LOCKED``, it is used in addition, so that a fleet does not read the same rows.

**Two columns to search.** ``refresh_at`` is the time at which a row is started. ``sweep_at``, which is not a field of
the state, is the deadline of a running attempt, or the end of the time for which a refresh may fail. Each has a partial
index, so that finding due rows costs the same for a million rows as for ten.

**Unreadable policies.** If the policy of a row cannot be read, that row is given up with the message as the reason, and
other rows are not affected. In a move that a user requests the error is raised instead.

**Commit, then send.** Send an attempt after the commit that started it. If it is lost, by a crash between the two or in
the queue, no result arrives, and at its deadline the attempt has failed: a retry follows. If it were sent before the
commit, a result could arrive before a row has its token.
"""

from redrive.contrib.refresh.refreshes import Refreshes
from redrive.contrib.refresh.rows import MovedRow, Rows

__all__ = ["MovedRow", "Refreshes", "Rows"]
