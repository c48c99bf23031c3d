"""Events that are sent in the user's own transaction on PostgreSQL, which may stay open."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from redrive.engine.outcome import Succeeded
from redrive.errors import MachineBusy
from redrive.stores.operations import checks
from redrive.stores.operations.machines import turns
from redrive.stores.operations.machines.send import Busy
from tests import postgres
from tests.stores.helpers import Harness, harness
from tests.stores.machines import Automaton, statuses


@pytest.fixture
def payments(tmp_path: Path) -> Iterator[Automaton]:
    """Yield the payments of an empty database."""
    with harness("postgres", "sync", tmp_path) as store:
        yield Automaton(store)


def within(store: Harness, automaton: Automaton, event: str, connection: object, busy: Busy = Busy.RAISE) -> None:
    """Send an event in a transaction of the user."""
    store.raw.run(automaton.sending(event, busy=busy), using=connection)


def test_an_event_is_sent_with_the_commit(payments: Automaton):
    """Events that are sent in a transaction exist after its commit, and never after its rollback."""
    with postgres.connect(autocommit=False) as mine:
        within(payments.store, payments, "Created", mine)
        mine.rollback()
        within(payments.store, payments, "Created", mine)
        assert () == payments.store.claim()
        mine.commit()

    payments.run()
    assert "created" == payments.get().state


def test_a_refused_event_leaves_the_transaction_usable(payments: Automaton):
    """Events that are refused hold no lock, and the transaction around them goes on."""
    payments.send("Created")
    with postgres.connect(autocommit=False) as mine:
        with pytest.raises(MachineBusy):
            within(payments.store, payments, "Paid", mine)
        payments.run()
        within(payments.store, payments, "Paid", mine)
        mine.commit()

    assert "paid" == payments.get().to_state


@pytest.mark.case("M6")
def test_an_open_transaction_holds_up_no_other_event(payments: Automaton):
    """Events that wait have their turns in the order of their ids among the committed ones."""
    payments.walk("Created", "Paid")
    with postgres.connect(autocommit=False) as mine:
        payments.queue("Paid", payload=b'{"a":1}')  # A, which the state ignores
        within(payments.store, payments, "Completed", mine, Busy.QUEUE)  # B, not committed
        payments.queue("Created")  # C, for which there is no transition
        seen = [str(turn.status) for _ in range(3) for turn in payments.turns()]
        assert ["ignored", "refused"] == seen
        mine.commit()

    assert ["Completed"] == [turn.event for turn in payments.turns()]
    payments.run()
    assert (["ignored", "moved", "refused"], "completed") == (
        statuses(payments.history())[2:],
        payments.get().state,
    )


def test_turns_skip_a_locked_instance(payments: Automaton):
    """Instances that a transaction of a user has locked are left out, and others have their turns."""
    payments.walk("Created", "Paid")
    payments.walk("Created", "Paid", key="b")
    payments.store.wait(3 * 86_400)
    with postgres.connect(autocommit=False) as mine:
        within(payments.store, payments, "Completed", mine)
        assert ["b"] == [turn.key for turn in payments.turns()]
        assert () == payments.store.do(
            turns.take_turn(payments.known, "payment", "a", payments.resolve, now=payments.store.now)
        )
        mine.rollback()

    assert ["a"] == [turn.key for turn in payments.turns()]


@pytest.mark.parametrize(("event_key", "busy"), [("k1", Busy.RAISE), (None, Busy.DROP)])
def test_an_event_that_starts_nothing_holds_up_no_settle(payments: Automaton, event_key: str | None, busy: Busy):
    """Repeated and dropped events lock no instance, so the transition that runs can end at once."""
    payments.send("Created", event_key="k1")
    claim = payments.take()
    with postgres.connect(autocommit=False) as mine:
        payments.store.raw.run(payments.sending("Created", event_key=event_key, busy=busy), using=mine)
        payments.store.end(claim, Succeeded(effects=payments.effects(claim)))
        assert "created" == payments.get().state
        mine.rollback()


def test_a_delete_waits_for_an_event_that_is_not_committed(payments: Automaton):
    """Deletes of instances wait for the transactions that put events into their lines, and delete these events."""
    payments.walk("Created")
    with postgres.connect(autocommit=False) as mine, ThreadPoolExecutor(1) as other:
        within(payments.store, payments, "Paid", mine, Busy.QUEUE)
        deleted = other.submit(payments.delete)
        postgres.until_blocked(mine)
        assert not deleted.done()
        mine.commit()
        deleted.result(20)

    assert () == payments.store.do(checks.check()).findings
    payments.queue("Created")
    assert ["created"] == [turn.to_state for turn in payments.turns()]


def test_an_event_that_is_not_committed_holds_up_no_turn(payments: Automaton):
    """Transactions that put an event into the line of an instance hold up neither its transitions nor other events."""
    payments.walk("Created")
    with postgres.connect(autocommit=False) as mine:
        within(payments.store, payments, "Completed", mine, Busy.QUEUE)
        payments.queue("Paid")
        assert ["paid"] == [turn.to_state for turn in payments.turns()]
        payments.run()
        payments.reset("created")
        assert ("paid", "started") == (payments.send("Paid").to_state, "started")
        payments.run()
        mine.commit()

    assert ["completed"] == [turn.to_state for turn in payments.turns()]
