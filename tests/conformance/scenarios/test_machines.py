"""FTL's cases of state machines, for redrive's machines; messages of refusals are redrive's own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from redrive import CatchRequest, Context
from redrive.engine.machine import InstanceStatus
from redrive.engine.records import Filter
from redrive.errors import (
    CatchDefinitionError,
    ConfigurationError,
    MachineBusy,
    MachineDefinitionError,
    MachineFailed,
    NoTransition,
    RedriveError,
    TaskDefinitionError,
)
from redrive.testing import drain


@dataclass
class One:
    """An event."""

    instance: str = ""


@dataclass
class Two:
    """Another event."""

    instance: str = ""


def step(event: One) -> None:
    """Do nothing."""


# ----------------------------------------------------------------------------------------------------------- definition


@pytest.mark.case("ftl.fsm_validation: transition to a verb with a response (kind verb)")
def test_a_state_returns_nothing(app):
    """Handlers that return something are refused."""

    def answers(event: One) -> int:
        return 1

    with pytest.raises(MachineDefinitionError, match="returns int, but nothing reads the result"):
        app.machine("fsm").start(answers)


@pytest.mark.case("ftl.fsm_validation: same FSM name twice")
def test_machines_have_different_names(app):
    """Two machines of one name are refused, with both places."""
    app.machine("fsm")

    with pytest.raises(MachineDefinitionError, match="two machines are called 'fsm', in .*:.* and in .*:"):
        app.machine("fsm")


@pytest.mark.case("ftl.fsm_validation: unknown start verb")
def test_an_unknown_state_is_refused(app):
    """States that are named and not declared are refused."""
    machine = app.machine("fsm")
    machine.start(step)
    machine.state(after="gone", name="next")(step)

    with pytest.raises(MachineDefinitionError, match="there is no state 'gone'; known states: step, next"):
        app.check()


@pytest.mark.case("ftl.fsm_validation: start is not a verb")
def test_a_state_is_a_function(app):
    """States that are no functions are refused."""
    with pytest.raises(TaskDefinitionError, match="7 is no function"):
        app.machine("fsm").start(7)


@pytest.mark.case("ftl.fsm_validation: two transitions out of one state with the same event type")
def test_an_ambiguous_transition_is_refused(app):
    """Two states that follow one state by one class of event are refused; FTL takes the first one in silence."""
    machine = app.machine("fsm")
    start = machine.start(step)
    machine.state(after=[start], name="first")(step)

    with pytest.raises(MachineDefinitionError, match="from 'step' the event One leads to 'first' and to 'second'"):
        machine.state(after=[start], name="second")(step)


@pytest.mark.case("ftl.retry_placement_validation: catch on an FSM-level retry")
def test_a_machine_may_have_a_catch(app):
    """Catch tasks of a machine are accepted if they take the events of its transitions, and refused otherwise.

    FTL refuses all of them.
    """

    @app.task
    def mend(request: CatchRequest[One]) -> None: ...

    def other(event: Two) -> None: ...

    machine = app.machine("fsm", retry="0 5s catch mend")
    start = machine.start(step)

    with pytest.raises(CatchDefinitionError):
        machine.state(after=[start])(other)


# ----------------------------------------------------------------------------------------------------------------- send


def chain(app) -> Any:
    """Return a machine that walks from start over middle to end, each time by One."""
    machine = app.machine("fsm")
    start = machine.start(name="start")(step)
    middle = machine.state(after=[start], name="middle")(step)
    machine.state(after=[middle], name="end")(step)
    return machine


@pytest.mark.case("ftl.fsm_send: walk")
def test_instances_walk_by_their_events(app):
    """Instances move by the events that their states take, and refuse others without a change."""
    machine = chain(app)
    walk = [
        (One, "1", "start", InstanceStatus.RUNNING),
        (One, "2", "start", InstanceStatus.RUNNING),
        (One, "1", "middle", InstanceStatus.RUNNING),
        (One, "1", "end", InstanceStatus.COMPLETED),
        (One, "1", None, None),
        (Two, "2", None, None),
        (One, "2", "middle", InstanceStatus.RUNNING),
        (Two, "2", None, None),
    ]
    for event, key, state, status in walk:
        if state is None:
            with pytest.raises(NoTransition):
                machine.send(key, event())
            continue
        machine.send(key, event())
        drain(app)
        assert (state, status) == (machine.get(key).state, machine.get(key).status)


@pytest.mark.case("ftl.fsm_send: first event not valid for any start state")
@pytest.mark.case("ftl.fsm_send: no transition, candidates exist")
def test_an_event_without_a_transition_names_the_candidates(app):
    """Refusals name the state, the class of the event and the candidates."""
    machine = chain(app)

    with pytest.raises(NoTransition, match=r"no transition found from state \(new\) for type Two"):
        machine.send("1", Two())
    machine.send("1", One())
    drain(app)
    with pytest.raises(NoTransition, match="no transition found from state start for type Two, candidates are middle"):
        machine.send("1", Two())


@pytest.mark.case("ftl.fsm_send: send while a transition is running")
def test_one_transition_runs_at_a_time(app):
    """Events that come while a transition runs are refused."""
    machine = chain(app)
    machine.send("1", One())

    with pytest.raises(MachineBusy, match="the transition of '1' from .* to start is already executing"):
        machine.send("1", One())


def failing(app) -> Any:
    """Return a machine with a first transition that fails for good."""
    machine = app.machine("fsm")

    @machine.start
    def start(event: One) -> None:
        raise ValueError("no")

    machine.state(after=[start], name="end")(step)
    machine.send("1", One())
    drain(app)
    return machine


@pytest.mark.case("ftl.fsm_send: send to a failed instance, event of a start state")
@pytest.mark.case("ftl.fsm_send: send to a failed instance, other event")
def test_a_failed_instance_names_its_failure(app):
    """Events to a failed instance are refused with its error, and are possible again after an operator has acted.

    In FTL such an instance is stuck for ever.
    """
    machine = failing(app)

    with pytest.raises(MachineFailed, match="has failed: no; retry or skip it, or reset the instance"):
        machine.send("1", One())
    with pytest.raises(MachineFailed):
        machine.send("1", Two())
    machine.skip("1")
    assert "start" == machine.send("1", One()).to_state


@pytest.mark.case("ftl.fsm_send: instance key characters")
@pytest.mark.parametrize(
    "key", ["key", "1", "invoice-123", "a:b.c", "bob@example.com", "order/1", "has space", "ünï", "-1", "{uuid}"]
)
def test_keys_are_any_text(app, key):
    """Keys of instances may contain any character, and stop no queue; only an empty one is refused."""
    machine = chain(app)
    machine.send(key, One())
    drain(app)

    assert "start" == machine.get(key).state
    with pytest.raises(ConfigurationError):
        machine.send("", One())


# --------------------------------------------------------------------------------------------------------------- retry


@pytest.mark.case("ftl.fsm_retry_integration")
def test_transitions_are_retried_by_their_policies(app):
    """Transitions are retried by the policy of their state or of the machine, and fail after the catch."""
    caught = {"1": [], "3": []}
    machine = app.machine("fsm", retry="2 2s 3s")

    @app.task
    def catch_state2(request: CatchRequest[One], ctx: Context) -> None:
        caught[request.request.instance].append(ctx.attempt)
        if request.request.instance == "3":
            raise RuntimeError("never")

    start = machine.start(name="start")(step)

    @machine.state(after=[start], retry="2 2s 2s catch catch_state2")
    def state2(event: One) -> None:
        raise ValueError("always")

    @machine.state(after=[start])
    def state3(event: Two) -> None:
        raise ValueError("always")

    for key in "123":
        machine.send(key, One(key))
    drain(app, within=0)
    for key, event in (("1", One), ("2", Two), ("3", One)):
        machine.send(key, event(key))
    drain(app, within=timedelta(seconds=9))

    def delays(key: str) -> list[float]:
        job = app.job(machine.get(key).job_id)
        return [each.delay.total_seconds() for each in job.attempts if each.delay]

    assert ([2, 2], [2, 3]) == (delays("1"), delays("2"))
    assert [3, 3] == [len(app.job(machine.get(key).job_id).attempts) for key in "12"]
    assert ([1], True) == (caught["1"], len(caught["3"]) >= 2)
    assert ["failed", "failed", "running"] == [machine.get(key).status for key in "123"]


# ---------------------------------------------------------------------------------------------------------------- next


EVENTS = {name: dataclass(type(f"Event{name}", (), {"__annotations__": {"next_states": list[str]}})) for name in "ABCD"}


def following(app, body=None) -> Any:
    """Return the machine of FTL's test: A to B, C or D; B to C or D; C to D; each state has its own event."""
    machine = app.machine("fsm", retry="2 1s")
    after = {"A": [], "B": ["A"], "C": ["A", "B"], "D": ["A", "B", "C"]}
    for name, event in EVENTS.items():

        def handler(event: Any, ctx: Context) -> None:
            if event.next_states:
                first, *rest = event.next_states
                ctx.next(EVENTS[first](rest))
            if body is not None:
                body(event, ctx)

        handler.__annotations__ = {"event": event, "ctx": Context, "return": None}
        machine.state(name=name, after=after[name], start=name == "A")(handler)
    return machine


def errors(app, machine) -> list[str]:
    """Return the error of each attempt of the failed transition."""
    return [each.error for each in app.job(machine.get("1").job_id).attempts]


@pytest.mark.case("ftl.fsm_next: chain")
def test_each_transition_sends_the_next_event(app):
    """Handlers walk through the states by themselves, with one job for each transition."""
    machine = following(app)
    machine.send("1", EVENTS["A"](["B", "C", "D"]))
    drain(app)

    assert ("D", InstanceStatus.COMPLETED) == (machine.get("1").state, machine.get("1").status)
    succeeded = [job.task for job in app.jobs.select(Filter(state="succeeded", oldest_first=True))]
    assert ["fsm.A", "fsm.B", "fsm.C", "fsm.D"] == succeeded


@pytest.mark.case("ftl.fsm_next: next called twice in one attempt")
@pytest.mark.case("ftl.fsm_next: unit-test fake: next twice")
def test_an_attempt_has_one_next_event(app):
    """Second next events of one attempt fail it, in each of its three attempts."""
    machine = following(app, lambda event, ctx: ctx.next(EVENTS["B"]([])))
    machine.send("1", EVENTS["A"](["B"]))
    drain(app)

    assert 3 == len(errors(app, machine))
    assert all("already has its next event" in each for each in errors(app, machine))


def laugh(event: Any, ctx: Context) -> None:
    """Fail after the next event."""
    raise ValueError("computers are fun")


@pytest.mark.case("ftl.fsm_next: next set, then the verb fails; retried")
def test_a_failed_attempt_has_no_next_event(app):
    """Next events of failed attempts are discarded, so that each attempt can send one."""
    machine = following(app, laugh)
    machine.send("1", EVENTS["A"](["B"]))
    drain(app)

    assert (["computers are fun"] * 3, 1) == (errors(app, machine), len(machine.get("1").history()))


@pytest.mark.case("ftl.fsm_next: next event not valid from the state being entered")
@pytest.mark.case("ftl.fsm_next: unit-test fake: bad progression")
def test_a_next_event_is_checked_against_the_state_being_entered(app):
    """Next events that no state after the one being entered takes fail the attempt, three times."""
    machine = following(app)
    machine.send("1", EVENTS["A"](["B", "B"]))
    drain(app)

    assert ("A", 3) == (machine.get("1").state, len(errors(app, machine)))
    assert all("invalid event 'EventB' for state 'B'" in each for each in errors(app, machine))


@pytest.mark.case("ftl.fsm_next: next called outside a transition")
def test_only_a_transition_has_a_next_event(app):
    """Next events of a job that is no transition are refused."""
    refused: list[RedriveError] = []

    @app.task
    def plain(ctx: Context) -> None:
        try:
            ctx.next(One())
        except ConfigurationError as error:
            refused.append(error)

    plain.enqueue()
    drain(app)

    assert ["ctx.next() belongs to a transition of a state machine"] == [
        str(each).partition(",")[0] for each in refused
    ]


# --------------------------------------------------------------------------------------------------------------- catch


@pytest.mark.case("D45")
def test_an_instance_fails_only_after_its_catch_has_succeeded(app):
    """Instances stay in their state until the catch task, which is retried until it succeeds, has ended."""
    seen: list[tuple[str, Any]] = []
    machine = app.machine("fsm")

    @app.task
    def recover(request: CatchRequest[Two], ctx: Context) -> None:
        seen.append(("catch", (request.request, request.error, len(request.attempts), machine.get("1").status)))
        if ctx.attempt < 3:
            raise RuntimeError("still down")

    start = machine.start(name="start")(step)

    @machine.state(after=[start], retry="5 1s catch recover")
    def state(event: Two, ctx: Context) -> None:
        seen.append(("run", ctx.attempt))
        raise ValueError("no")

    machine.send("1", One())
    drain(app)
    machine.send("1", Two("1"))
    drain(app)

    assert [("run", number) for number in range(1, 7)] == seen[:6]
    assert 3 == len(seen[6:])
    for _, (request, error, attempts, status) in seen[6:]:
        assert (Two("1"), "no", 6, "running") == (request, error, attempts, status)
    assert ("start", "failed") == (machine.get("1").state, machine.get("1").status)
