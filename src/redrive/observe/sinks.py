"""Who hears events, and how they are told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from threading import Lock
from types import TracebackType
from typing import Any, Generic, TypeAlias, TypeVar

from redrive.observe.events import Event
from redrive.observe.listeners import LISTENERS

__all__ = ["Registration", "Sink", "Wait", "add", "around", "carried", "log", "only", "tell"]

Sink: TypeAlias = Callable[[Any], "AbstractContextManager[Any] | None"]
"""Takes an event, and may return a context manager to have around the wait, or the attempt, that follows."""

S = TypeVar("S", bound=Sink)


class _Hearer:
    """A sink, and whether its failing is known."""

    __slots__ = ("_is_known_to_fail", "carries", "count", "sink")

    def __init__(self, sink: Sink) -> None:
        if not callable(sink):
            raise TypeError(f"{sink!r} is no sink: give a function that takes an event")
        self.sink = sink
        self.carries = getattr(sink, "carries", False) is True
        self.count = 0
        self._is_known_to_fail = False

    def told(self, event: Event) -> AbstractContextManager[Any] | None:
        """Tell it something; what it wants to have around what follows."""
        answer = self.safely(self.sink, event)
        if answer is None or answer is _FAILED:
            return None
        if not (hasattr(answer, "__enter__") and hasattr(answer, "__exit__")):
            self._report(TypeError(f"it returned {answer!r}: a sink returns a context manager, or None"))
            return None
        manager: AbstractContextManager[Any] = answer
        return manager

    def safely(self, part: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401 - whatever the sink returns
        """Do a part of the sink's work, for which nobody is told anything; `_FAILED` if it raised."""
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
_LOCK = Lock()
_EVERYWHERE: tuple[_Hearer, ...] = ()
_HERE: ContextVar[tuple[_Hearer, ...] | None] = ContextVar("redrive.observe", default=None)


class Registration(Generic[S]):
    """A sink that was added: until `remove`, or the end of a ``with`` block, it hears. Called, it is the sink.

    Attributes:
        sink: which.
    """

    def __init__(self, sink: S, hearer: _Hearer) -> None:
        self.sink = sink
        self._hearer: _Hearer | None = hearer

    def remove(self) -> None:
        """Hear no more; a second time nothing happens."""
        global _EVERYWHERE  # noqa: PLW0603 - replaced as a whole, so that those who tell need no lock
        with _LOCK:
            hearer, self._hearer = self._hearer, None
            if hearer is None:
                return
            hearer.count -= 1
            LISTENERS.pop()
            if not hearer.count:
                _EVERYWHERE = tuple(each for each in _EVERYWHERE if each is not hearer)

    def __call__(self, event: Any) -> AbstractContextManager[Any] | None:  # noqa: ANN401 - what the sink takes
        """Call the sink."""
        return self.sink(event)

    def __enter__(self) -> S:
        return self.sink

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.remove()


def add(sink: S) -> Registration[S]:
    """Let a sink hear everything in this process, from now on.

    It hears of calls whose first failure comes after this. A sink that is added twice is told once, until both
    registrations are removed.

    Args:
        sink: a function that takes an event, and may return a context manager (see the top of `redrive.observe`).

    Returns:
        Its registration, whose ``remove()`` ends that, as does the end of a ``with`` statement. It can be called like
        the sink, so that ``add`` may stand above a function as a decorator.

    Raises:
        TypeError: it is no function.
    """
    global _EVERYWHERE  # noqa: PLW0603 - see `Registration.remove`
    new = _Hearer(sink)
    with _LOCK:
        hearer = next((each for each in _EVERYWHERE if each.sink == sink), new)
        if hearer is new:
            _EVERYWHERE = (*_EVERYWHERE, new)
        hearer.count += 1
        LISTENERS.append(None)
    return Registration(sink, hearer)


@contextmanager
def only(*sinks: Sink) -> Iterator[None]:
    """Tell these sinks and no others inside a ``with`` block, here and in tasks started there; for tests.

    Args:
        *sinks: who hears; none for silence.

    Raises:
        TypeError: one of them is no function.
    """
    hearers = tuple([_Hearer(sink) for sink in sinks])
    LISTENERS.append(None)
    token = _HERE.set(hearers)
    try:
        yield
    finally:
        _HERE.reset(token)
        LISTENERS.pop()


# ------------------------------------------------------------------------------------------------------------- telling


class Wait:
    """What sinks have around one wait, or one attempt. A ``with`` block enters and exits it; a second one does nothing.

    Attributes:
        kept: once it is entered, what a sink that carries wants to be kept with the jobs in question; None for nothing.
    """

    __slots__ = ("_entered", "_managers", "kept")

    def __init__(self, managers: tuple[tuple[_Hearer, AbstractContextManager[Any]], ...] = ()) -> None:
        self.kept: str | None = None
        self._managers = managers
        self._entered: list[tuple[_Hearer, AbstractContextManager[Any]]] = []

    def __enter__(self) -> None:
        managers = self._managers
        if not managers:
            return
        self._managers = ()
        try:
            for hearer, manager in managers:
                entered = hearer.safely(manager.__enter__)
                if entered is not _FAILED:
                    self._entered.append((hearer, manager))
                if hearer.carries and isinstance(entered, str):
                    self.kept = entered
        except BaseException:  # an interruption of the thread: it is not the sink's, and goes on
            self.__exit__(*sys.exc_info())
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        if not self._entered:
            return
        hearer, manager = self._entered.pop()
        try:
            hearer.safely(manager.__exit__, kind, error, traceback)
        finally:
            self.__exit__(kind, error, traceback)


def around(event: Event, *, but: Sink | None = None) -> Wait:
    """Tell something that a wait follows, or an attempt.

    Args:
        event: what has happened.
        but: a sink that has heard it already.

    Returns:
        What to have around it.
    """
    hearers = _HERE.get()
    managers = []
    for hearer in _EVERYWHERE if hearers is None else hearers:
        if but is None or hearer.sink != but:
            manager = hearer.told(event)
            if manager is not None:
                managers.append((hearer, manager))
    return Wait(tuple(managers))


def tell(event: Event, *, but: Sink | None = None) -> None:
    """Tell something that no wait follows.

    Args:
        event: what has happened.
        but: a sink that has heard it already.
    """
    with around(event, but=but):
        """What a sink wants to have around a wait is around nothing."""


def carried() -> bool:
    """Does a sink hear, here, that leaves something with jobs and wants it back at each attempt?"""
    hearers = _HERE.get()
    return any(hearer.carries for hearer in (_EVERYWHERE if hearers is None else hearers))


def log(event: Event, *, level: int | None = None) -> None:
    """The sink that writes events to the standard library's loggers, by `Event.channel`.

    The message is the event as text. For programs each of its facts is an attribute of the log record, by the name of
    the field (``record.job_id``, ``record.delay`` in seconds; see `redrive.observe.facts`), and the event itself is
    ``record.event``.

    Args:
        event: what has happened.
        level: how loud, as a number of `logging`; by default as the event says.
    """
    import logging

    from redrive.observe.facts import facts
    from redrive.observe.logs import logger

    target, loudness = logger(event.channel), event.level if level is None else level
    if target.isEnabledFor(loudness):
        # A field of somebody's own event may be called like what a log record has already, which would be an error.
        taken = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}
        extra = {name: fact for name, fact in facts(event) if name not in taken}
        target.log(loudness, "%s", event, extra={**extra, "event": event})
