"""Events that are sent to instances."""

from __future__ import annotations

import pytest

from redrive.engine.machine import DataChange, Ignored, InstanceStatus
from redrive.errors import ConfigurationError, EventConflict, InstanceNotFound, MachineBusy, MachineFailed, NoTransition
from redrive.stores.operations import queues
from redrive.stores.operations.machines import send as sending
from redrive.stores.operations.machines.rows import MachineEvent
from redrive.stores.operations.machines.send import Busy, Sent, SentStatus
from redrive.stores.operations.queues import QueueChange
from tests.stores.helpers import Harness, failed, seconds
from tests.stores.machines import Automaton, data, payment, statuses


def test_the_first_event_creates_an_instance(payments: Automaton):
    """Instances begin without a state, and with the job of their first transition."""
    sent = payments.send("Created")

    found, job = payments.get(), payments.store.job(sent.id or 0)
    assert (None, "created", InstanceStatus.RUNNING, sent.id) == (
        found.state,
        found.to_state,
        found.status,
        found.job_id,
    )
    assert ("payment.created", "machine:payment/a") == (job.task, job.origin)
    assert Sent("payment", "a", sent.id, SentStatus.STARTED, None, "created") == sent


def test_an_instance_moves_when_its_transition_has_succeeded(payments: Automaton):
    """Instances enter a state when the job of the transition ends, and not before."""
    payments.send("Created")
    payments.store.wait(5)
    payments.run()

    found = payments.get()
    assert ("created", None, None, 1) == (found.state, found.to_state, found.job_id, found.moves)
    assert (payments.store.now, "v1") == (found.entered_at, found.version)
    (move,) = payments.history()
    assert (None, "created", "Created", "moved", 1) == (
        move.from_state,
        move.to_state,
        move.event,
        move.status,
        move.attempts,
    )
    assert seconds(5) == (move.finished_at or move.sent_at) - move.sent_at


def test_a_final_state_completes_an_instance(payments: Automaton):
    """Instances in a state without outgoing transitions are completed, and take no event."""
    assert InstanceStatus.COMPLETED is payments.walk("Created", "Paid", "Completed").status

    with pytest.raises(NoTransition, match="from state completed for type Paid, candidates are none"):
        payments.send("Paid")


def test_an_event_without_a_transition_is_refused(payments: Automaton):
    """Refused events store nothing, and the error names the state and its candidates."""
    with pytest.raises(NoTransition) as unborn:
        payments.send("Paid")
    with pytest.raises(InstanceNotFound, match="machine 'payment' has no instance 'a'"):
        payments.get()
    payments.walk("Created")
    with pytest.raises(NoTransition, match=r"from state created for type Completed, candidates are paid \(on Paid\)"):
        payments.send("Completed")

    assert (None, "Paid", ("created",)) == (unborn.value.state, unborn.value.event_type, unborn.value.candidates)
    assert ["moved"] == statuses(payments.history())


def test_a_busy_instance_refuses_events(payments: Automaton):
    """Events to a busy instance are refused, while its handler runs and while it waits for a retry."""
    sent = payments.send("Created")
    claim = payments.take()

    for _ in range(2):
        with pytest.raises(MachineBusy, match=r"of 'a' from \(new\) to created is already executing") as refused:
            payments.send("Paid")
        assert sent.id == refused.value.job_id
        payments.store.settle((claim, failed()))


def test_busy_instances_may_drop_events(payments: Automaton):
    """Dropped events are not stored; events to an idle instance are not dropped."""
    payments.send("Created", busy=Busy.DROP)

    assert Sent("payment", "a", None, SentStatus.DROPPED) == payments.send("Paid", busy=Busy.DROP)
    assert ["running"] == statuses(payments.history())


def test_an_ignored_event_changes_nothing(payments: Automaton):
    """Ignored events begin no transition; one with a key is remembered."""
    payments.walk("Created", "Paid")
    ignored = Sent("payment", "a", None, SentStatus.IGNORED, "paid")

    assert [ignored] * 3 == [
        payments.send("Paid"),
        payments.send("Paid", event_key="k"),
        payments.send("Paid", event_key="k"),
    ]
    assert ["moved", "moved", "ignored"] == statuses(payments.history())


def test_a_first_event_may_be_ignored_by_the_code(store: Harness):
    """Events that the code ignores before the first transition create nothing but an instance."""
    payments = Automaton(store)
    given = MachineEvent("payment", "a", "Noise", b"{}", "x")

    store.do(payments.sending("Created"))
    payments.run()
    assert SentStatus.IGNORED == store.do(sending.send(given, lambda _: Ignored(), now=store.now)).status


def test_an_event_key_makes_a_send_idempotent(payments: Automaton):
    """Events with the same key and content have the first answer, at once and after later states."""
    payments.walk("Created")
    first = payments.send("Paid", event_key="evt-1")
    again = payments.send("Paid", event_key="evt-1")
    payments.run()
    payments.walk("Completed")

    assert [first] * 2 == [again, payments.send("Paid", event_key="evt-1")]
    assert 3 == len(payments.history())


def test_a_key_names_one_event(payments: Automaton):
    """Another event with the key of an earlier one is an error that names the difference."""
    payments.walk("Created")
    payments.send("Paid", event_key="evt-1")

    with pytest.raises(EventConflict, match="another event of 'a', Paid of .* UTC; this one is Completed"):
        payments.send("Completed", event_key="evt-1")
    with pytest.raises(EventConflict, match="Paid with other content of .* UTC; this one is Paid"):
        payments.send("Paid", event_key="evt-1", payload=b'{"n":2}')


def test_an_ordered_queue_takes_no_transitions(payments: Automaton):
    """Sends are refused if a queue of the machine is ordered, because transitions have no partition."""
    payments.store.do(queues.change("default", QueueChange(ordered=True), now=payments.store.now))
    given = MachineEvent("payment", "a", "Created", b"{}", "x")

    with pytest.raises(ConfigurationError, match="queue 'default' is ordered"):
        payments.store.do(sending.send(given, lambda _: Ignored(), queues=["default"], now=payments.store.now))


def test_guards_read_the_data_under_the_lock(store: Harness):
    """Guards see the data of the transition before, and an error of a guard stores nothing."""
    payments = Automaton(store, payment(guard=lambda event, value: value["total"] > event["least"]))
    payments.send("Created")
    payments.run(DataChange(data({"total": 5})))

    with pytest.raises(NoTransition, match="the guard of paid is false"):
        payments.send("Paid", payload=b'{"least":5}')
    with pytest.raises(KeyError):
        payments.send("Paid", payload=b"{}")
    assert SentStatus.STARTED == payments.send("Paid", payload=b'{"least":4}').status
    assert (["moved", "running"], b'{"total":5}') == (statuses(payments.history()), payments.get().data)


@pytest.mark.parametrize("started", [False, True])
def test_contending_senders_begin_one_transition(payments: Automaton, *, started: bool):
    """Of two senders of one event exactly one begins a transition; the other one is refused."""
    event = "Paid" if started else "Created"
    for key in map(str, range(10)):
        if started:
            payments.walk("Created", key=key)
        answers = payments.store.at_once([payments.sending(event, key), payments.sending(event, key)])

        assert ["MachineBusy", "Sent"] == sorted(type(each).__name__ for each in answers)
        payments.run()
        assert 1 + started == len(payments.history(key))


def test_contending_senders_of_one_key_have_one_answer(payments: Automaton):
    """Events with one key that are sent at once begin one transition, and have the same answer."""
    for key in map(str, range(10)):
        first, second = payments.store.at_once([payments.sending("Created", key, event_key="e") for _ in range(2)])

        assert first == second
        payments.run()


def test_a_failed_instance_refuses_events(payments: Automaton):
    """Events to a failed instance are refused with its error, also those that may be dropped."""
    payments.send("Created")
    job = payments.fail()

    for busy in (Busy.RAISE, Busy.DROP):
        with pytest.raises(
            MachineFailed, match=r"from \(new\) to created has failed: no such user; retry or skip"
        ) as error:
            payments.send("Paid", busy=busy)
        assert job.id == error.value.job_id


def test_a_retry_keeps_the_instance_where_it_is(payments: Automaton):
    """Instances stay in their state while their transition waits for a retry, and move after its success."""
    payments.walk("Created")
    payments.send("Paid")
    payments.store.end(payments.take(), failed())

    assert ("created", "paid", None) == (payments.get().state, payments.get().to_state, payments.get().error)
    payments.store.wait(1)
    payments.run()
    assert ("paid", 2) == (payments.get().state, payments.history()[1].attempts)
