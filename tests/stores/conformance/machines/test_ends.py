"""The ends of transitions."""

from __future__ import annotations

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.machine import FAILED, DataChange, InstanceStatus
from redrive.engine.outcome import Cancelled, Released, Succeeded
from redrive.errors import IllegalMove
from redrive.stores.operations.machines import manage
from tests.stores.helpers import failed, new
from tests.stores.machines import DAY, Automaton, data, statuses


def test_the_effects_of_a_transition_commit_with_its_end(payments: Automaton):
    """Data, next event, timeout and history are written by the transaction that ends the attempt."""
    payments.walk("Created")
    payments.send("Paid")
    claim = payments.take()
    effects = payments.effects(claim, DataChange(data(7)), payments.following("Completed", "completed"))
    payments.store.end(claim, Succeeded(effects=effects))

    found = payments.get()
    assert ("paid", "completed", b"7", "Completed") == (found.state, found.to_state, found.data, found.event)
    assert payments.store.now + 3 * DAY == found.timeout_at
    assert ["moved", "moved", "running"] == statuses(payments.history())
    payments.run()
    assert ("completed", InstanceStatus.COMPLETED, None) == (
        payments.get().state,
        payments.get().status,
        payments.get().timeout_at,
    )


def test_a_failed_attempt_has_no_effects(payments: Automaton):
    """Nothing of a failed attempt is visible, and the next attempt decides anew."""
    payments.walk("Created")
    payments.send("Paid")
    payments.store.end(payments.take(), failed())
    payments.store.wait(1)
    payments.run()

    assert ("paid", None, None) == (payments.get().state, payments.get().to_state, payments.get().data)
    assert ["moved", "moved"] == statuses(payments.history())


def test_a_repeated_settle_moves_once(payments: Automaton):
    """Ends that are settled again, because the reply of their commit was lost, make no second move or next event."""
    payments.walk("Created")
    payments.send("Paid")
    claim = payments.take()
    outcome = Succeeded(effects=payments.effects(claim, payments.following("Completed", "completed")))
    payments.store.end(claim, outcome)
    payments.store.end(claim, outcome)

    assert (2, ["moved", "moved", "running"]) == (payments.get().moves, statuses(payments.history()))
    assert 3 == len(payments.store.jobs())


def test_a_final_failure_leaves_the_old_state(payments: Automaton):
    """Instances with a transition that has failed for good stay in their state, with the event and the error."""
    payments.walk("Created")
    payments.send("Paid")
    claim = payments.fail()

    found = payments.get()
    assert ("created", "paid", "Paid") == (found.state, found.to_state, found.event)
    assert (InstanceStatus.FAILED, "no such user", claim.id) == (found.status, found.error, found.job_id)
    assert ("failed", "no such user", 1) == (
        payments.history()[1].status,
        payments.history()[1].error,
        payments.history()[1].attempts,
    )


def test_a_cancelled_transition_has_failed(payments: Automaton):
    """Instances with a transition that is cancelled, by an operator or by its handler, have failed."""
    payments.send("Created", "a")
    payments.send("Created", "b")
    payments.store.cancel(payments.get("a").job_id or 0, "enough")
    payments.fail(Cancelled("not needed"))

    assert [("failed", "enough"), ("failed", "not needed")] == [
        (payments.get(key).status, payments.get(key).error) for key in "ab"
    ]


def test_a_released_transition_goes_on(payments: Automaton):
    """Transitions that their worker gives back are neither moved nor failed."""
    payments.send("Created")
    payments.fail(Released("stopped"))
    payments.run()

    assert "created" == payments.get().state


def test_an_instance_fails_after_its_catch(payments: Automaton):
    """Instances stay in their state while the catch task runs and fails, and have failed after it."""
    payments.retry = "0 1s catch mend"
    payments.send("Created")
    payments.fail()
    before = payments.get()
    payments.store.end(payments.take(), failed("still down"))
    payments.store.wait(60)
    during = payments.get()
    catch = payments.take()
    payments.store.end(catch, Succeeded())

    assert ("mend", "machine:payment/a") == (catch.task, catch.origin)
    assert [(InstanceStatus.RUNNING, "no such user")] * 2 == [(each.status, each.error) for each in (before, during)]
    assert (InstanceStatus.FAILED, "no such user") == (payments.get().status, payments.get().error)
    assert (1, "failed") == (payments.history()[0].attempts, payments.history()[0].status)


def test_a_failure_may_lead_to_a_state(payments: Automaton):
    """Instances with a transition that has failed for good move to the state of `failed_to`, once, with the error."""
    payments.walk("Created", "Paid")
    payments.send("Completed")
    claim = payments.fail()

    failed_one = payments.get()
    assert ("paid", InstanceStatus.FAILED) == (failed_one.state, failed_one.status)
    assert payments.look().events
    (turn,) = payments.turns()
    assert (FAILED, "paid", "review") == (turn.event, turn.from_state, turn.to_state)
    assert ((), ("paid", "review")) == (payments.turns(), (payments.get().state, payments.get().to_state))
    payments.run()
    assert ("review", InstanceStatus.RUNNING, None) == (
        payments.get().state,
        payments.get().status,
        payments.get().error,
    )
    assert [
        (None, "created", "Created", "moved"),
        ("created", "paid", "Paid", "moved"),
        ("paid", "completed", "Completed", "failed"),
        ("paid", "review", FAILED, "moved"),
    ] == payments.moves_of()
    dead = payments.store.job(claim.id)
    assert (State.DEAD, True) == (dead.state, dead.caught_at is not None)


def test_a_catch_runs_before_the_state_of_a_failure(payments: Automaton):
    """Instances keep their state until the catch task has succeeded, and move to `failed_to` then."""
    payments.walk("Created", "Paid")
    payments.retry = "0 1s catch mend"
    payments.send("Completed")
    payments.fail()

    assert (False, "running", ()) == (payments.look().events, payments.get().status, payments.turns())
    payments.store.end(payments.take(), Succeeded())
    payments.turns()
    payments.run()
    assert "review" == payments.get().state


def test_a_superseded_transition_changes_nothing(payments: Automaton):
    """Transitions of instances that were reset or deleted end without a move."""
    payments.send("Created", "a")
    payments.send("Created", "b")
    payments.store.cancel(payments.get("a").job_id or 0)
    payments.store.cancel(payments.get("b").job_id or 0)
    payments.reset("paid", "a")
    payments.delete("b")

    for number in (job.id for job in payments.store.jobs()):
        with pytest.raises(IllegalMove, match="left behind|was deleted"):
            payments.store.retry(number)
    assert "paid" == payments.get("a").state


def test_a_redriven_transition_continues(payments: Automaton):
    """Redriving the job of a failed transition, alone or with others, puts its instance back into the transition."""
    payments.send("Created", "a")
    payments.send("Created", "b")
    payments.send("Created", "c")
    for _ in range(3):
        payments.fail()
    payments.reset("paid", "c")
    payments.store.retry(payments.get("a").job_id or 0)
    result = payments.store.redrive()

    assert [("running", None)] * 2 == [(payments.get(key).status, payments.get(key).error) for key in "ab"]
    assert 1 == len(result.ids)
    for _ in range(2):
        payments.run()
    assert ["created", "created", "paid"] == [payments.get(key).state for key in "abc"]
    assert [["moved"], ["moved"], ["skipped", "moved"]] == [statuses(payments.history(key)) for key in "abc"]


def test_jobs_of_many_origins_end_together(payments: Automaton):
    """Batches of ends move each instance, whatever other jobs they contain."""
    payments.send("Created", "a")
    payments.send("Created", "b")
    payments.store.put(new())
    claims = payments.store.claim(3)
    ends = [(each, Succeeded(effects=payments.effects(each)) if each.origin else Succeeded(b"1")) for each in claims]
    payments.store.settle(*ends)

    assert ["created", "created"] == [payments.get(key).state for key in "ab"]


def test_a_transition_without_its_event_still_moves(payments: Automaton):
    """Instances move, and fail, even if the row of the event is missing."""
    payments.send("Created", "a")
    payments.send("Created", "b")
    claims = payments.store.claim(2)
    for key in "ab":
        row = payments.get(key)
        payments.delete_history(key)
        assert row.job_id
    payments.store.settle((claims[0], Succeeded()), (claims[1], failed(permanent="no")))

    assert [("created", "running"), (None, "failed")] == [
        (payments.get(key).state, payments.get(key).status) for key in "ab"
    ]
    payments.store.retry(payments.get("b").job_id or 0)
    assert ("running", 2) == (payments.get("b").status, len(payments.store.do(manage.select("payment"))))
