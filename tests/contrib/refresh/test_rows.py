"""The moves over rows that a user keeps in another way, with somebody else who comes in between."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from redrive.contrib.refresh import Refreshes
from redrive.schedule import RefreshOutcome, RefreshPolicy, RefreshState
from redrive.testing import VirtualClock

POLICY = RefreshPolicy.parse("Refresh every 2 hours; allow 1 hour to complete; retry after 1 minute")


@dataclass
class Line:
    """A row as it was read."""

    key: int
    state: RefreshState


class Ledger:
    """A table in a dict. Whatever stands in `meanwhile` is done by somebody else after the next rows were read."""

    def __init__(self) -> None:
        self.states = {1: RefreshState()}
        self.meanwhile = []

    def due(self, now, limit):
        """All of them: the moves look themselves."""
        return self._read()

    overdue = due

    def find(self, key):
        """The row."""
        return next((each for each in self._read() if each.key == key), None)

    def state(self, row):
        """As it was read."""
        return row.state

    def swap(self, row, before, after, sweep_at):
        """Write if it is still so."""
        if self.states[row.key] != before:
            return False
        self.states[row.key] = row.state = after
        return True

    def _read(self):
        read = [Line(key, state) for key, state in self.states.items()]
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return read

    def change(self, **fields):
        """What somebody else writes."""
        self.states[1] = replace(self.states[1], **fields)


@pytest.fixture
def ledger():
    """One row that nobody has saved."""
    return Ledger()


@pytest.fixture
def moves(ledger):
    """Its moves."""
    return Refreshes(ledger, POLICY, clock=VirtualClock())


def test_rows_may_be_kept_anywhere(ledger, moves):
    """Five methods are enough for the moves."""
    moves.update(1)
    (moved,) = moves.start_due()

    assert RefreshOutcome.SUCCEEDED == moves.success(1, uid=moved.state.attempt_uid).outcome
    assert moves.update(2) is None


def test_who_loses_a_start_leaves_the_row_alone(ledger, moves):
    """Two pollers have read the same due row: the second one to write starts nothing."""
    moves.update(1)
    ledger.meanwhile = [moves.start_due]

    assert [] == moves.start_due()
    assert 1 == ledger.states[1].attempt_no


def test_an_answer_is_not_lost_to_somebody_who_came_in_between(ledger, moves):
    """A row is put on pause while its answer is being written: both hold."""
    moves.update(1)
    (moved,) = moves.start_due()
    ledger.meanwhile = [lambda: ledger.change(paused=True)]

    assert RefreshOutcome.SUCCEEDED == moves.success(1, uid=moved.state.attempt_uid).outcome
    assert (True, None) == (ledger.states[1].paused, ledger.states[1].attempt_uid)


def test_an_answer_that_was_overtaken_is_stale(ledger, moves):
    """An attempt is superseded while its answer is being written: the answer changes nothing."""
    moves.update(1)
    (moved,) = moves.start_due()
    ledger.meanwhile = [lambda: moves.trigger(1)]

    assert moves.success(1, uid=moved.state.attempt_uid) is None
    assert moved.state.attempt_uid != ledger.states[1].attempt_uid


def test_a_transaction_that_never_sees_what_others_write_ends_with_advice(ledger, moves):
    """A row that is always another one than was read is an error, not an endless loop."""
    numbers = iter(range(1, 100))
    ledger.meanwhile = [lambda: ledger.change(attempts_since_success=next(numbers)) for _ in range(50)]

    with pytest.raises(RuntimeError, match="READ COMMITTED"):
        moves.update(1)
