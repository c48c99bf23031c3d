"""Scenarios in which durable state machines fail elsewhere: contention, deployments, crashes between two steps."""

from __future__ import annotations

import pytest

from redrive.engine.machine import FAILED, DataChange, InstanceStatus, MoveStatus, StateTimeout
from redrive.engine.outcome import Succeeded
from redrive.errors import EventConflict, NoTransition
from redrive.stores.operations.machines import manage, turns
from redrive.stores.operations.machines.send import Busy
from tests.stores.helpers import Harness, failed
from tests.stores.machines import DAY, Automaton, data, payment, place, statuses


@pytest.mark.case("M1")
def test_two_senders_never_move_an_instance_twice(payments: Automaton):
    """Of two events that are valid only from the state that both senders have read, one moves the instance."""
    for key in map(str, range(payments.store.trials(200))):  # a quarter of it in memory and on Turso
        payments.store.do(place([key], "created", payments.store.now))
        first, second = payments.store.at_once([payments.sending("Paid", key), payments.sending("Paid", key)])
        payments.run()

        assert ["MachineBusy", "Sent"] == sorted(type(each).__name__ for each in (first, second))
        with pytest.raises(NoTransition) as late:
            payments.send("Created", key)
        assert ("paid", ["moved"]) == (late.value.state, statuses(payments.history(key)))


@pytest.mark.case("M2")
def test_a_timeout_outlives_restarts_and_deployments(store: Harness):
    """Timeouts fire at the instant that the move has stored, once; new code applies to new instances."""
    Automaton(store).walk("Created", "Paid", key="old")
    store.wait(86_400)
    restarted = Automaton(store)
    assert () == restarted.turns()
    store.wait(86_400)
    deployed = Automaton(store, payment(timeout=StateTimeout(5 * DAY, "Expired", b"{}")))
    deployed.walk("Created", "Paid", key="new")
    store.wait(86_400 - 1)
    assert () == deployed.turns()
    store.wait(1)

    assert (["old"], ()) == ([turn.key for turn in deployed.turns()], deployed.turns())
    assert store.now + 4 * DAY == deployed.get("new").timeout_at


@pytest.mark.case("M3")
@pytest.mark.parametrize("busy", [Busy.RAISE, Busy.QUEUE])
def test_a_timeout_and_an_event_make_one_transition(payments: Automaton, busy: Busy):
    """Of a timeout and an event that are due at one instant, one moves the instance; the other one is recorded."""
    for key in map(str, range(payments.store.trials(40))):  # in each way
        payments.walk("Created", "Paid", key=key)
        payments.store.wait(3 * 86_400)
        one, other = payments.store.at_once(
            [
                turns.take_turns(payments.known, payments.resolve, budget=10, now=payments.store.now),
                payments.sending("Completed", key, busy=busy),
            ]
        )
        payments.turns()
        payments.run()
        payments.turns()
        moved = payments.get(key).state
        assert not isinstance(one, Exception)

        ends = sorted(statuses(payments.history(key))[2:])
        if moved == "completed":
            assert ["late", "moved"] == ends
        else:
            assert "expired" == moved
            assert ["moved"] if type(other).__name__ == "MachineBusy" else ["moved", "refused"] == ends
        assert () == payments.store.claim()


@pytest.mark.case("M5")
def test_a_lost_reply_of_a_commit_moves_once(payments: Automaton):
    """Second attempts that are settled again, because the reply was lost, make one move and one next event."""
    payments.walk("Created")
    payments.send("Paid")
    payments.store.end(payments.take(), failed())
    payments.store.wait(1)
    claim = payments.take()
    outcome = Succeeded(effects=payments.effects(claim, payments.following("Completed", "completed")))
    payments.store.settle((claim, outcome))
    repeated = payments.store.settle((claim, outcome))

    assert ((claim.lease_id,), frozenset()) == (tuple(each.lease_id for each in repeated.moved), repeated.lost)
    assert ["moved", "moved", "running"] == statuses(payments.history())
    payments.run()
    assert ("completed", 3) == (payments.get().state, payments.get().moves)


@pytest.mark.case("M6")
def test_a_refused_event_stops_no_later_one(payments: Automaton):
    """Events that wait have their turns in the order of their ids; one without a transition is recorded for itself."""
    payments.send("Created", "busy")
    payments.queue("Paid", "busy")
    payments.queue("Created", "busy")
    payments.queue("Completed", "busy")
    seen = []
    for _ in range(6):
        seen += [(turn.event, str(turn.status)) for turn in payments.turns()]
        for claim in payments.store.claim():
            payments.store.end(claim, Succeeded(effects=payments.effects(claim)))

    assert [("Paid", "running"), ("Created", "refused"), ("Completed", "running")] == seen
    assert "completed" == payments.get("busy").state


@pytest.mark.case("M7")
def test_instances_of_a_dropped_state_are_moved_in_batches(payments: Automaton):
    """Migrations move all free instances of a state; those with a transition move after it has ended."""
    number = 10_000 if payments.store.url.startswith("memory") else 300
    keys = [f"{each:05}" for each in range(number)]
    payments.store.do(place(keys, "created", payments.store.now))
    for key in keys[:3]:
        payments.send("Paid", key)
    payments.store.end(payments.store.claim(1)[0], failed())
    payments.store.wait(60)
    counts = payments.store.do(manage.counts())
    assert [("created", number, 3)] == [(each.state, each.number, each.busy) for each in counts]
    moved, after = 0, ""
    while True:
        batch = payments.migrate("created", "review", after=after, limit=1000)
        moved, after = moved + len(batch.keys), batch.last or ""
        if not after:
            break

    assert number - 3 == moved
    payments.store.cancel(payments.get(keys[0]).job_id or 0)
    payments.skip(keys[0])
    assert (keys[0],) == payments.migrate("created", "review").keys
    assert ({"review"}, payments.store.now) == (
        {payments.get(key).state for key in (keys[0], keys[-1])},
        payments.get(keys[-1]).entered_at,
    )


@pytest.mark.case("M8")
def test_a_guard_decides_by_the_data_under_the_lock(store: Harness):
    """Guards read the data of the transition that committed last; their errors reach the sender and spend nothing."""
    payments = Automaton(store, payment(guard=lambda event, value: 10 / event["n"] > value))
    payments.send("Created")
    operation = payments.sending("Paid", payload=b'{"n":2}')
    payments.run(DataChange(data(7)))

    with pytest.raises(NoTransition, match="the guard of paid is false"):
        store.do(operation)
    with pytest.raises(ZeroDivisionError):
        payments.send("Paid", payload=b'{"n":0}')
    assert (1, ["moved"]) == (len(store.jobs()), statuses(payments.history()))
    assert "paid" == payments.send("Paid", payload=b'{"n":1}').to_state


@pytest.mark.case("M9")
def test_an_event_key_has_one_answer(payments: Automaton):
    """Events with one key that come at once and later have one answer; other content is an error."""
    payments.walk("Created")
    first, second = payments.store.at_once([payments.sending("Paid", event_key="evt-1") for _ in range(2)])
    payments.run()
    payments.walk("Completed")
    third = payments.send("Paid", event_key="evt-1")

    assert first == second == third
    assert ["moved"] * 3 == statuses(payments.history())
    with pytest.raises(EventConflict, match="of 'a', Paid with other content"):
        payments.send("Paid", event_key="evt-1", payload=b'{"n":2}')


@pytest.mark.case("M10")
def test_a_failure_moves_the_instance_once_after_its_catch(payments: Automaton):
    """Old states are kept until the move to `failed_to`, which happens once, after the catch, across a dead worker."""
    payments.walk("Created", "Paid")
    payments.retry = "0 1s catch mend"
    payments.send("Completed")
    payments.fail()
    worker = payments.store.worker("dies:1")
    (catch,) = payments.store.claim(worker=worker)
    payments.store.end(catch, failed("the catch fails"))
    payments.store.wait(60)
    (catch,) = payments.store.claim(worker=worker)
    assert ("paid", "running", ()) == (payments.get().state, payments.get().status, payments.turns())
    payments.store.wait(60)
    payments.store.sweep()
    (catch,) = payments.store.claim()
    assert 3 == catch.attempt
    payments.store.end(catch, Succeeded())

    assert ("paid", InstanceStatus.FAILED) == (payments.get().state, payments.get().status)
    done = payments.store.at_once(
        [turns.take_turns(payments.known, payments.resolve, budget=9, now=payments.store.now) for _ in range(2)]
    )
    assert [MoveStatus.RUNNING] == [turn.status for each in done for turn in each.turns]
    payments.run()
    assert ("review", [FAILED, "Completed"]) == (
        payments.get().state,
        [each.event for each in reversed(payments.history()[2:])],
    )
    assert "no such user" == payments.history()[2].error
    assert payments.store.now == payments.get().entered_at
