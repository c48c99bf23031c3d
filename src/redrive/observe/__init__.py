"""What happens, told as it happens: one stream of typed events, and the sinks that hear it.

Answers: who is told that a retry was decided, that a call gave up, that a request is not sent again? May import:
`redrive.policy` and below; nothing below it may tell (law 1: pure code returns what it has decided, and whoever carries
that out tells). Must never: change what a call does, cost a call that succeeds at once anything, or let a sink's
failure out.

A *sink* is a function that takes an event::

    from redrive import observe

    observe.add(observe.log)


    @observe.add
    def count(event):
        if isinstance(event, observe.CallRetryScheduled):
            retries.labels(event.name, event.rule).inc()

All that redrive tells goes through here, whichever half of it speaks:

=========================  ============================================================================
event                      is told when
=========================  ============================================================================
`CallRetryScheduled`       an attempt of a call in process has failed, and another one follows
`CallSucceeded`            a call has succeeded after retries
`CallGaveUp`               a call has failed for good, or was refused by its budget or its breaker
`CallDeferred`             a call has ended because its next attempt lies beyond the deadline
``RequestRetryScheduled``  a request under RFC 0049 is sent again (`redrive.retrying.orchestrator`)
``RequestNotRetried``      it is not
=========================  ============================================================================

Classes are named by who it is about and what became of it: ``Call...`` in process, ``Request...`` under the
orchestrator, ``Job...`` for durable work. A call that succeeds at once tells nothing. Neither does an error that is
none of its policy's business, nor a call that leaves the retrying to another one above: that one tells.

**Around a wait.** A sink may return a context manager. It is entered before the wait that the event is about and exited
once after it, also when the wait is cancelled or interrupted; each event has its own, so that calls at the same time
share none. Where no wait follows it is entered and exited at once. What its exit returns is ignored: a sink cannot
swallow a cancellation. ::

    @observe.add
    @contextmanager
    def span(event):
        with tracer.start_as_current_span(type(event).__name__):
            yield

**A sink that fails** breaks nothing. Its first error goes to the logger ``redrive.observe``, and the call goes on; the
sink is told further events. What a sink does itself is not told to it, so that one that calls a retried function does
not hear itself.

Sinks are called where the thing happens, in its thread or task, synchronously: they should be quick and must not block
an event loop. While a failure is told, ``sys.exception()`` is the exception, for those who want more than the failure
as data; events about waits do not hold it, since nothing that waits may hold an error and its frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.observe.events import CallDeferred, CallEvent, CallGaveUp, CallRetryScheduled, CallSucceeded, Event
    from redrive.observe.sinks import Registration, Sink, Wait, add, around, log, only, tell

__all__ = [
    "CallDeferred",
    "CallEvent",
    "CallGaveUp",
    "CallRetryScheduled",
    "CallSucceeded",
    "Event",
    "Registration",
    "Sink",
    "Wait",
    "add",
    "around",
    "log",
    "only",
    "tell",
]

_EVENTS = {"CallDeferred", "CallEvent", "CallGaveUp", "CallRetryScheduled", "CallSucceeded", "Event"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """Load a public name at its first use: a call that tells nothing needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'redrive.observe' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(f"redrive.observe.{'events' if name in _EVENTS else 'sinks'}")
    globals().update({each: getattr(home, each) for each in home.__all__ if each in __all__})
    return globals()[name]
