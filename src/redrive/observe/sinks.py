"""The registry of sinks, and the functions that emit events to them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Generic, TypeAlias, TypeVar

from redrive.forks import ForkSafeLock
from redrive.observe.events import Event
from redrive.observe.listeners import LISTENERS, LOGGED

Sink: TypeAlias = Callable[[Any], "AbstractContextManager[Any] | None"]
"""Takes an event, and may return a context manager to have around the wait, or the attempt, that follows."""

S = TypeVar("S", bound=Sink)


class _Listener:
    """A sink, and a flag that it has failed before."""

    __slots__ = ("_is_known_to_fail", "carries", "count", "sink")

    def __init__(self, sink: Sink) -> None:
        if not callable(sink):
            raise TypeError(f"{sink!r} is no sink: give a function that takes an event")
        self.sink: Sink = sink
        self.carries: bool = getattr(sink, "carries", False) is True
        self.count: int = 0
        self._is_known_to_fail = False

    def receive(self, event: Event) -> AbstractContextManager[Any] | None:
        """Call the sink with an event, and return its context manager."""
        answer = self.safely(self.sink, event)
        if answer is None or answer is _FAILED:
            return None
        if not (hasattr(answer, "__enter__") and hasattr(answer, "__exit__")):
            self._report(TypeError(f"it returned {answer!r}: a sink returns a context manager, or None"))
            return None
        manager: AbstractContextManager[Any] = answer
        return manager

    def safely(self, part: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401 - whatever the sink returns
        """Run code of the sink, during which no sink receives events. Return `_FAILED` if it raised."""
        token = _HERE.set(())
        try:
            return part(*args)
        except Exception as error:  # noqa: BLE001 - a sink must not break what it only watches
            self._report(error)
            return _FAILED
        finally:
            _HERE.reset(token)

    def _report(self, error: Exception) -> None:
        if self._is_known_to_fail:
            return
        self._is_known_to_fail = True
        from redrive.errors.foreign import trace
        from redrive.observe.logs import Block, logger

        why = "the sink %s failed; what it watches goes on, and further failures of it are not reported%s"
        logger("redrive.observe").error(why, self.sink, Block(trace(error)))


_FAILED = object()
_LOCK = ForkSafeLock()
_LISTENERS: tuple[_Listener, ...] = ()  # `log` is added at the end of this module
_HERE: ContextVar[tuple[_Listener, ...] | None] = ContextVar("redrive.observe", default=None)


class Registration(Generic[S]):
    """A registered sink. It receives events until `remove`, or the end of a ``with`` block. A call calls the sink."""

    def __init__(self, sink: S, listener: _Listener) -> None:
        self.sink = sink
        self._listener: _Listener | None = listener

    def remove(self) -> None:
        """Remove the sink. A second call does nothing."""
        global _LISTENERS  # noqa: PLW0603 - replaced as a whole, so that `emit` needs no lock
        with _LOCK:
            listener, self._listener = self._listener, None
            # `redrive.observe.remove` ends all registrations of a sink.
            if listener is None or not listener.count:
                return
            _count(listener, -1)
            if not listener.count:
                _LISTENERS = tuple(each for each in _LISTENERS if each is not listener)

    def __call__(self, event: object) -> AbstractContextManager[Any] | None:
        """Call the sink."""
        return self.sink(event)

    def __enter__(self) -> S:
        return self.sink

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.remove()


def add(sink: S) -> Registration[S]:
    """Register a sink for all events of this process, from now on.

    It receives events of calls with a first failure after this. A sink that is added twice receives each event
    once, until both registrations are removed. `redrive.observe.log` is added from the start.

    Args:
        sink: a function that takes an event, and may return a context manager (see `redrive.observe`).

    Returns:
        Its registration, with ``remove()``; it is also a context manager. It can be called like the sink, so that
        ``add`` may be used as a decorator.

    Raises:
        TypeError: the sink is not callable.
    """
    global _LISTENERS  # noqa: PLW0603 - see `Registration.remove`
    new = _Listener(sink)
    with _LOCK:
        listener = next((each for each in _LISTENERS if each.sink == sink), new)
        if listener is new:
            _LISTENERS = (*_LISTENERS, new)
        _count(listener, 1)
    return Registration(sink, listener)


def remove(sink: Sink) -> None:
    """Remove a sink, however often it was added. If it is not registered, this does nothing.

    ``observe.remove(observe.log)`` ends the log that is on from the start; ``observe.add(observe.log)`` starts it
    again.

    Raises:
        TypeError: the sink is not callable.
    """
    global _LISTENERS  # noqa: PLW0603 - see `Registration.remove`
    given = _Listener(sink).sink
    with _LOCK:
        for listener in _LISTENERS:
            if listener.sink == given:
                _count(listener, -listener.count)
        _LISTENERS = tuple(each for each in _LISTENERS if each.count)


def _count(listener: _Listener, change: int) -> None:
    """Change the number of registrations of a sink, and the flags that other code reads."""
    listener.count += change
    if listener.sink == log:
        LOGGED[:] = [None] if listener.count else []
    elif change > 0:
        LISTENERS.extend([None] * change)
    else:
        del LISTENERS[:-change]


@contextmanager
def only(*sinks: Sink) -> Iterator[None]:
    """Send events to these sinks and no others inside a ``with`` block, here and in tasks started there; for tests.

    Args:
        *sinks: the sinks; none for silence.

    Raises:
        TypeError: a sink is not callable.
    """
    listeners = tuple([_Listener(sink) for sink in sinks])
    LISTENERS.append(None)
    token = _HERE.set(listeners)
    try:
        yield
    finally:
        _HERE.reset(token)
        LISTENERS.pop()


# ------------------------------------------------------------------------------------------------------------ emitting


class Wait:
    """The context managers of sinks for one wait or one attempt. Only the first ``with`` block enters them."""

    __slots__ = ("_entered", "_managers", "kept")

    def __init__(self, managers: tuple[tuple[_Listener, AbstractContextManager[Any]], ...] = ()) -> None:
        #: After entering, the text that a sink with ``carries`` leaves with the jobs in question, or None.
        self.kept: str | None = None
        self._managers = managers
        self._entered: list[tuple[_Listener, AbstractContextManager[Any]]] = []

    def __enter__(self) -> None:
        managers = self._managers
        if not managers:
            return
        self._managers = ()
        try:
            for listener, manager in managers:
                entered = listener.safely(manager.__enter__)
                if entered is not _FAILED:
                    self._entered.append((listener, manager))
                if listener.carries and isinstance(entered, str):
                    self.kept = entered
        except BaseException:  # an interruption of the thread: it is not the sink's, and goes on
            self.__exit__(*sys.exc_info())
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        if not self._entered:
            return
        listener, manager = self._entered.pop()
        try:
            listener.safely(manager.__exit__, kind, error, traceback)
        finally:
            self.__exit__(kind, error, traceback)


def around(event: Event, *, but: Sink | None = None) -> Wait:
    """Emit an event that a wait or an attempt follows, and return a context manager for that."""
    listeners = _HERE.get()
    managers = []
    for listener in _LISTENERS if listeners is None else listeners:
        if but is None or listener.sink != but:
            manager = listener.receive(event)
            if manager is not None:
                managers.append((listener, manager))
    return Wait(tuple(managers))


def emit(event: Event, *, but: Sink | None = None) -> None:
    """Emit an event that no wait follows."""
    with around(event, but=but):
        pass  # The context managers of the sinks enclose nothing.


def carried() -> bool:
    """Return True if a sink with ``carries`` receives the events of this context."""
    listeners = _HERE.get()
    return any(listener.carries for listener in (_LISTENERS if listeners is None else listeners))


def log(event: Event, *, level: int | None = None) -> None:
    """Write an event to the logger of its `Event.channel`, by default at its own level.

    This is a sink. It is registered from the start; ``observe.remove(observe.log)`` removes it.

    The message is the event as text. For programs each field is an attribute of the log record, by its name
    (``record.job_id``, ``record.delay`` in seconds; see `redrive.observe.logs`), and the event itself is
    ``record.event``.
    """
    from redrive.observe.logs import TAKEN, facts, logger

    target, loudness = logger(event.channel), event.level if level is None else level
    if target.isEnabledFor(loudness):
        extra = {name: fact for name, fact in facts(event) if name not in TAKEN}
        target.log(loudness, "%s", event, extra={**extra, "event": event})


add(log)
