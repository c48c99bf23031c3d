"""MachineState machines: their definition, the choice of a transition, and their rows in the database. PURE.

A machine has states; each state is entered by one type of event, from the states that it comes after or as a start. The
present state of an instance and the type of an event choose the transition: `step` is that choice, and nothing else
makes it. A guard (``when=``) is a pure function of the event and the data of the instance.

Final states are those that no state comes after. An instance that enters one is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec

from redrive.engine.commands import command
from redrive.engine.origin import Effect
from redrive.engine.records import NewJob
from redrive.errors import MachineDefinitionError, NoTransition

Guard: TypeAlias = Callable[[Any, Any], object]
"""A function of the event and the data of the instance; the transition is possible if its result is true."""

#: The name of the event that a failed transition sends to the state of ``failed_to=``.
FAILED: Final = "FailedTransition"

# The characters of the lists of names in messages.
_START: Final = "the start"


# ---------------------------------------------------------------------------------------------------------- definition


class FailedTransition(msgspec.Struct, frozen=True):
    """The event that the state of ``failed_to=`` takes, after a transition has failed for good.

    Attributes:
        state: the state of the instance; None before its first transition.
        to_state: the state that it could not enter.
        event: the name of the type of the event.
        error: the text of the last error.
        job_id: the job of the transition.
    """

    machine: str
    key: str
    state: str | None
    to_state: str
    event: str
    error: str
    job_id: int


class StateTimeout(msgspec.Struct, frozen=True):
    """The event that an instance receives if it is still in the state after a time."""

    after: timedelta
    event: str  # the name of its type
    payload: bytes  # the event as JSON


class MachineState(msgspec.Struct, frozen=True):
    """A state of a machine.

    Attributes:
        event: the name of the type of the event that leads to it.
        start: True if the first event of an instance may lead to it.
        after: the states from which the event leads to it.
        guard: None if the transition is always possible.
        timeout: None if an instance may stay in it for ever.
        within: the time after which an instance in it counts as overdue, which changes nothing.
        failed_to: the state of an instance after a transition to this one has failed for good; None if it stays in
            its state, with the status ``failed``.
        ignore: names of types of events that change nothing in this state.
    """

    name: str
    event: str
    start: bool = False
    after: tuple[str, ...] = ()
    guard: Guard | None = None
    timeout: StateTimeout | None = None
    within: timedelta | None = None
    failed_to: str | None = None
    ignore: frozenset[str] = frozenset()


class MachineDefinition(msgspec.Struct, frozen=True, dict=True):
    """A machine as the code declares it."""

    name: str
    states: Mapping[str, MachineState] = {}

    @cached_property
    def leading(self) -> Mapping[str | None, tuple[MachineState, ...]]:
        """The states that can follow each state; those of None can be the first."""
        found: dict[str | None, list[MachineState]] = {}
        for state in self.states.values():
            for source in (*((None,) if state.start else ()), *state.after):
                found.setdefault(source, []).append(state)
        return {source: tuple(states) for source, states in found.items()}

    def following(self, state: str | None) -> tuple[MachineState, ...]:
        """Return the states that can follow a state, in the order of the code; those of None can be the first."""
        return self.leading.get(state, ())

    def is_final(self, state: str) -> bool:
        """Return True if no state comes after this one."""
        return not self.following(state)

    @cached_property
    def final(self) -> tuple[str, ...]:
        """The final states, in the order of the code."""
        return tuple(name for name in self.states if self.is_final(name))

    def check_added(self, added: MachineState) -> None:
        """Check a state that was added.

        Raise `MachineDefinitionError` if it makes a transition ambiguous: two states follow one state by one type of
        event, and one of them has no guard.
        """
        for source in (*((None,) if added.start else ()), *added.after):
            for other in self.following(source):
                both_guarded = other.guard is not None and added.guard is not None
                if other.name != added.name and other.event == added.event and not both_guarded:
                    raise MachineDefinitionError(
                        f"machine {self.name!r}: from {_named(source)} the event {added.event} leads to "
                        f"{other.name!r} and to {added.name!r}; give both a guard (when=), or one another type"
                    )

    def check(self) -> tuple[str, ...]:
        """Check the whole definition, and return warnings about states that are never entered or never left for good.

        Raise `MachineDefinitionError` if there is no start, a state comes after an unknown one, a failure leads to a
        state that does not take it, or nothing takes the event of a timeout.
        """
        if not self.following(None):
            raise MachineDefinitionError(f"machine {self.name!r} has no start states: decorate one with @machine.start")
        for state in self.states.values():
            self._check_names(state)
        return tuple(self._warnings())

    def _check_names(self, state: MachineState) -> None:
        for source in state.after:
            if source not in self.states:
                raise self._unknown(state, f"after={source!r}", source)
        if state.failed_to is not None:
            target = self.states.get(state.failed_to)
            if target is None:
                raise self._unknown(state, f"failed_to={state.failed_to!r}", state.failed_to)
            if target.event != FAILED:
                raise MachineDefinitionError(
                    f"machine {self.name!r}: a failure of {state.name!r} leads to {target.name!r}, which takes "
                    f"{target.event}: annotate its event with redrive.{FAILED}"
                )
        timeout = state.timeout
        if timeout is not None and all(each.event != timeout.event for each in self.following(state.name)):
            raise MachineDefinitionError(
                f"machine {self.name!r}: the timeout of {state.name!r} sends {timeout.event}, but no state that comes "
                f"after it takes that; {self._taken(state.name)}"
            )

    def _unknown(self, state: MachineState, what: str, name: str) -> MachineDefinitionError:
        known = ", ".join(self.states)
        return MachineDefinitionError(
            f"machine {self.name!r}: {state.name!r} has {what}, but there is no state {name!r}; known states: {known}"
        )

    def _taken(self, state: str | None) -> str:
        taken = ", ".join(dict.fromkeys(each.event for each in self.following(state)))
        return f"possible events: {taken or 'none'}"

    def _warnings(self) -> Iterator[str]:
        entered = self._closure([each.name for each in self.following(None)], self._next_names)
        entered |= {each.failed_to for each in self.states.values() if each.failed_to is not None}
        entered = self._closure(sorted(entered), self._next_names)
        unreachable = [name for name in self.states if name not in entered]
        if unreachable:
            yield f"machine {self.name!r}: no event leads from a start to {_listed(unreachable)}"
        ending = self._closure(self.final, lambda name: self.states[name].after)
        endless = [name for name in self.states if name not in ending]
        if endless:
            yield f"machine {self.name!r}: no final state can be reached from {_listed(endless)}"

    def _next_names(self, name: str) -> Iterable[str]:
        return (each.name for each in self.following(name))

    @staticmethod
    def _closure(first: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
        left = list(first)
        found = set(left)
        while left:
            more = [name for name in following(left.pop()) if name not in found]
            found.update(more)
            left.extend(more)
        return found

    def undefined(self, states: Iterable[str]) -> tuple[str, ...]:
        """Return those states that the definition does not have."""
        return tuple(state for state in states if state not in self.states)


def _named(state: str | None) -> str:
    return _START if state is None else repr(state)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


# ---------------------------------------------------------------------------------------------------------------- step


class Move(msgspec.Struct, frozen=True):
    """The transition that an event makes."""

    to: MachineState


class Ignored(msgspec.Struct, frozen=True):
    """The event changes nothing in this state, because the definition ignores it."""


def step(
    definition: MachineDefinition, state: str | None, event_type: str, event: object, data: object
) -> Move | Ignored | NoTransition:
    """Choose the transition of an event.

    Args:
        definition: the machine.
        state: the present state of the instance; None before its first transition.
        event_type: the name of the type of the event.
        event: the event, for guards.
        data: the data of the instance, for guards.

    Raises:
        MachineDefinitionError: two guards are true.
        Exception: a guard raised it.
    """
    if isinstance(event, FailedTransition):
        return _after_failure(definition, state, event)
    known = definition.states.get(state) if state is not None else None
    candidates = definition.following(state)
    possible = [
        each
        for each in candidates
        if each.event == event_type and (each.guard is None or bool(each.guard(event, data)))
    ]
    if len(possible) > 1:
        raise MachineDefinitionError(
            f"machine {definition.name!r}: from {_named(state)} the event {event_type} leads to "
            f"{possible[0].name!r} and to {possible[1].name!r}: both guards are true"
        )
    if possible:
        return Move(possible[0])
    if known is not None and event_type in known.ignore:
        return Ignored()
    return no_transition(definition, state, event_type)


def _after_failure(definition: MachineDefinition, state: str | None, event: FailedTransition) -> Move | NoTransition:
    failed = definition.states.get(event.to_state)
    target = None if failed is None or failed.failed_to is None else definition.states.get(failed.failed_to)
    return no_transition(definition, state, FAILED) if target is None else Move(target)


def no_transition(definition: MachineDefinition, state: str | None, event_type: str) -> NoTransition:
    """Return the error for an event without a transition; it names the state and its candidates."""
    candidates = definition.following(state)
    names = ", ".join(f"{each.name} (on {each.event})" for each in candidates)
    refused = [each.name for each in candidates if each.event == event_type]
    guards = f"; the guard of {', '.join(refused)} is false" if refused else ""
    return NoTransition(
        f"no transition found from state {state or '(new)'} for type {event_type}, candidates are {names or 'none'}"
        f"{guards}",
        state=state,
        event_type=event_type,
        candidates=tuple(each.name for each in candidates),
    )


# ---------------------------------------------------------------------------------------------------------------- rows


class InstanceStatus(StrEnum):
    """The status of an instance."""

    RUNNING = "running"
    """It takes events, or a transition runs."""
    COMPLETED = "completed"
    """It is in a final state."""
    FAILED = "failed"
    """A transition has failed for good. It stays in its state until the transition is retried or skipped, or the
    instance is reset or deleted."""


class Waiting(StrEnum):
    """What an instance has to take next, when it is free."""

    EVENT = "event"
    """An event that waits for its turn."""
    FAILURE = "failure"
    """The event of its failed transition, for the state of ``failed_to=``; it comes before others."""


class MoveSource(StrEnum):
    """What made an event."""

    SEND = "send"
    """A call of ``send``."""
    NEXT = "next"
    """The handler of the transition before."""
    TIMEOUT = "timeout"
    """The timeout of the state."""
    FAILED_TO = "failed_to"
    """The final failure of a transition."""
    RESET = "reset"
    """A reset by an operator."""
    MIGRATE = "migrate"
    """A migration of a renamed or dropped state."""


class MoveStatus(StrEnum):
    """The status of an event of an instance."""

    QUEUED = "queued"
    """It waits for its turn."""
    RUNNING = "running"
    """Its transition runs, or waits for a retry."""
    MOVED = "moved"
    """The instance has moved."""
    FAILED = "failed"
    """Its transition has failed for good."""
    REFUSED = "refused"
    """There was no transition for it in its turn."""
    IGNORED = "ignored"
    """The state ignores it."""
    LATE = "late"
    """A timeout that was due, but another event came first."""
    SKIPPED = "skipped"
    """An operator skipped its failed transition."""


class InstanceRecord(msgspec.Struct, frozen=True, gc=False):
    """An instance of a machine.

    Attributes:
        state: the state that it is in; None before its first transition has ended.
        to_state: the state to which a transition runs or has failed; None otherwise.
        job_id: the job of that transition; its id is also the id of the event.
        event: the name of the type of that event.
        moves: the number of its moves.
        entered_at: when it entered its state.
        timeout_at: when the timeout of its state is due; None without one.
        timeout_event: the name of the type of the event of that timeout.
        timeout_payload: the event, as JSON.
        data: its data, as JSON.
        error: of its last failure; None after the next move.
        version: the digest of the definition at its last move.
        waiting: what it has to take next; None if nothing waits, or a worker has not noted it yet.
    """

    machine: str
    key: str
    state: str | None
    to_state: str | None
    status: InstanceStatus
    job_id: int | None
    event: str | None
    moves: int
    created_at: datetime
    entered_at: datetime
    timeout_at: datetime | None
    timeout_event: str | None
    timeout_payload: bytes | None
    data: bytes | None
    error: str | None
    version: str | None
    waiting: Waiting | None

    @property
    def busy(self) -> bool:
        """Return True while a transition runs, waits for a retry, or has failed."""
        return self.job_id is not None


class StrandedCount(msgspec.Struct, frozen=True, gc=False):
    """The number of rows of a machine that wait for something which the code does not have.

    Attributes:
        what: ``state`` for instances in a state that the code does not have, ``timeout`` for instances with a timeout
            of a class of events that it does not have, ``event`` for waiting events of such a class.
        state: that of the instances.
        event: the name of the class.
    """

    machine: str
    what: str
    state: str | None
    event: str | None
    number: int

    @property
    def text(self) -> str:
        """Return the number and the name in a sentence."""
        one = self.number == 1
        if self.what == "state":
            return f"{self.number} instance{' is' if one else 's are'} in the state {self.state!r}"
        if self.what == "timeout":
            where = f"instance{'' if one else 's'} in {self.state!r} wait{'s' if one else ''}"
            return f"{self.number} {where} for a timeout with the event {self.event}"
        return f"{self.number} event{'' if one else 's'} of the class {self.event} wait{'s' if one else ''}"

    def advice(self, app: str) -> str:
        """Return what to do, with the name of the app in commands."""
        if self.what == "state":
            return (
                f"deploy code that has it, or {command('machines migrate', app, self.machine, f'{self.state}=STATE')}"
            )
        if self.what == "timeout":
            return f"deploy code that takes it, or {command('machines rearm', app, self.machine, str(self.state))}"
        return "deploy code that takes it: until then the events stay, and those behind them"


class MoveRecord(msgspec.Struct, frozen=True, gc=False):
    """An event of an instance, and the move that it made.

    Attributes:
        id: also the id of the job of its transition.
        event: the name of its type; None for a change of the state by an operator.
        event_key: identifies the event among those of the instance.
        digest: of the type and the content of the event.
        payload: the event as JSON while it waits for its turn, and if it was refused then.
        sent_at: when it was stored.
        finished_at: when the instance moved, or the event ended otherwise.
        attempts: the executions of the handler.
        failed_to: the state of the instance if the transition fails for good.
        actor: the operator.
    """

    id: int
    machine: str
    key: str
    source: MoveSource
    status: MoveStatus
    from_state: str | None
    to_state: str | None
    event: str | None
    event_key: str | None
    digest: str | None
    payload: bytes | None
    sent_at: datetime
    finished_at: datetime | None
    attempts: int
    error: str | None
    failed_to: str | None
    actor: str | None


# ------------------------------------------------------------------------------------------------------------- effects


class Entered(Effect, frozen=True, gc=False):
    """The properties of the state that the instance enters, by the code that ran the transition."""

    final: bool
    version: str
    timeout_after: timedelta | None = None
    timeout_event: str | None = None
    timeout_payload: bytes | None = None


class NextMachineEvent(Effect, frozen=True, gc=False):
    """The transition that begins when this one has ended."""

    to_state: str
    event: str
    digest: str
    job: NewJob
    failed_to: str | None = None


class DataChange(Effect, frozen=True, gc=False):
    """The new data of the instance, as JSON."""

    data: bytes | None


def entered(definition: MachineDefinition, state: str, version: str) -> Entered:
    """Return the properties of a state for an instance that enters it."""
    known = definition.states.get(state)
    timeout = None if known is None else known.timeout
    if timeout is None:
        return Entered(definition.is_final(state), version)
    return Entered(definition.is_final(state), version, timeout.after, timeout.event, timeout.payload)
