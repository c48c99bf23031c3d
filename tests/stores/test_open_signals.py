"""Signals and emitted values in transactions of the user that stay open, while runs go on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql

from redrive.engine.outcome import Succeeded
from redrive.engine.runs import UNDO_MARK, StepOutcome
from redrive.engine.steps import StepsAnswer
from redrive.stores.operations.runs import waits
from tests import postgres
from tests.stores.helpers import Harness, failed, harness
from tests.stores.runs import (
    begin,
    begun,
    claimed,
    event,
    park,
    record,
    run,
    signal,
    step,
    timeline,
    tried,
    view,
    wait,
    wake,
)


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


def locked(store: Harness, user: psycopg.Connection, number: int) -> None:
    """Lock the job of a run, as an operator does."""
    user.execute(f'SELECT FROM "{store.raw.settings.schema}".redrive_jobs WHERE id = %s FOR UPDATE', (number,))


def asked(store: Harness, user: psycopg.Connection, number: int) -> None:
    """Write into a run with a locked job, as an operator does."""
    change = sql.SQL("UPDATE {}.redrive_runs SET paused_why = NULL WHERE job_id = %s")
    user.execute(change.format(sql.Identifier(store.raw.settings.schema)), (number,))


def test_the_end_of_a_wait_of_a_locked_run_is_written_later(store: Harness, users: list[psycopg.Connection]):
    """Waits and failed tries of a locked run do not stand for their ends, whichever lease has written them."""
    park(store, begun(store), wait(), wait("2", "paid"), tried("3"))
    given = [signal(store, name) for name in ("shipped", "paid")]
    store.wait(1)
    claim, _ = claimed(store)
    record(store, claim, wait("4", "sent"))
    ends = [
        replace(wait(), outcome=StepOutcome.OK, ref=given[0]),
        replace(wait("2", "paid"), outcome=StepOutcome.OK, ref=given[1]),
        step("3", tries=2),
        replace(wait("4", "sent"), outcome=StepOutcome.TIMED_OUT),
    ]
    locked(store, users[0], claim.id)
    late = [record(store, claim, end).answer for end in ends]
    users[0].rollback()
    answers = [record(store, claim, end).answer for end in ends]

    assert ([StepsAnswer.LATER] * 4, [StepsAnswer.WRITTEN] * 4) == (late, answers)
    assert {StepOutcome.OK, StepOutcome.TIMED_OUT} == {row.outcome for row in timeline(store).steps}
    assert ["1", "2"] == [each.path for each in timeline(store).signals]


def test_a_run_that_parks_while_it_is_locked_keeps_its_waits(store: Harness, users: list[psycopg.Connection]):
    """Runs park behind the transaction that has locked them, with the rows of what they wait for."""
    claim = begun(store)
    locked(store, users[0], claim.id)
    with ThreadPoolExecutor(1) as threads:
        parking = threads.submit(park, store, claim, wait())
        postgres.until_blocked(users[0])
        users[0].commit()
        parking.result()
    signal(store)

    assert {"1": StepOutcome.WAITING} == {row.path: row.outcome for row in timeline(store).steps}
    assert {claim.id} == wake(store)


def test_values_of_a_locked_run_are_written_behind_its_operator(store: Harness, users: list[psycopg.Connection]):
    """Values without a row are written after the job is locked, as operators lock it first; a running run waits."""
    claim = begun(store)
    locked(store, users[0], claim.id)
    late = record(store, claim, values=b'{"n":1}').answer
    with ThreadPoolExecutor(1) as threads:
        parking = threads.submit(park, store, claim, values=b'{"n":2}')
        postgres.until_blocked(users[0])
        asked(store, users[0], claim.id)
        users[0].commit()
        parking.result()

    assert (StepsAnswer.LATER, b'{"n":2}') == (late, view(store).run.values)


def test_a_run_that_ends_with_its_child_waits_for_the_operator_of_the_child(
    store: Harness, users: list[psycopg.Connection]
):
    """An end that drops the call of a child, whose end is written with it, locks both jobs before the child's run."""
    parent = begun(store)
    child = begun(store, replace(run("child"), parent_id=parent.id, parent_path="2"))
    record(store, parent, step())
    locked(store, users[0], child.id)
    with ThreadPoolExecutor(1) as threads:
        ending = threads.submit(store.settle, (parent, failed(permanent="boom")), (child, Succeeded()))
        postgres.until_blocked(users[0])
        asked(store, users[0], child.id)
        users[0].commit()
        ending.result()

    assert "succeeded" == view(store, "child").job.state
    assert UNDO_MARK in {each.path for each in timeline(store).steps}


def test_the_end_of_a_run_waits_for_no_lock_of_its_child(store: Harness, users: list[psycopg.Connection]):
    """A child that a transaction of the user has locked is asked to end without a wait, and woken when it is free."""
    parent = begun(store)
    child = begun(store, replace(run("child"), parent_id=parent.id, parent_path="1"))
    park(store, child)
    locked(store, users[0], child.id)
    store.end(parent)
    early = wake(store)
    users[0].rollback()

    assert "its call in checkout order-42 (1) was dropped: that run has ended" == view(store, "child").run.cancel_why
    assert (frozenset(), {child.id}) == (early, wake(store))


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
