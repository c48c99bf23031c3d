"""A state machine: its states, and the events that are sent to its instances."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import structs

from redrive import observe
from redrive.app.arguments import check_printable, checked_function, checked_text, function_name
from redrive.app.events import emit_apart
from redrive.app.machines.instance import MachineInstance
from redrive.app.machines.machines import MachineHandle
from redrive.app.machines.state import DataCodec, StateDeclaration, StateTask, event_name
from redrive.app.machines.states import MachineStates
from redrive.app.protocol import AppProtocol
from redrive.app.recurring.refreshes import checked_key
from redrive.app.tasks.task import Task
from redrive.engine.diagram import as_mermaid
from redrive.engine.machine import InstanceRecord, MachineDefinition, Move, MoveStatus, NextMachineEvent, step
from redrive.engine.origin import of_machine
from redrive.errors import MachineDefinitionError, NoTransition, PayloadError
from redrive.observe.listeners import DEBUG, heard
from redrive.policy import Policy
from redrive.policy.duration import Duration
from redrive.schedule.timezone import member
from redrive.seams import spelled, without
from redrive.stores.operations.machines import send as sending
from redrive.stores.operations.machines import turns
from redrive.stores.operations.machines.rows import Choice, Known, MachineEvent, Start
from redrive.stores.operations.machines.send import Busy, Sent, SentStatus
from redrive.stores.operations.machines.turns import MachineTurn
from redrive.stores.query import Operation


class MachineRegistrar(Protocol):
    """The part of the registry of an app that machines use; the registry imports this module."""

    @property
    def tasks(self) -> dict[str, Task[Any, Any, Any]]:
        """The tasks by name."""

    def state(self, function: Callable[..., Any], declaration: Any, changes: Mapping[str, Any], **settings: Any) -> Any:
        """Register a function as a state."""


class Machine(MachineHandle):
    """A state machine, made by `redrive.App.machine`.

    Its states are handlers: `start` and `state` decorate them. An instance has a key, is created by its first event,
    and makes one transition at a time. A transition is a job of the handler of the state that it leads to; when the job
    has succeeded, the instance is in that state.
    """

    def __init__(
        self,
        app: AppProtocol,
        registry: MachineRegistrar,
        declaration: Any,
        name: str,
        *,
        place: str,
        data: Any = None,
        busy: Literal["raise", "queue", "drop"] = "raise",
        keep_completed_for: timedelta | None = None,
    ) -> None:
        self.keep_completed_for = keep_completed_for
        super().__init__(app, name)
        self.place = place
        self._states = MachineStates(name)
        self.tasks: dict[str, StateTask] = self._states.tasks
        self._registry = registry
        self._declaration = declaration
        self._busy = member(Busy, "busy", busy)
        self.codec: DataCodec | None = None if data is None else DataCodec(data, name)

    if not TYPE_CHECKING:
        __getattr__ = without("machine")

    def __repr__(self) -> str:
        return f"<machine {self.name}: {', '.join(self.tasks) or 'no states'}>"

    # ---------------------------------------------------------------- definition

    def start(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register the handler of a state that the first event of an instance can lead to.

        ``@machine.start`` or ``@machine.start(...)``, with the options of `state`.
        """
        if function is None:
            # An error about an option names this decorator.
            return spelled("@machine.start")(inspect.unwrap(Machine.state))(self, start=True, **options)
        return self.state(start=True)(function)

    @spelled("@machine.state", "@machine.state(after=[...])")
    def state(
        self,
        *,
        after: StateTask | str | Sequence[StateTask | str] = (),
        start: bool = False,
        when: Callable[..., object] | None = None,
        timeout: tuple[Duration, Any] | None = None,
        within: Duration | None = None,
        failed_to: StateTask | str | None = None,
        ignore: Iterable[type] = (),
        retry: Policy | str | None = None,
        attempt_timeout: Duration | None = None,
        soft_timeout: Duration | None = None,
        queue: str | None = None,
        priority: int | None = None,
        idempotent: bool | None = None,
        keep_for: Duration | None = None,
        name: str | None = None,
    ) -> Callable[[Callable[..., Any]], StateTask]:
        """Register the handler of a state.

        The handler takes one event, and a `redrive.Context` if it needs one, and returns nothing. The class of the
        event and the present state of the instance choose the transition.

        Args:
            after: the states from which the event leads to this one: handlers, or names of states.
            start: True if the first event of an instance can lead to it, too.
            when: a guard: a plain function of the event, or of the event and the data of the instance. The transition
                is possible if its result is true. It runs under the lock of the instance and must not have effects.
            timeout: a time, which may be in words (``"3 days"``), and an event: an instance that is still in this state
                after the time receives the event. The instant is computed when the instance enters the state.
            within: the time after which an instance in this state is listed as overdue, which changes nothing.
            failed_to: the state of an instance after a transition to this one has failed for good, catch included.
                Its handler takes a `redrive.FailedTransition`.
            ignore: classes of events that change nothing in this state, and raise no error.
            retry: the policy of the transition; it replaces the one of the machine whole.
            attempt_timeout: the time limit of one attempt; by default an hour.
            soft_timeout: as for `redrive.App.task`.
            queue: the queue of the transitions; by default that of the machine.
            priority: jobs with a smaller one run first; by default that of the machine.
            idempotent: as for `redrive.App.task`.
            keep_for: as for `redrive.App.task`.
            name: of the state; by default that of the function.

        Raises:
            MachineDefinitionError: another state has the name, the handler takes or returns something else, or two
                states follow one state by one class of event and one of them has no guard.
            TaskDefinitionError: the function cannot be a task.
            PolicyError: the policy cannot be read.
        """
        state = StateDeclaration(start, after, when, timeout, within, failed_to, ignore)
        given: dict[str, Any] = {
            "retry": retry,
            "timeout": attempt_timeout,
            "soft_timeout": soft_timeout,
            "queue": queue,
            "priority": priority,
            "idempotent": idempotent,
            "keep_for": keep_for,
        }
        changes = {option: value for option, value in given.items() if value is not None}

        def register(function: Callable[..., Any]) -> StateTask:
            return self._add(function, state, changes, name)

        return register

    def _add(
        self, function: Callable[..., Any], state: StateDeclaration, changes: dict[str, Any], name: str | None
    ) -> StateTask:
        checked_function(function, "state", "@machine.state(after=[...]) above a function")
        label: str = function_name(function) if name is None else name
        checked_text(label, f"machine {self.name!r}: the name of a state")
        check_printable(label, f"machine {self.name!r}: the name of a state")
        if label in self.tasks:
            raise MachineDefinitionError(
                f"machine {self.name!r} has two states called {label!r}: give one another name"
            )
        settings = {"machine": self, "label": label, "state": state}
        task: StateTask = self._registry.state(function, self._declaration, changes, **settings)
        try:
            self._states.add(task)
        except BaseException:
            self._registry.tasks.pop(task.name)
            raise
        return task

    @property
    def definition(self) -> MachineDefinition:
        """The states and their transitions."""
        return self._states.definition

    @property
    def version(self) -> str:
        """The digest of the states and their transitions, which is stored with each move."""
        return self._states.version

    def check(self) -> None:
        """Check the definition; see `redrive.App.check`.

        Raises:
            MachineDefinitionError: it is ambiguous or incomplete.

        Warns:
            RuntimeWarning: a state is never entered, or no final state can be reached from it.
        """
        self._states.check()

    def adopted(self, app: AppProtocol, registry: MachineRegistrar) -> None:
        """Become a machine of an app; its states are adopted as tasks."""
        self.app = app
        self._registry = registry

    # ---------------------------------------------------------------- events

    def send(
        self,
        instance: str,
        event: object,
        /,
        *,
        key: str | None = None,
        busy: Literal["raise", "queue", "drop"] | None = None,
        using: object = None,
    ) -> Sent:
        """Send an event to an instance; its first event creates it.

        The instance is locked and read, and the transition is chosen and begun, in one transaction. With ``using`` the
        instance stays locked until that transaction ends, unless the event only waits for its turn.

        Args:
            instance: the key of the instance: any text of up to 2000 bytes.
            event: an object of a class that a state takes.
            key: identifies the event among those of the instance, such as the id of a webhook: an event with the same
                key and content is not stored again, and the answer is that of the first one.
            busy: what happens while a transition of the instance runs: `MachineBusy` is raised (``"raise"``), the event
                waits for its turn (``"queue"``), or it is dropped (``"drop"``); by default the option of the machine.
            using: your own connection to the same database; the event is sent if and only if its transaction commits.

        Returns:
            What has become of the event.

        Raises:
            NoTransition: the state of the instance has no transition for the event; the error names the candidates.
            MachineBusy: a transition of the instance runs or waits for a retry; the error names its job.
            MachineFailed: a transition of the instance has failed for good.
            EventConflict: the key belongs to another event.
            PayloadError: the event cannot be stored.
            ConfigurationError: a key is empty or too long.
            Exception: a guard raised it; nothing was stored.
            StoreError: the database refused, or its answer was lost (`OutcomeUnknown`); with a ``key``, repeat the
                call.
        """
        sent, turn, begun = self._sending(instance, event, key, busy)
        answer = self.app.store.run(sent, using=using)
        if begun:
            self.emit_begun(instance, begun[0], answer.to_state, in_transaction=using is not None)
        if using is not None or answer.status is not SentStatus.QUEUED:
            return answer
        return self._after_turn(answer, self.app.store.run(turn()))

    async def asend(
        self,
        instance: str,
        event: object,
        /,
        *,
        key: str | None = None,
        busy: Literal["raise", "queue", "drop"] | None = None,
        using: object = None,
    ) -> Sent:
        """Send an event to an instance; see `send`. On PostgreSQL ``using`` takes an asynchronous connection."""
        sent, turn, begun = self._sending(instance, event, key, busy)
        answer = await self.app.store.arun(sent, using=using)
        if begun:
            self.emit_begun(instance, begun[0], answer.to_state, in_transaction=using is not None)
        if using is not None or answer.status is not SentStatus.QUEUED:
            return answer
        return self._after_turn(answer, await self.app.store.arun(turn()))

    def _sending(
        self, instance: str, event: object, key: str | None, busy: str | None
    ) -> tuple[Operation[Sent], Callable[[], Operation[tuple[MachineTurn, ...]]], list[int]]:
        """Return the operation that sends an event, the one that starts it if it waits, and a list for a new job."""
        self.app.check()
        checked_key(instance)
        if key is not None:
            checked_text(key, f"machine {self.name!r}: key, the key of an event,")
        how = self._busy if busy is None else member(Busy, "busy", busy)
        if isinstance(event, type):
            raise PayloadError(
                f"machine {self.name!r}: the event is the class {event.__qualname__}: send an instance of it, "
                f"{event.__qualname__}(...)"
            )
        codec = self._states.codec_of(type(event))
        name = event_name(type(event))
        if codec is None and how is Busy.QUEUE:
            raise self._refused(name)
        payload = b"" if codec is None else codec.write_event(event)
        digest = hashlib.blake2b(name.encode() + b"\0" + payload, digest_size=12).hexdigest()
        new = MachineEvent(self.name, instance, name, payload, digest, key)

        def choose(found: InstanceRecord | None) -> Choice:
            data = None if found is None else self.read_data(found.data)
            return self._chosen(instance, None if found is None else found.state, name, event, payload, data)

        def turn() -> Operation[tuple[MachineTurn, ...]]:
            return turns.take_turn(self.known, self.name, instance, self.resolve, now=self.app.now())

        queues = tuple({task.defaults.queue for task in self.tasks.values()})
        begun: list[int] = []
        sent = sending.send(new, choose, busy=how, queues=queues, begun=begun.append, now=self.app.now())
        return sent, turn, begun

    def _refused(self, event: str) -> NoTransition:
        known = ", ".join(dict.fromkeys(task.event for task in self.tasks.values()))
        return NoTransition(f"machine {self.name!r} takes no {event}; its events: {known}", event_type=event)

    def _after_turn(self, sent: Sent, done: tuple[MachineTurn, ...]) -> Sent:
        """Return the answer to an event that was put into line, after the first event of the line had its turn."""
        for each in done:
            if each.status is MoveStatus.RUNNING:
                self.emit_begun(each.key, each.id, each.to_state)
        mine = next((each for each in done if each.id == sent.id), None)
        if mine is None or mine.status is not MoveStatus.RUNNING:
            return sent
        return structs.replace(sent, status=SentStatus.STARTED, from_state=mine.from_state, to_state=mine.to_state)

    def emit_begun(self, instance: str, job_id: int, state: str | None, *, in_transaction: bool = False) -> None:
        """Emit the event of a new job, that of a transition which has begun."""
        if state is None or not heard("redrive.jobs", DEBUG):
            return
        task = self.tasks[state]
        emit_apart(
            observe.JobEnqueued(
                task=task.name,
                queue=task.defaults.queue,
                job_id=job_id,
                origin=of_machine(self.name, instance),
                delay=timedelta(0),
                in_transaction=in_transaction,
            )
        )

    def _chosen(  # noqa: PLR0917 - what a choice depends on
        self, key: str, state: str | None, event_type: str, event: object, payload: bytes, data: object
    ) -> Choice:
        """Choose the transition of an event."""
        found = step(self.definition, state, event_type, event, data)
        if not isinstance(found, Move):
            return found
        return Start(found.to.name, self.tasks[found.to.name].job(key, payload), found.to.failed_to)

    @property
    def known(self) -> Known:
        """The states of the code and the classes of their events."""
        states = tuple(f"{self.name}/{label}" for label in self.tasks)
        return Known((self.name,), states, tuple({f"{self.name}/{task.event}" for task in self.tasks.values()}))

    def resolve(self, instance: InstanceRecord, event: str, payload: bytes) -> Choice:
        """Choose the transition of a stored event."""
        codec = next(task for task in self.tasks.values() if task.event == event)
        value, data = codec.read_event(payload), self.read_data(instance.data)
        return self._chosen(instance.key, instance.state, event, value, payload, data)

    def next_event(self, key: str, state: str, event: object, data: object) -> NextMachineEvent:
        """Return the effect that begins the next transition from a state; raise `NoTransition` if there is none."""
        name, codec = event_name(type(event)), self._states.codec_of(type(event))
        found = step(self.definition, state, name, event, data)
        if not isinstance(found, Move) or codec is None:
            possible = ", ".join(f"{each.event} to {each.name}" for each in self.definition.following(state))
            raise NoTransition(
                f"invalid event {name!r} for state {state!r} of machine {self.name!r}; possible: {possible or 'none'}",
                state=state,
                event_type=name,
                candidates=tuple(each.name for each in self.definition.following(state)),
            )
        payload = codec.write_event(event)
        digest = hashlib.blake2b(name.encode() + b"\0" + payload, digest_size=12).hexdigest()
        job = self.tasks[found.to.name].job(key, payload)
        return NextMachineEvent(found.to.name, name, digest, job, found.to.failed_to)

    def read_data(self, raw: bytes | None) -> Any:
        """Return the data of an instance; None without any."""
        return None if self.codec is None else self.codec.read(raw)

    # ---------------------------------------------------------------- instances

    def get(self, instance: str) -> MachineInstance:
        """Read an instance.

        Raises:
            InstanceNotFound: there is none with this key.
        """
        return MachineInstance(self, self.record(instance))

    async def aget(self, instance: str) -> MachineInstance:
        """Read an instance; see `get`."""
        return MachineInstance(self, await self.arecord(instance))

    def diagram(self, counts: Mapping[str | None, int] | None = None) -> str:
        """Return the machine as a Mermaid diagram, with the numbers of instances by state if these are given."""
        return as_mermaid(self.definition, counts or {})
