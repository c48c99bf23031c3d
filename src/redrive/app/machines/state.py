"""The task behind a state of a machine: its handler, and the JSON of its event and of the data of instances."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from datetime import timedelta
from functools import cached_property
from typing import Any

import msgspec

from redrive.app.attempts.effects import Effects
from redrive.app.attempts.origins import MachineProtocol, TransitionHandle
from redrive.app.payload import check_document, dec_hook, enc_hook, find_loss, refuse_encoded
from redrive.app.protocol import AppProtocol
from redrive.app.tasks.enqueue import Options
from redrive.app.tasks.task import Task, Traits
from redrive.app.types import change, may_lose, type_name, unsupported
from redrive.engine.machine import Guard, MachineState, StateTimeout, entered
from redrive.engine.origin import Kind, of_machine, read_origin
from redrive.engine.records import NewJob
from redrive.engine.search import tags_of
from redrive.errors import MachineDefinitionError, PayloadError, TaskDefinitionError
from redrive.policy.fields import wait
from redrive.stores.operations.machines import manage

_TWO = 2


class StateDeclaration(msgspec.Struct, frozen=True):
    """The arguments of the decorator of a state; see `Machine.state`."""

    start: bool = False
    after: Any = ()
    when: Callable[..., object] | None = None
    timeout: Any = None
    within: Any = None
    failed_to: Any = None
    ignore: Iterable[type] = ()


class StateTask(Task[..., Any, Any, ...]):
    """A state of a machine; its function is the handler that runs when an instance enters the state.

    Calling it runs the function here and now. Its jobs are the transitions to the state, which only events begin.

    Attributes:
        machine: the machine.
        label: the name of the state; the name of the task is that of the machine, a point, and this.
    """

    def __init__(
        self,
        app: AppProtocol,
        name: str,
        function: Callable[..., Any],
        options: Options,
        *,
        traits: Traits | None = None,
        machine: MachineProtocol,
        label: str,
        state: StateDeclaration,
    ) -> None:
        self.machine = machine
        self.label = label
        self.state = state
        super().__init__(app, name, function, options, traits=traits)

    def __repr__(self) -> str:
        return f"<state {self.label} of machine {self.machine.name}>"

    def check(self) -> None:
        """Check the handler, that the tasks that it names exist and fit, and the machine; see `redrive.App.check`."""
        self.check_handler()
        super().check()
        self.machine.check()

    def check_search(self) -> None:
        """Check nothing: the fields are those of events of any of the states."""

    def check_handler(self) -> None:
        """Check that the handler takes one event and returns nothing."""
        taken = self.signature.payload
        where = f"machine {self.machine.name!r}: state {self.label!r}"
        if len(taken) != 1:
            raise MachineDefinitionError(
                f"{where} must take exactly one event (and a Context, if needed), but it takes "
                f"{', '.join(taken) or 'none'}"
            )
        kind = self.event_type
        if not isinstance(kind, type) or kind in (Any, object, type(None)):
            raise MachineDefinitionError(
                f"{where}: annotate {taken[0]!r} with the class of its event, which chooses the transition; "
                f"it is {type_name(kind)}"
            )
        returned = self.signature.hints.get("return", type(None))
        if returned is not type(None):
            raise MachineDefinitionError(
                f"{where} returns {type_name(returned)}, but nothing reads the result: make it -> None"
            )

    @property
    def event_type(self) -> Any:
        """The class of its event."""
        return self.signature.request

    @property
    def event(self) -> str:
        """The name of the class of its event."""
        return event_name(self.event_type)

    # ---------------------------------------------------------------- events as JSON

    @cached_property
    def _open(self) -> bytes:
        return b"{" + msgspec.json.encode(self.signature.payload[0]) + b":"

    def write_event(self, event: object) -> bytes:
        """Return an event as JSON; raise `PayloadError` if it does not arrive as it is."""
        raw = self.signature.write((event,), {})[len(self._open) : -1]
        check_document(raw, f"{self.name}: the event", None)
        return raw

    def read_event(self, payload: bytes) -> Any:
        """Return an event from its JSON; raise `PayloadError` if that does not match the class."""
        return self.signature.read(self._open + payload + b"}")[self.signature.payload[0]]

    def job(self, key: str, payload: bytes) -> NewJob:
        """Return the job of a transition to this state."""
        options = self.defaults
        return NewJob(
            task=self.name,
            queue=options.queue,
            priority=options.priority,
            payload=self._open + payload + b"}",
            policy=options.policy,
            origin=of_machine(self.machine.name, key),
            search=tags_of(payload, options.search) if options.search else None,
        )

    def _new(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        del args, kwargs
        raise TaskDefinitionError(
            f"{self.name!r} is a state, and only an event begins its job: "
            f"send it to an instance of the machine {self.machine.name!r}"
        )

    async def begin(self, origin: str | None, effects: Effects) -> TransitionHandle | None:
        """Return the transition that a job of this state makes, and add the state that it leads to to its effects.

        Raise `PayloadError` if the data of the instance cannot be read.
        """
        found = read_origin(origin)
        if found is None or found.kind is not Kind.MACHINE:
            return None
        machine = self.machine
        effects.add(entered(machine.definition, self.label, machine.version))
        if self.signature.context is None:
            return None
        data = None
        if machine.codec is not None:
            data = machine.read_data(await self.app.store.arun(manage.data(found.name, found.part)))
        return TransitionHandle(machine, self.label, found.part, data=data, effects=effects)

    # ---------------------------------------------------------------- definition

    def defined(self, name_of: Callable[[Any, str], str], timeout: StateTimeout | None) -> MachineState:
        """Return the state as a part of the definition; `name_of` returns the names of the states that it names."""
        given = self.state
        where = f"machine {self.machine.name!r}: state {self.label!r}"
        after = given.after if isinstance(given.after, list | tuple | set | frozenset) else (given.after,)
        return MachineState(
            name=self.label,
            event=self.event,
            start=given.start,
            after=tuple(dict.fromkeys(name_of(each, f"{where}: after") for each in after)),
            guard=None if given.when is None else _guard(given.when, where),
            timeout=timeout,
            within=None if given.within is None else _positive(given.within, f"{where}: within"),
            failed_to=None if given.failed_to is None else name_of(given.failed_to, f"{where}: failed_to"),
            ignore=frozenset(event_name(each) for each in _classes(given.ignore, where)),
        )

    @property
    def timeout_event(self) -> tuple[timedelta, Any] | None:
        """The time and the event of its timeout; None without one."""
        given = self.state.timeout
        if given is None:
            return None
        where = f"machine {self.machine.name!r}: state {self.label!r}: timeout"
        if not isinstance(given, tuple) or len(given) != _TWO:
            raise MachineDefinitionError(
                f'{where} is a time and an event, as in timeout=("3 days", Expired()), got {given!r}'
            )
        return _positive(given[0], where), given[1]


def event_name(kind: object) -> str:
    """Return the name of the class of an event."""
    return kind.__name__ if isinstance(kind, type) else type_name(kind)


def _positive(value: Any, where: str) -> timedelta:
    found = wait(value, where)
    if found <= timedelta(0):
        raise MachineDefinitionError(f"{where} must be positive, got {value!r}")
    return found


def _classes(given: object, where: str) -> tuple[type, ...]:
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise MachineDefinitionError(f"{where}: ignore takes a list of classes of events, got {given!r}")
    found = tuple(given)
    for each in found:
        if not isinstance(each, type):
            raise MachineDefinitionError(f"{where}: ignore takes classes of events, and {each!r} is none")
    return found


def _guard(given: Any, where: str) -> Guard:
    """Return a guard that takes the event and the data; one of the user may take the event alone."""
    if not callable(given):
        raise MachineDefinitionError(f"{where}: when= takes a function of the event and the data, got {given!r}")
    try:
        parameters = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):
        return given  # type: ignore[no-any-return]  # a builtin, which has no signature and sets no context variable
    if inspect.iscoroutinefunction(given):
        raise MachineDefinitionError(f"{where}: when= takes a plain function: a guard is evaluated under a lock")
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if not _takes(given, _TWO) and not _takes(given, 1):
        raise MachineDefinitionError(
            f"{where}: when= takes a function of the event, or of the event and the data, got one with the parameters "
            f"{inspect.signature(given)}"
        )
    if len(by_position) == 1 and not any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return lambda event, _: copy_context().run(given, event)
    return lambda event, data: copy_context().run(given, event, data)


def _takes(function: Any, count: int) -> bool:
    """Return True if a function can be called with so many arguments by position."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


class DataCodec:
    """The JSON of the data of instances."""

    def __init__(self, kind: object, machine: str) -> None:
        self.kind = kind
        self._machine = machine
        problem = unsupported(kind)
        if problem:
            raise MachineDefinitionError(f"machine {machine!r}: its data cannot be stored: {problem}")
        self._decoder = msgspec.json.Decoder(kind, dec_hook=dec_hook)
        self._loses = may_lose(kind)

    def write(self, value: object) -> bytes:
        """Return data as JSON, after a check that it can be read again."""
        try:
            raw = msgspec.json.encode(value, enc_hook=enc_hook)
            arrived = self._decoder.decode(raw)
        except Exception as error:
            # Serialisers and validators are the user's and may raise anything.
            raise PayloadError(
                f"machine {self._machine!r}: the data do not fit {type_name(self.kind)}: {error}"
            ) from error
        found = change(self.kind, value, arrived) or (find_loss(self.kind, raw, arrived) if self._loses else None)
        if found is not None:
            raise PayloadError(f"machine {self._machine!r}: the data would not arrive as they are: {found}")
        check_document(raw, f"machine {self._machine!r}: the data", None)
        return raw

    def read(self, raw: bytes | None) -> Any:
        """Return data from JSON; None if there are none. Raise `PayloadError` if they do not match the class."""
        if raw is None:
            return None
        refuse_encoded(raw, f"machine {self._machine!r}: the document of the stored data")
        try:
            return self._decoder.decode(raw)
        except Exception as error:
            # As in `write`.
            raise PayloadError(
                f"machine {self._machine!r}: the stored data do not match {type_name(self.kind)}: {error}"
            ) from error
