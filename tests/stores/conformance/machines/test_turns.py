"""Timeouts of states, and events that wait for their turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redrive.engine.machine import (
    InstanceStatus,
    MachineDefinition,
    MachineState,
    MoveSource,
    MoveStatus,
    StateTimeout,
)
from redrive.errors import EventConflict
from redrive.stores.operations.machines.send import Sent, SentStatus
from redrive.stores.operations.machines.turns import MachineTurn
from tests.stores.helpers import Harness, failed
from tests.stores.machines import DAY, Automaton, payment, statuses


def test_a_timeout_fires_at_its_instant(payments: Automaton):
    """Instances that are still in their state at its timeout receive the event, once, and not before."""
    payments.walk("Created", "Paid")
    assert payments.store.now + 3 * DAY == payments.look().timeout_at
    payments.store.wait(3 * 86_400 - 1)
    assert () == payments.turns()
    payments.store.wait(1)

    (turn,) = payments.turns()
    assert ("Expired", MoveSource.TIMEOUT, "paid", "expired") == (
        turn.event,
        turn.source,
        turn.from_state,
        turn.to_state,
    )
    assert () == payments.turns()
    payments.run()
    assert ("expired", None) == (payments.get().state, payments.get().timeout_at)
    assert "timeout:2" == payments.history()[-1].event_key


def test_a_deployment_does_not_move_a_timeout(store: Harness):
    """Timeouts are written with the move: new code with another time applies to later moves."""
    before = Automaton(store)
    before.walk("Created", "Paid", key="old")
    after = Automaton(store, payment(timeout=StateTimeout(5 * DAY, "Expired", b"{}")))
    store.wait(2 * 86_400)
    after.walk("Created", "Paid", key="new")
    store.wait(86_400)

    assert ["old"] == [turn.key for turn in after.turns()]
    assert store.now + 4 * DAY == after.get("new").timeout_at


def test_an_event_overwrites_the_timeout(payments: Automaton):
    """Instances that have left their state do not time out; a timeout that was due is recorded as late."""
    payments.walk("Created", "Paid", key="early")
    payments.walk("Created", "Paid", key="late")
    payments.send("Completed", "early")
    payments.run()
    payments.store.wait(4 * 86_400)
    payments.send("Completed", "late")
    payments.run()

    assert () == payments.turns()
    assert ["moved", "moved", "moved"] == statuses(payments.history("early"))
    assert [("paid", "completed", "Completed", "moved"), ("paid", None, "Expired", "late")] == payments.moves_of(
        "late"
    )[2:]


def test_a_busy_instance_does_not_time_out(payments: Automaton):
    """Timeouts wait while a transition runs or has failed, and fire when the instance is free again."""
    payments.walk("Created", "Paid")
    payments.send("Completed")
    payments.store.wait(4 * 86_400)
    assert (None, ()) == (payments.look().timeout_at, payments.turns())
    payments.definition = payment()
    payments.fail()
    payments.turns()
    payments.run()

    assert ("review", None) == (payments.get().state, payments.get().timeout_at)


def test_a_skipped_transition_lets_the_timeout_fire(payments: Automaton):
    """Timeouts that were due during a failed transition fire after it was skipped."""
    payments.walk("Created", "Paid")
    payments.send("Paid")
    payments.send("Expired")
    payments.store.wait(4 * 86_400)
    payments.fail()
    assert () == payments.turns()
    payments.skip()

    assert ["expired"] == [turn.to_state for turn in payments.turns()]


def test_a_timeout_without_a_transition_is_refused_once(store: Harness):
    """Timeouts that no state takes any more, or with a guard that fails, are recorded and do not fire again."""
    payments = Automaton(store)
    payments.walk("Created", "Paid", key="a")
    payments.walk("Created", "Paid", key="b")
    store.wait(3 * 86_400)
    states = {**payments.definition.states, "expired": MachineState("expired", "Expired", after=("completed",))}
    payments.definition = type(payments.definition)("payment", states)
    (first, _) = payments.turns()

    assert MoveStatus.REFUSED is first.status
    assert "no transition found from state paid for type Expired" in (first.error or "")
    assert () == payments.turns()
    assert ("paid", None, "refused") == (
        payments.get().state,
        payments.get().timeout_at,
        payments.history()[-1].status,
    )


def test_waiting_events_have_their_turn_in_order(payments: Automaton):
    """Events that wait start one after the other, in the order in which they were sent."""
    for event in ("Created", "Paid", "Completed"):
        sent = payments.queue(event)
        assert Sent("payment", "a", sent.id, SentStatus.QUEUED) == sent

    for state in ("created", "paid", "completed"):
        assert (True, True) == (payments.look().events, payments.look().waiting)
        assert [state] == [turn.to_state for turn in payments.turns()]
        assert () == payments.turns()
        payments.run()
    assert InstanceStatus.COMPLETED is payments.get().status
    assert not payments.look().waiting


def test_a_waiting_event_without_a_transition_stops_no_other(payments: Automaton):
    """Events that have no transition in their turn are refused, with their content, and the next one has its turn."""
    payments.walk("Created")
    payments.queue("Completed")
    payments.queue("Paid")

    assert [MoveStatus.REFUSED] == [turn.status for turn in payments.turns()]
    assert [MoveStatus.RUNNING] == [turn.status for turn in payments.turns()]
    refused, begun = payments.history()[1:]
    assert ("refused", b"{}", True) == (refused.status, refused.payload, "no transition found" in (refused.error or ""))
    assert ("running", "created", "paid") == (begun.status, begun.from_state, begun.to_state)


def test_a_waiting_event_may_be_ignored(payments: Automaton):
    """Events that the state ignores in their turn are recorded so."""
    payments.walk("Created", "Paid")
    payments.queue("Paid")

    assert ([MoveStatus.IGNORED], False) == ([turn.status for turn in payments.turns()], payments.look().waiting)


def test_events_wait_for_a_busy_or_failed_instance(payments: Automaton):
    """Events wait while a transition runs, waits for a retry, or has failed."""
    payments.send("Created")
    payments.queue("Paid")
    assert (False, True, ()) == (payments.look().startable, payments.look().waiting, payments.turns())
    payments.store.settle((payments.take(), failed()))
    assert () == payments.turns()
    payments.store.wait(1)
    payments.fail()
    assert () == payments.turns()

    payments.skip()
    assert [MoveStatus.REFUSED] == [turn.status for turn in payments.turns()]


def test_a_history_is_in_the_order_of_the_moves(payments: Automaton):
    """Histories have an event that waited for its turn behind the moves before it, whatever their ids."""
    payments.send("Created")
    payments.queue("Completed")
    payments.store.wait(1)
    payments.run(payments.following("Paid", "paid"))
    payments.store.wait(1)
    payments.run()
    payments.turns()
    payments.store.wait(1)
    payments.run()

    assert ["created", "paid", "completed"] == [move.to_state for move in payments.history()]
    assert payments.history()[2].id < payments.history()[1].id


def test_one_instance_has_its_turn(payments: Automaton):
    """Turns of one instance start its first event, and nothing while it is busy."""
    payments.queue("Created")
    payments.queue("Created", "b")

    assert ["a"] == [turn.key for turn in payments.turn()]
    assert ((), ()) == (payments.turn(), payments.turn("none"))


def test_a_waiting_event_has_a_key(payments: Automaton):
    """Events with a key wait once; their answer is the same before and after their turn."""
    first = payments.queue("Created", event_key="e")
    again = payments.queue("Created", event_key="e")
    payments.turns()
    begun = payments.queue("Created", event_key="e")

    assert (first, first.id, "created") == (again, begun.id, begun.to_state)
    with pytest.raises(EventConflict, match="this one is Paid"):
        payments.queue("Paid", event_key="e")
    assert begun == payments.send("Created", event_key="e")


def test_turns_are_limited(payments: Automaton):
    """Turns start at most as many instances as their budget allows."""
    for key in "abc":
        payments.queue("Created", key)

    assert [2, 1, 0] == [len(payments.turns(2)) for _ in range(3)]


def test_a_guard_that_raises_refuses_a_waiting_event(store: Harness):
    """Errors of guards, which have no sender to receive them, are recorded with the event."""
    payments = Automaton(store, payment(guard=lambda event, _: 1 / event["n"]))
    payments.walk("Created")
    payments.queue("Paid", payload=b'{"n":0}')

    (turn,) = payments.turns()
    assert (MoveStatus.REFUSED, "ZeroDivisionError: division by zero") == (turn.status, turn.error)


def test_the_event_of_a_failure_comes_first(payments: Automaton):
    """Events of failures have their turn before those that waited already."""
    payments.walk("Created", "Paid")
    payments.send("Completed")
    payments.queue("Completed")
    payments.fail()

    assert ["review"] == [turn.to_state for turn in payments.turns()]
    payments.run()
    assert ["completed"] == [turn.to_state for turn in payments.turns()]


def test_marks_of_ended_events_are_removed(payments: Automaton):
    """After the turn of the event of a failure, one look finds its mark; the next one returns when a timeout is due."""
    payments.walk("Created", "Paid")
    payments.walk("Created", "Paid", key="b")
    payments.send("Completed")
    payments.fail()
    payments.turns()
    payments.run()

    assert (True, False) == (payments.look().startable, payments.look().waiting)
    assert [((), 1), ((), 0)] == [(each.turns, each.marked) for each in (payments.taken(), payments.taken())]
    assert (False, payments.get("b").timeout_at) == (payments.look().startable, payments.look().timeout_at)


def test_a_timeout_and_a_waiting_event_make_one_transition(payments: Automaton):
    """Timeouts come before events that wait; the event then finds the new state."""
    for key in map(str, range(5)):
        payments.walk("Created", "Paid", key=key)
    payments.store.wait(3 * 86_400)
    for key in map(str, range(5)):
        payments.queue("Completed", key)

    assert {"expired"} == {turn.to_state for turn in payments.turns() if turn.status is MoveStatus.RUNNING}
    for key in map(str, range(5)):
        payments.run()
        payments.turns()
        assert [("paid", "expired", "Expired", "moved"), ("refused")] == [
            payments.moves_of(key)[3],
            payments.moves_of(key)[2][3],
        ]


def test_a_waiting_event_makes_a_due_timeout_late(payments: Automaton):
    """Waiting events with an earlier turn make a due timeout late."""
    payments.walk("Created", "Paid")
    payments.queue("Completed")
    payments.store.wait(3 * 86_400)

    assert ["completed"] == [turn.to_state for turn in payments.turn()]
    assert ["late", "running"] == statuses(payments.history()[2:])


def test_a_direct_event_finds_the_instance_of_a_waiting_one(payments: Automaton):
    """Instances that a waiting event has created take direct events before its turn."""
    payments.queue("Paid")

    assert "created" == payments.send("Created").to_state


def test_code_without_a_state_leaves_its_timeout(store: Harness):
    """Timeouts of states that a worker's code does not have stay for the workers of other code."""
    new = Automaton(store)
    new.walk("Created", "Paid")
    old = Automaton(store, MachineDefinition("payment", {"created": MachineState("created", "Created", start=True)}))
    store.wait(4 * 86_400)

    assert (None, False) == (old.look().timeout_at, old.look().startable)
    assert () == old.turns()
    assert ["expired"] == [turn.to_state for turn in new.turns()]


@pytest.mark.parametrize("turns", [Automaton.turns, Automaton.turn])
def test_code_without_an_event_leaves_it_in_line(store: Harness, turns: Callable[[Automaton], tuple[MachineTurn, ...]]):
    """Waiting events that a worker's code does not have stay first in their line until other code takes them."""
    new = Automaton(store)
    new.walk("Created")
    old = Automaton(store, MachineDefinition("payment", {"created": MachineState("created", "Created", start=True)}))
    new.queue("Paid")
    new.queue("Created")

    assert (False, True) == (old.look().startable, old.look().waiting)
    assert () == turns(old)
    assert new.look().events
    assert ["paid"] == [turn.to_state for turn in turns(new)]


def test_code_without_the_state_leaves_waiting_events(store: Harness):
    """Events that wait for an instance in a state that a worker's code does not have stay in line."""
    new = Automaton(store)
    new.walk("Created", "Paid")
    old = Automaton(store, MachineDefinition("payment", {"created": MachineState("created", "Created", start=True)}))
    old.queue("Created")

    assert ((), ()) == (old.turns(), old.turn())
    assert [MoveStatus.REFUSED] == [turn.status for turn in new.turns()]
