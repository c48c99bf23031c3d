"""Signals and emitted values in transactions of the user that stay open, while runs go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from redrive.engine.steps import StepsAnswer
from redrive.stores.operations.runs import waits
from tests import postgres
from tests.stores.helpers import Harness, harness
from tests.stores.runs import begin, claimed, event, park, record, run, step, view, wait, wake


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Harness]:
    """Yield a store on PostgreSQL, where transactions of users can stay open beside others."""
    with harness("postgres", "sync", tmp_path) as opened:
        yield opened


@pytest.fixture
def users() -> Iterator[list[psycopg.Connection]]:
    """Yield two connections of the user."""
    opened = [postgres.connect(autocommit=False) for _ in range(2)]
    yield opened
    for connection in opened:
        connection.close()


def send(store: Harness, connection: psycopg.Connection, name: str) -> None:
    """Send a signal to a run in a transaction of the user."""
    store.raw.run(waits.signal("checkout", name, "shipped", b"1", now=store.now), using=connection)


@pytest.mark.case("W9")
def test_an_open_transaction_of_a_sender_delays_no_run(store: Harness, users: list[psycopg.Connection]):
    """While senders of signals and values stay open, fifty runs take steps; only what is committed wakes its run."""
    begin(store, *(run(str(number)) for number in range(50)), run("x"), run("y"))
    claims = {store.job(claim.id).origin.rpartition("/")[2]: claim for claim in store.claim(52)}
    for name in ("x", "y"):
        park(store, claims[name], wait(), event("2", "open"))
    first, second = users
    send(store, first, "x")
    send(store, first, "7")
    store.raw.run(waits.emit("closed", b"1", now=store.now), using=first)
    send(store, second, "y")
    answers = [record(store, claims[str(number)], step()) for number in range(50)]
    idle = wake(store)
    second.rollback()
    first.commit()

    assert {StepsAnswer.WRITTEN} == {each.answer for each in answers}
    assert (frozenset(), frozenset({claims["x"].id})) == (idle, wake(store))
    assert [b"1"] == [each.payload for each in claimed(store)[1].signals]
    assert view(store, "y").job.scheduled_at > store.now


def test_senders_in_opposite_orders_do_not_deadlock(store: Harness, users: list[psycopg.Connection]):
    """Two transactions that signal two runs in opposite orders both commit."""
    begin(store, run("x"), run("y"))
    first, second = users
    send(store, first, "x")
    send(store, second, "y")
    send(store, first, "y")
    send(store, second, "x")
    first.commit()
    second.commit()

    assert [2, 2] == [len(state.signals) for state in store.claimed(2).runs.values()]


def test_a_locked_run_is_written_later(store: Harness, users: list[psycopg.Connection]):
    """Rows of a run that a transaction of the user has locked are left for later; those of others are written."""
    begin(store, run("x"), run("y"))
    mine, other = store.claim(2)
    schema = store.raw.settings.schema
    users[0].execute(f'SELECT FROM "{schema}".redrive_jobs WHERE id = %s FOR UPDATE', (mine.id,))
    locked, free = record(store, mine, step()), record(store, other, step())
    users[0].rollback()

    assert [StepsAnswer.LATER, StepsAnswer.WRITTEN] == [locked.answer, free.answer]
    assert StepsAnswer.WRITTEN is record(store, mine, step()).answer


def test_an_emitted_value_stays_pending_while_an_older_transaction_is_open(
    store: Harness, users: list[psycopg.Connection]
):
    """Values stay pending until transactions that began before they were noticed have ended, and then no longer."""
    users[0].execute("SELECT pg_current_xact_id()")
    store.do(waits.emit("open", b"1", now=store.now))
    for _ in range(3):
        wake(store)
    during = store.do(waits.is_pending())
    users[0].rollback()
    for _ in range(2):
        wake(store)

    assert (True, False) == (during, store.do(waits.is_pending()))
