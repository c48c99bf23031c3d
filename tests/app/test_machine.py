"""State machines: how they are declared, what a handler may do, and how events are sent."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App, CatchRequest, Context, FailedTransition, Machine, Pending, Policy, Tasks, observe
from redrive.app.machines.machines import MigrationResult
from redrive.app.machines.state import DataCodec
from redrive.engine.machine import InstanceStatus, MoveStatus
from redrive.errors import (
    CatchDefinitionError,
    ConfigurationError,
    EventConflict,
    IllegalMove,
    InstanceNotFound,
    MachineBusy,
    MachineDefinitionError,
    MachineError,
    MachineFailed,
    NoTransition,
    PayloadError,
    TaskDefinitionError,
)
from redrive.stores.operations.machines.send import SentStatus
from redrive.testing import VirtualClock, drain


@dataclass
class Created:
    """The event of a start."""

    amount: int = 0


@dataclass
class Paid:
    """The event after it."""

    amount: int = 0


@dataclass
class Completed:
    """The last event."""


@dataclass
class Expired:
    """The event of a timeout."""


@dataclass
class Order:
    """The data of an instance."""

    total: int


def nothing(event: Created) -> None:
    """Do nothing."""


def payment(app: App | Tasks, **options: Any) -> Machine:
    """Return a machine with three states and a timeout, and handlers that do nothing."""
    machine = app.machine("payment", **options)

    @machine.start
    def created(event: Created) -> None:
        pass

    @machine.state(after=[created], timeout=("3 days", Expired()), within="1h")
    async def paid(event: Paid) -> None:
        pass

    @machine.state(after=paid)
    def completed(event: Completed) -> None:
        pass

    @machine.state(after="paid")
    def expired(event: Expired) -> None:
        pass

    return machine


# --------------------------------------------------------------------------------------------------------- declaration


def test_a_machine_walks_through_its_states(app: App):
    """Instances walk along their events, and their handlers are jobs of the states."""
    machine = payment(app)
    for event, state in ((Created(5), "created"), (Paid(5), "paid"), (Completed(), "completed")):
        sent = machine.send("a", event)
        assert (SentStatus.STARTED, state) == (sent.status, sent.to_state)
        assert f"payment.{state}" == app.job(sent.id or 0).record.task
        drain(app, within=0)

    found = machine.get("a")
    assert ("completed", InstanceStatus.COMPLETED) == (found.state, found.status)
    assert (None, None) == (found.to_state, found.error)
    assert ["Completed", "Paid", "Created"] == [move.event for move in found.history()]
    assert "<instance 'a' of machine payment: completed, completed>" == repr(found)
    assert "<machine payment: created, paid, completed, expired>" == repr(machine)


def test_a_state_is_a_function(app: App):
    """States can be called as the functions that they are, and are enqueued by events only."""
    machine = app.machine("payment")
    created = machine.start(nothing)

    assert (None, "<state nothing of machine payment>") == (created(Created()), repr(created))
    with pytest.raises(TaskDefinitionError, match="'payment.nothing' is a state, and only an event begins its job"):
        created.enqueue(Created())


def test_handlers_are_sync_or_async_and_take_a_context(app: App):
    """Handlers of either colour receive the event, and a context with the key and the origin of the instance."""
    machine = app.machine("payment")
    seen: list[tuple[Any, ...]] = []

    @machine.start
    def created(event: Created, ctx: Context) -> None:
        seen.append((event, ctx.key, ctx.origin, ctx.data))

    @machine.state(after=[created])
    async def paid(ctx: Context, event: Paid) -> None:
        seen.append((event, ctx.key, ctx.attempt))

    machine.send("a/b", Created(1))
    drain(app)
    machine.send("a/b", Paid(2))
    drain(app)
    assert [(Created(1), "a/b", "machine:payment/a/b", None), (Paid(2), "a/b", 1)] == seen


def test_a_collection_declares_machines(app: App):
    """Machines of a collection belong to the app that includes it."""
    tasks = Tasks()
    machine = payment(tasks)
    app.include(tasks)
    machine.send("a", Created())
    drain(app, within=0)

    assert ("created", machine) == (machine.get("a").state, app.machines.find("payment"))
    other = Tasks()
    payment(other)
    with pytest.raises((MachineDefinitionError, TaskDefinitionError), match="two (machines|tasks) are called"):
        app.include(other)


def test_two_empty_machines_of_one_name_cannot_be_included(app: App):
    """Machines of a collection need names of their own in the app."""
    app.machine("payment")
    tasks = Tasks()
    tasks.machine("payment")

    with pytest.raises(MachineDefinitionError, match="two machines are called 'payment', in .*test_machine:"):
        app.include(tasks)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("payment", "two machines are called 'payment', in .*test_machine:.* and in .*test_machine:"),
        ("a/b", "the machine 'a/b' has a slash in its name"),
        ("", "the name of a machine must be a text that is not empty"),
    ],
)
def test_a_bad_name_is_refused(app: App, name: str, text: str):
    """Names of machines are unique texts without a slash."""
    app.machine("payment")

    with pytest.raises(ConfigurationError, match=text):
        app.machine(name)


@pytest.mark.parametrize("options", [{"retry": "3 1x"}, {"busy": "wait"}, {"keep_completed_for": "0s"}])
def test_a_bad_option_of_a_machine_is_refused_at_once(app: App, options: dict[str, Any]):
    """Policies and other options of a machine are read when it is declared, and a refused one leaves no machine."""
    with pytest.raises(ConfigurationError):
        app.machine("payment", **options)

    app.machine("payment")


def test_a_bad_timeout_is_refused_at_its_state(app: App):
    """Times that cannot be read are refused when the state is declared; words are a time."""
    machine = app.machine("payment")

    with pytest.raises(
        ConfigurationError, match="machine 'payment': state 'nothing': timeout: there is no unit 'dayz'"
    ):
        machine.start(timeout=("3 dayz", Paid()))(nothing)
    with pytest.raises(ConfigurationError, match="state 'nothing': timeout: '20000d' is more than 50 years"):
        machine.start(timeout=("20000d", Paid()))(nothing)
    assert {} == machine.tasks
    machine.start(timeout=("2 weeks", Paid()))(nothing)
    assert (timedelta(days=14), Paid()) == machine.tasks["nothing"].timeout_event


def two_events(event: Created, other: Paid) -> None:
    """Take too much."""


def no_event(ctx: Context) -> None:
    """Take too little."""


def open_event(event: Any) -> None:
    """Take anything."""


def returns(event: Created) -> int:
    """Return something."""
    return event.amount


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (two_events, "state 'two_events' must take exactly one event .* but it takes event, other"),
        (no_event, "state 'no_event' must take exactly one event .* but it takes none"),
        (open_event, "state 'open_event': annotate 'event' with the class of its event"),
        (returns, "state 'returns' returns int, but nothing reads the result: make it -> None"),
    ],
)
def test_a_wrong_handler_is_refused(app: App, handler: Callable[..., Any], text: str):
    """Handlers take one event and return nothing; a refused one leaves nothing behind."""
    machine = app.machine("payment")

    with pytest.raises(MachineDefinitionError, match=text):
        machine.start(handler)
    assert ({}, {}) == (machine.tasks, dict(app.tasks))


WRONG_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "after": ({"after": [7]}, "after takes states, or names of states, got 7"),
    "timeout": ({"timeout": "3d"}, "is a time and an event, as in timeout=\\(\"3 days\", Expired\\(\\)\\), got '3d'"),
    "no time": ({"timeout": ("0s", Paid())}, "timeout must be positive"),
    "unknown event": (
        {"timeout": ("1d", Expired())},
        "timeout of 'nothing' sends Expired, but no state takes that",
    ),
    "within": ({"within": "0s"}, "within must be positive"),
    "when": ({"when": 7}, "when= takes a function of the event and the data, got 7"),
    "guard": ({"when": lambda a, b, c: a}, "or of the event and the data, got one with the parameters \\(a, b, c\\)"),
    "ignore": ({"ignore": "Paid"}, "ignore takes a list of classes of events, got 'Paid'"),
    "ignored": ({"ignore": [Paid()]}, "ignore takes classes of events, and Paid"),
    "failed_to": ({"failed_to": "gone"}, "failed_to='gone', but there is no state 'gone'"),
}


@pytest.mark.parametrize("wrong", WRONG_OPTIONS)
def test_a_wrong_option_is_refused(app: App, wrong: str):
    """Options of a state that cannot be meant are refused, at the latest when the app is checked."""
    options, text = WRONG_OPTIONS[wrong]

    def declare() -> None:
        app.machine("payment").start(**options)(nothing)
        app.check()

    with pytest.raises(ConfigurationError, match=text):
        declare()


def test_an_async_guard_is_refused(app: App):
    """Guards are plain functions, because they run under a lock."""

    async def guard(event: Created) -> bool:
        return True

    with pytest.raises(MachineDefinitionError, match="when= takes a plain function"):
        app.machine("payment").start(when=guard)(nothing)


def test_states_of_another_machine_are_refused(app: App):
    """States come after states of their own machine."""
    created = app.machine("one").start(nothing)

    with pytest.raises(MachineDefinitionError, match="is a state of another machine"):
        app.machine("two").state(after=[created])(nothing)


def test_an_ambiguous_state_is_refused_at_once(app: App):
    """Two states that follow one state by one class of event are an error at the second one."""
    machine = app.machine("payment")
    machine.start(nothing)

    def other(event: Created) -> None:
        """Do nothing."""

    with pytest.raises(MachineDefinitionError, match="the event Created leads to 'nothing' and to 'other'"):
        machine.start(other)
    with pytest.raises(MachineDefinitionError, match="has two states called 'nothing'"):
        machine.start(nothing)


def test_two_classes_of_one_name_are_refused(app: App):
    """Classes of events have names of their own within a machine, because events are stored with them."""
    machine = app.machine("payment")
    machine.start(nothing)
    another = dataclass(type("Created", (), {}))

    def paid(event: Any) -> None:
        """Do nothing."""

    paid.__annotations__["event"] = another
    with pytest.raises(MachineDefinitionError, match="two classes of events are called 'Created'"):
        machine.state(after="nothing")(paid)


def test_a_machine_without_a_start_is_refused_at_its_first_use(app: App):
    """Machines need a start state."""
    machine = app.machine("payment")
    machine.state(after="nothing")(nothing)

    with pytest.raises(MachineDefinitionError, match="machine 'payment' has no start states"):
        app.check()


def test_doubtful_states_are_warned_of(app: App):
    """States that are never entered, or never left for a final one, give a warning at the first use."""
    machine = app.machine("payment")
    machine.start(after="nothing")(nothing)

    with pytest.warns(RuntimeWarning, match="no final state can be reached from 'nothing'"):
        app.check()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine.check()


def test_a_policy_of_a_state_replaces_the_one_of_the_machine(clock: VirtualClock):
    """Policies come from the state, then from the machine, then from the app, each as a whole."""
    app = App("memory://", clock=clock, retry="7 1s")
    machine, other = app.machine("one", retry="10 1s 10s"), app.machine("two")

    def declared(machine: Machine, name: str, retry: str | None = None) -> Policy:
        return machine.start(retry=retry, name=name, when=lambda event: True)(nothing).policy

    assert [Policy.parse(each).durable() for each in ("1 1s 1s", "10 1s 10s", "0", "7 1s")] == [
        declared(machine, "a", "1 1s 1s"),
        declared(machine, "b"),
        declared(machine, "c", "0"),
        declared(other, "d"),
    ]


def test_a_catch_of_a_machine_must_fit_its_events(app: App):
    """Catch tasks of a machine take the events of all transitions, or the state is refused."""

    @app.task
    def mend(request: CatchRequest[Created]) -> None:
        pass

    def paid(event: Paid) -> None:
        """Do nothing."""

    machine = app.machine("payment", retry="0 1s catch mend")
    created = machine.start(nothing)

    with pytest.raises(CatchDefinitionError, match="task 'payment.paid' is caught by 'mend'"):
        machine.state(after=[created])(paid)


def test_a_catch_of_a_machine_takes_a_union_of_its_events(app: App):
    """One catch task serves transitions with different events, and gets the event of the one that has failed."""
    caught: list[Any] = []

    @app.task
    def mend(request: CatchRequest[Created | Paid]) -> None:
        caught.append((request.request, request.request_type))

    machine = app.machine("payment", retry="0 1s catch mend")

    @machine.start
    def created(event: Created) -> None:
        """Do nothing."""

    @machine.start(when=lambda event: True, name="other")
    def other(event: Paid) -> None:
        raise OSError

    @machine.state(after=[created])
    def paid(event: Paid) -> None:
        raise OSError

    machine.send("a", Created())
    drain(app)
    machine.send("a", Paid())
    machine.send("b", Paid())
    drain(app)

    assert [(Paid(), "Paid")] * 2 == caught


def test_a_union_without_an_event_is_refused(app: App):
    """A catch task must take each event that it can get."""

    @app.task
    def mend(request: CatchRequest[Created | int]) -> None:
        """Do nothing."""

    machine = app.machine("payment", retry="0 1s catch mend")
    created = machine.start(nothing)

    with pytest.raises(CatchDefinitionError, match=r"takes CatchRequest\[.*Created \| int\]; it would have to take"):

        @machine.state(after=[created])
        def paid(event: Paid) -> None:
            """Do nothing."""


# --------------------------------------------------------------------------------------------------------------- events


def test_an_event_of_another_class_is_refused(app: App):
    """Events of a class that the machine does not take are refused with the state and its candidates."""
    machine = payment(app)
    machine.send("a", Created())
    drain(app, within=0)

    with pytest.raises(NoTransition, match=r"from state created for type int, candidates are paid \(on Paid\)"):
        machine.send("a", 7)
    with pytest.raises(NoTransition, match="machine 'payment' takes no int; its events: Created, Paid"):
        machine.send("a", 7, busy="queue")


def test_bad_arguments_are_refused(app: App):
    """Keys are texts, events fit their classes, and the behaviour is one of three words."""
    machine = payment(app)

    with pytest.raises(ConfigurationError, match="the key '' is invalid"):
        machine.send("", Created())
    with pytest.raises(ConfigurationError, match="key, the key of an event, must be a text"):
        machine.send("a", Created(), key="")
    with pytest.raises(PayloadError, match="payment.created: "):
        machine.send("a", Created("many"))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="busy is .*'raise'"):
        machine.send("a", Created(), busy="wait")  # type: ignore[arg-type]
    with pytest.raises(InstanceNotFound):
        machine.get("a")
    with pytest.raises(ConfigurationError, match="takes the new state for each old one"):
        machine.migrate(["created"])  # type: ignore[arg-type]
    for read in (machine.select, machine.overdue, lambda limit: machine.history("a", limit=limit)):
        with pytest.raises(ConfigurationError, match="limit must be a whole number above zero, got -1"):
            read(limit=-1)


def test_a_repeated_key_has_the_first_answer(app: App):
    """Events with one key and one content have one answer; other content is an error."""
    machine = payment(app)
    first = machine.send("a", Created(1), key="webhook-1")
    drain(app, within=0)

    assert first == machine.send("a", Created(1), key="webhook-1")
    with pytest.raises(EventConflict, match="Created with other content"):
        machine.send("a", Created(2), key="webhook-1")


def test_a_busy_instance_refuses_queues_or_drops(app: App):
    """Machines define what happens while a transition runs, and each send may define it otherwise."""
    machine = payment(app, busy="queue")
    assert SentStatus.STARTED is machine.send("a", Created()).status

    assert SentStatus.QUEUED is machine.send("a", Paid()).status
    assert SentStatus.DROPPED is machine.send("a", Paid(), busy="drop").status
    with pytest.raises(MachineBusy):
        machine.send("a", Paid(), busy="raise")
    drain(app, within=0)
    assert "paid" == machine.get("a").state


def test_an_event_that_waits_starts_at_once_on_a_free_instance(app: App):
    """Events in line start at once if their instance is free, as the answer shows."""
    machine = payment(app)
    sent = machine.send("a", Created(), busy="queue")

    assert (SentStatus.STARTED, None, "created") == (sent.status, sent.from_state, sent.to_state)
    drain(app, within=0)
    assert SentStatus.QUEUED is machine.send("a", Completed(), busy="queue").status
    assert MoveStatus.REFUSED is machine.get("a").history()[0].status


def test_events_are_sent_asynchronously(app: App):
    """Asynchronous methods do what the synchronous ones do."""
    machine = payment(app)

    async def play() -> tuple[Any, ...]:
        sent = await machine.asend("a", Created())
        queued = await machine.asend("b", Created(), busy="queue")
        found = await machine.aget("a")
        return sent.status, queued.status, found.to_state, [move.event for move in await found.ahistory()]

    assert (SentStatus.STARTED, SentStatus.STARTED, "created", ["Created"]) == asyncio.run(play())


def test_an_instance_knows_its_possible_events(app: App):
    """Instances answer which events are possible in their state, and none while a transition runs."""
    machine = app.machine("payment", data=Order)

    @machine.start
    def created(event: Created, ctx: Context) -> None:
        ctx.set_data(Order(5))

    @machine.state(after=[created], when=lambda event, data: event.amount == data.total)
    def paid(event: Paid) -> None:
        pass

    machine.send("a", Created())
    busy = machine.get("a")
    drain(app)
    free = machine.get("a")

    assert (False, (), "created") == (busy.can(Paid), busy.events(), busy.to_state)
    assert ((Paid,), True, False) == (free.events(), free.can(Paid), free.can(Created))
    assert (True, False, False, Order(5)) == (free.can(Paid(5)), free.can(Paid(4)), free.can(Created()), free.data)
    assert (None, None, "a") == (free.job_id, free.timeout_at, free.key)


# ------------------------------------------------------------------------------------------------------------ handlers


def chain(app: App, *, body: Callable[[Context], None], **options: Any) -> Machine:
    """Return a machine with a handler that begins the next transition by itself."""
    machine = app.machine("chain", retry="2 1s", **options)

    @machine.start
    def first(event: Created, ctx: Context) -> None:
        body(ctx)

    @machine.state(after=[first])
    def second(event: Paid) -> None:
        pass

    return machine


def test_a_handler_sends_the_next_event(app: App):
    """Events that a handler sends by its context begin the next transition when the first one has ended."""
    machine = chain(app, body=lambda ctx: ctx.next(Paid(3)))
    machine.send("a", Created())
    drain(app)

    assert [("next", "moved"), ("send", "moved")] == [(m.source, m.status) for m in machine.get("a").history()]


def test_the_next_event_of_a_failed_attempt_is_discarded(app: App):
    """Attempts that fail have no next event, and the next attempt may send one."""

    def body(ctx: Context) -> None:
        ctx.next(Paid(ctx.attempt))
        if ctx.attempt == 1:
            raise ValueError("no")

    machine = chain(app, body=body)
    machine.send("a", Created())
    drain(app)

    assert ("second", 2) == (machine.get("a").state, len(machine.get("a").history()))


def twice(ctx: Context) -> None:
    """Send two next events."""
    ctx.next(Paid())
    ctx.next(Paid())


WRONG_STEPS: dict[str, tuple[Callable[[Context], None], str]] = {
    "twice": (twice, "MachineError: .* already has its next event"),
    "wrong": (
        lambda ctx: ctx.next(Created()),
        "NoTransition: invalid event 'Created' for state 'first' of machine 'chain'; possible: Paid to second",
    ),
    "unknown": (lambda ctx: ctx.next(7), "NoTransition: invalid event 'int' for state 'first'"),
    "no data": (lambda ctx: ctx.set_data(7), "ConfigurationError: machine 'chain' has no data"),
}


@pytest.mark.parametrize("wrong", WRONG_STEPS)
def test_a_wrong_step_fails_the_attempt(app: App, wrong: str):
    """Handlers that send two next events, one without a transition, or data to a machine without any, fail."""
    body, text = WRONG_STEPS[wrong]
    machine = chain(app, body=body)
    machine.send("a", Created())
    drain(app)

    found = machine.get("a")
    assert (None, InstanceStatus.FAILED, 3) == (found.state, found.status, found.history()[0].attempts)
    error = app.job(found.job_id or 0).attempts[0]
    assert re.match(text, f"{(error.error_type or '').rpartition('.')[2]}: {error.error}")


def test_other_jobs_have_no_transition(app: App):
    """Contexts of other jobs refuse the methods of a transition."""
    errors: list[str] = []

    @app.task
    def plain(ctx: Context) -> None:
        for call in (lambda: ctx.next(Paid()), lambda: ctx.set_data(1)):
            with pytest.raises(ConfigurationError) as refused:
                call()
            errors.append(str(refused.value))
        assert ctx.data is None

    job = plain.enqueue()
    drain(app)
    assert ("succeeded", 2) == (job.refresh().state, len(errors))
    assert (
        "ctx.next() belongs to a transition of a state machine, and this job is none: use machine.send()" == errors[0]
    )


def test_the_data_of_an_instance_change_with_its_moves(app: App):
    """Handlers read the data of the last move and replace them; those of a failed attempt are discarded."""
    seen: list[Any] = []

    def body(ctx: Context) -> None:
        seen.append(ctx.data)
        ctx.set_data(Order(ctx.attempt))
        seen.append(ctx.data)
        if ctx.attempt == 1:
            raise ValueError("no")

    machine = chain(app, body=body, data=Order)
    machine.send("a", Created())
    drain(app)

    assert ([None, Order(1), None, Order(2)], Order(2)) == (seen, machine.get("a").data)


def test_data_fit_their_class(app: App):
    """Data that do not fit the class fail the attempt; stored ones that do not are an error when they are read."""
    machine = chain(app, body=lambda ctx: ctx.set_data({"total": "many"}), data=Order)
    machine.send("a", Created())
    drain(app)
    assert "the data do not fit Order" in (machine.get("a").error or "")

    with pytest.raises(PayloadError, match="the stored data do not match Order"):
        machine.read_data(b"7")
    with pytest.raises(MachineDefinitionError, match="its data cannot be stored"):
        app.machine("odd", data=Callable)


def test_unreadable_data_give_the_job_back(app: App):
    """Jobs of instances with data that this code cannot read wait for a worker with other code."""
    machine = chain(app, body=lambda ctx: ctx.set_data(Order(1)), data=Order)

    @machine.state(after="second")
    def third(event: Completed, ctx: Context) -> None:
        pass

    for event in (Created(), Paid()):
        machine.send("a", event)
        drain(app)
    machine.send("a", Completed())
    machine.codec = DataCodec(int, "chain")
    drain(app, within="1s")

    assert ("second", "third") == (machine.get("a").state, machine.get("a").to_state)


def test_a_transition_cannot_wait_for_an_answer(app: App):
    """Handlers that return `Pending` fail for good, because a transition returns nothing."""
    machine = app.machine("payment")

    @machine.start
    def created(event: Created):  # type: ignore[no-untyped-def]
        return Pending("1h")

    machine.send("a", Created())
    drain(app)
    assert InstanceStatus.FAILED is machine.get("a").status
    assert "a transition cannot wait for an answer from outside" in (machine.get("a").error or "")


def test_a_failure_leads_to_another_state(app: App):
    """Transitions that fail for good lead to the state of `failed_to`; its handler receives the failure."""
    machine = app.machine("payment")
    seen: list[FailedTransition] = []

    @machine.start(failed_to="review")
    def created(event: Created) -> None:
        raise ValueError("no")

    @machine.state()
    def review(event: FailedTransition) -> None:
        seen.append(event)

    sent = machine.send("a", Created())
    drain(app)

    assert ("review", InstanceStatus.COMPLETED) == (machine.get("a").state, machine.get("a").status)
    assert [FailedTransition("payment", "a", None, "created", "Created", "no", sent.id or 0)] == seen


def test_a_timeout_fires_in_virtual_time(app: App, clock: VirtualClock):
    """Drains advance the clock to the timeouts of states."""
    machine = payment(app)
    machine.send("a", Created())
    drain(app, within=0)
    machine.send("a", Paid())
    drained = drain(app)

    assert (timedelta(days=3), "expired") == (drained.took, machine.get("a").state)


# ------------------------------------------------------------------------------------------------------------ operators


def broken(app: App) -> Machine:
    """Return a machine with a first transition that fails until a list of errors is empty."""
    return chain(app, body=lambda _: 1 / 0)  # type: ignore[arg-type, return-value]


def test_a_failed_instance_is_retried_skipped_reset_or_deleted(app: App):
    """Failed instances refuse events until an operator has acted on them."""
    machine = broken(app)
    for key in "abcd":
        machine.send(key, Created())
    drain(app)
    with pytest.raises(MachineFailed, match="division by zero"):
        machine.send("a", Created())

    machine.retry("a", actor="ann")
    assert InstanceStatus.RUNNING is machine.get("a").status
    assert None is machine.skip("b").state
    assert "second" == machine.reset("c", "second").state
    machine.delete("d")
    with pytest.raises(InstanceNotFound):
        machine.get("d")
    with pytest.raises(IllegalMove, match="'c' has no transition to retry; it is in 'second'"):
        machine.retry("c")
    with pytest.raises(MachineDefinitionError, match="has no state 'third'; known states: first, second"):
        machine.reset("c", "third")
    assert "ann" == app.database.audit()[-1].actor


def test_operators_act_asynchronously(app: App):
    """Asynchronous actions do what the synchronous ones do."""
    machine = broken(app)
    for key in "abcd":
        machine.send(key, Created())
    drain(app)

    async def play() -> list[Any]:
        await machine.aretry("a")
        skipped, moved = await machine.askip("b"), await machine.areset("c", "second")
        await machine.adelete("d")
        rows, counts = await machine.aselect(), await machine.acounts()
        row, history = await machine.arecord("a"), await machine.ahistory("a")
        moved_on, overdue = await machine.amigrate({"second": "first"}), await machine.aoverdue()
        assert (3, 2, 1, ()) == (len(rows), len(counts), len(history), overdue)
        return [skipped.state, moved.state, row.status, moved_on.moved, await machine.arearm("first")]

    assert [None, "second", InstanceStatus.RUNNING, {"second": 1}, 1] == asyncio.run(play())
    assert (1, 2, "a") == (
        len(machine.history("a")),
        len(app.machines.machine("chain").counts()),
        machine.record("a").key,
    )


def test_instances_of_dropped_states_are_moved(app: App):
    """Stranded instances are counted, and a migration moves them; its dry run only counts."""
    machine = payment(app)
    for key in "abc":
        machine.send(key, Created())
        drain(app, within=0)
        machine.send(key, Paid())
        drain(app, within=0)
    machine.send("c", Completed())
    newer = App("memory://", clock=app.clock)
    newer._store = app.store
    other = newer.machine("payment")
    other.start(name="created")(nothing)

    assert {"paid": 3} == newer.machines.machine("payment").stranded() == asyncio.run(other.astranded())
    plan = MigrationResult({"paid": 2}, {"paid": 1}, {})
    assert plan == other.migrate({"paid": "created"}, dry_run=True)
    assert plan == other.migrate({"paid": "created"})
    assert MigrationResult({"other": 0}, {}, {"paid": 1}) == other.migrate({"other": "created"})
    with pytest.raises(MachineDefinitionError, match="has no state 'gone'"):
        other.migrate({"paid": "gone"})
    with pytest.raises(MachineDefinitionError, match="there is no machine 'none' in this app; known machines: payment"):
        newer.machines.machine("none").stranded()


def test_overdue_instances_are_listed(app: App, clock: VirtualClock):
    """Instances that stay in a state for longer than its limit are listed, and not changed."""
    machine = payment(app)
    machine.send("a", Created())
    drain(app, within=0)
    machine.send("a", Paid())
    drain(app, within=0)
    assert () == machine.overdue()
    clock.advance("1h")

    assert ["a"] == [each.key for each in machine.overdue()]
    assert machine.get("a").timeout_at is not None
    assert ["a"] == [each.key for each in machine.select(state="paid", status="running")]
    assert [("paid", 1)] == [(each.state, each.number) for each in machine.counts()]


def test_timeouts_are_computed_again_on_request(app: App):
    """Rearming applies the present timeout of a state to the instances in it."""
    machine = payment(app)
    machine.send("a", Created())
    drain(app, within=0)
    machine.send("a", Paid())
    drain(app, within=0)
    before = machine.get("a").timeout_at
    machine.tasks["paid"].state = type(machine.tasks["paid"].state)(after="created", timeout=("5d", Expired()))
    del machine._states.__dict__["definition"]

    assert (1, before) == (machine.rearm("paid"), (machine.get("a").timeout_at or before) - timedelta(days=2))  # type: ignore[operator]
    assert isinstance(MachineError(), Exception)


def test_a_name_with_a_control_character_is_refused(app: App):
    """Names of machines and states are printed on one line, so a line break or an escape in one is refused."""
    with pytest.raises(ConfigurationError, match="the name of a machine must have no line break"):
        app.machine("pay\nment")
    machine = app.machine("payment")
    with pytest.raises(ConfigurationError, match="'payment': the name of a state must have no line break"):
        machine.start(name="crea\x1bted")(nothing)


def test_data_are_not_assigned(app: App):
    """Handlers that assign the data of the instance fail with the name of the method that replaces them."""
    machine = app.machine("order", data=Order)

    @machine.start
    def priced(event: Created, ctx: Context) -> None:
        ctx.data = Order(7)

    machine.send("7", Created())
    drain(app)

    assert "ctx.data cannot be assigned: ctx.set_data(value) replaces the data" in (machine.get("7").record.error or "")


def test_a_context_cannot_be_changed(app: App):
    """Assignments to the context of an attempt fail with the name of the attribute."""

    @app.task
    def changes(ctx: Context) -> None:
        ctx.key = "x"  # type: ignore[misc]

    job = changes.enqueue()
    drain(app)

    assert "cannot assign key = 'x': the context of an attempt cannot be changed" == job.attempts[-1].error


@pytest.mark.parametrize("asynchronous", [False, True])
def test_each_new_transition_emits_the_event_of_a_new_job(app: App, asynchronous: bool):
    """Sends and turns emit an event for the job of each transition that they begin, and none for a repetition."""
    machine = payment(app)
    emitted: list[observe.Event] = []

    def send(event: object, **options: Any) -> None:
        if asynchronous:
            asyncio.run(machine.asend("a", event, **options))
        else:
            machine.send("a", event, **options)

    with observe.only(emitted.append):
        send(Created(), key="k1")
        send(Created(), key="k1")
        send(Paid(), busy="queue")
        drain(app, within=0)
        send(Completed(), busy="queue")

    begun = [each for each in emitted if isinstance(each, observe.JobEnqueued)]
    assert ["payment.created", "payment.paid", "payment.completed"] == [each.task for each in begun]
    assert [move.id for move in reversed(machine.get("a").history())] == [each.job_id for each in begun]
    assert {("machine:payment/a", False)} == {(each.origin, each.in_transaction) for each in begun}


def test_renamed_classes_of_events_are_findings(tmp_path: Path):
    """Timeouts and waiting events of classes that the code no longer has are problems of a diagnosis, with remedies."""
    clock, url = VirtualClock(), f"sqlite:///{tmp_path}/app.db"
    with closing(App(url, clock=clock)) as before:
        machine = payment(before)
        for event in (Created(), Paid()):
            machine.send("a", event)
            drain(before, within=0)
        machine.send("b", Created())
        machine.send("b", Paid(), busy="queue")
    with closing(App(url, clock=clock)) as after:
        renamed = after.machine("payment")

        @renamed.start
        def created(event: Created) -> None: ...

        @renamed.state(after=[created], timeout=("1 day", Completed()))
        def paid(event: Order) -> None: ...

        @renamed.state(after=[paid])
        def completed(event: Completed) -> None: ...

        found = [each for each in after.database.diagnose(app="shop:app") if each.check == "machines"]
        assert 1 == renamed.rearm("paid")
        left = [each.text for each in after.database.diagnose() if each.check == "machines"]

    event = "machine 'payment': 1 event of the class Paid waits, which the code does not have"
    timeout = "machine 'payment': 1 instance in 'paid' waits for a timeout with the event Expired, which the code"
    assert [event, f"{timeout} does not have"] == [each.text for each in found]
    assert "deploy code that takes it, or redrive machines rearm shop:app payment paid" == found[1].advice
    assert [event] == left
