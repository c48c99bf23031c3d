"""Refreshes whose state is kept in your own table: library mode.

Answers: how do the moves of `redrive.schedule.refresh` get into a table that many processes write to? May import:
everything below `redrive.contrib`; SQLAlchemy and Django each in the module that bears its name. Must never: commit, or
send anything. Both are the caller's, in this order.

===================  ============================================================================================
you have             take
===================  ============================================================================================
SQLAlchemy 2         `redrive.contrib.refresh.sqlalchemy`: a mixin with the columns, their indexes, and the moves
Django               `redrive.contrib.refresh.django`: an abstract model with the same
another library      `Refreshes` over a `Rows` of your own: five small methods
a file, a dict       `redrive.schedule.RefreshState` and the moves themselves; a field is a column
===================  ============================================================================================

**One rule for races.** A move is a function of the state that was read, so it is written on condition that the state is
still that one: ``UPDATE ... WHERE id = ? AND <every field is as it was read>``. Of two processes that start one row,
that answer one attempt, or of which one pauses what the other starts, exactly one writes. Who loses a start leaves the
row alone; who loses anything else reads again and decides again. No lock is needed for that. Where the database has
``FOR UPDATE SKIP LOCKED`` it is used beside it, so that a fleet does not read the same rows.

**Two columns to search.** ``refresh_at`` says when a row is started; ``sweep_at``, which is beside the state, when time
alone makes a difference to it: at the deadline of a running attempt, or at the end of the time for which a refresh may
go on failing. Each has a partial index, so that finding what is due costs the same among a million rows as among ten.

**One row cannot block the others.** If the policy of a row cannot be read, that row is given up with the message as the
reason; in a move that a person asks for the error is raised instead.

**Commit, then send.** An attempt is announced after the commit that started it. If that gets lost on the way, by a
crash between both or in the queue, nobody answers, and at its deadline the attempt has failed: a retry follows. Sent
before the commit, an answer could come before there is a row that knows its token.
"""

from redrive.contrib.refresh.refreshes import Refreshes
from redrive.contrib.refresh.rows import Moved, Rows

__all__ = ["Moved", "Refreshes", "Rows"]
