"""The moves over rows of a user's own storage, with concurrent writes by another process."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from redrive.contrib.refresh import TableRefreshes
from redrive.schedule import RefreshOutcome, RefreshPolicy, RefreshState
from redrive.testing import VirtualClock

POLICY = RefreshPolicy.parse("Refresh every 2 hours; allow 1 hour to complete; retry after 1 minute")


@dataclass
class TableRow:
    """A row as it was read."""

    key: int
    state: RefreshState


class DictTable:
    """A table in a dict. Another process makes the changes in `concurrent_changes` after the next rows were read."""

    def __init__(self) -> None:
        self.states = {1: RefreshState()}
        self.concurrent_changes = []

    def due(self, now, limit):
        """Return all rows, because the moves check the state themselves."""
        return self._read()

    overdue = due

    def find(self, key):
        """Return the row."""
        return next((each for each in self._read() if each.key == key), None)

    def state(self, row):
        """Return the state as it was read."""
        return row.state

    def swap(self, row, before, after, sweep_at):
        """Write the state if it is unchanged."""
        if self.states[row.key] != before:
            return False
        self.states[row.key] = row.state = after
        return True

    def _read(self):
        read = [TableRow(key, state) for key, state in self.states.items()]
        if self.concurrent_changes:
            self.concurrent_changes.pop(0)()
        return read

    def change(self, **fields):
        """Write a row as another process."""
        self.states[1] = replace(self.states[1], **fields)


@pytest.fixture
def ledger():
    """Create a table with one row that is not saved by a user."""
    return DictTable()


@pytest.fixture
def moves(ledger):
    """Return the moves of the table."""
    return TableRefreshes(ledger, POLICY, clock=VirtualClock())


def test_rows_may_be_kept_anywhere(ledger, moves):
    """Five methods are enough for the moves."""
    moves.update(1)
    (moved,) = moves.start_due()

    assert RefreshOutcome.SUCCEEDED == moves.success(1, uid=moved.state.attempt_uid).outcome
    assert moves.update(2) is None


def test_a_poller_that_loses_a_start_does_not_write_the_row(ledger, moves):
    """Two pollers have read the same due row: the second writer starts nothing."""
    moves.update(1)
    ledger.concurrent_changes = [moves.start_due]

    assert [] == moves.start_due()
    assert 1 == ledger.states[1].attempt_no


def test_an_answer_and_a_concurrent_pause_are_both_stored(ledger, moves):
    """Rows that are paused while a result is written get both changes."""
    moves.update(1)
    (moved,) = moves.start_due()
    ledger.concurrent_changes = [lambda: ledger.change(paused=True)]

    assert RefreshOutcome.SUCCEEDED == moves.success(1, uid=moved.state.attempt_uid).outcome
    assert (True, None) == (ledger.states[1].paused, ledger.states[1].attempt_uid)


def test_an_answer_that_was_overtaken_is_stale(ledger, moves):
    """Results of an attempt that is superseded while they are written change nothing."""
    moves.update(1)
    (moved,) = moves.start_due()
    ledger.concurrent_changes = [lambda: moves.trigger(1)]

    assert moves.success(1, uid=moved.state.attempt_uid) is None
    assert moved.state.attempt_uid != ledger.states[1].attempt_uid


def test_a_transaction_with_a_fixed_snapshot_raises_an_error_with_a_remedy(ledger, moves):
    """Rows that always differ from what was read raise an error instead of an endless loop."""
    numbers = iter(range(1, 100))
    ledger.concurrent_changes = [lambda: ledger.change(attempts_since_success=next(numbers)) for _ in range(50)]

    with pytest.raises(RuntimeError, match="READ COMMITTED"):
        moves.update(1)
