"""Durable jobs in a Starlette application, or a FastAPI one: opened with it, at hand in it, run beside it.

::

    jobs = redrive.App("sqlite:///shop.db")
    app = Starlette(routes, lifespan=lifespan(jobs, worker=True), exception_handlers=refusals())

**At the start** the database is opened and brought to the present schema, so that no request does it, and a program
that cannot reach it does not start. **In a request** the App is found by `jobs_of`; a ``BackgroundTask`` that must not
be lost becomes ``task.enqueue(...)``: it is stored when that returns, and runs in whichever worker is there, also
after this process has been killed. **At the end** an embedded worker takes nothing new, the running handlers may
finish for a while, and then they are interrupted: their jobs are given back, due at once, with nothing spent.

An embedded worker shares the event loop with the requests, and as many workers run as there are server processes. That
is right for small programs; else start ``redrive worker`` beside the server and leave ``worker=False``.

**What is not there for the moment** is said as HTTP says it (`refusals`): an open breaker, an overloaded target, a
database that is away become ``503`` with ``Retry-After``, since nothing was done and a later request may succeed.

**How long the caller waits** (`RequestTimeout`) is the deadline of the request: nobody retries for a caller who has
gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.app.app import App
from redrive.clock import SystemClock
from redrive.errors import CircuitOpen, ConfigurationError, Overloaded, StoreBusy, StoreUnreachable, TooManyInRetry
from redrive.errors.foreign import trace
from redrive.observe.logs import Block, logger
from redrive.policy import Policy, parse_duration
from redrive.runtime.worker import Worker

__all__ = ["RequestTimeout", "jobs_of", "lifespan", "refusals", "serving"]

log = logger("redrive.worker")

STATE = "redrive"
"""What the App is called in the state of the lifespan, and so in ``request.state``."""

MOMENT = timedelta(seconds=1)
"""When to come back where nobody knows it."""

Span = timedelta | float | str


@asynccontextmanager
async def serving(
    app: App,
    *,
    worker: bool = False,
    concurrency: int = 50,
    queues: Sequence[str] | None = None,
    shutdown_timeout: Span = "10s",
) -> AsyncGenerator[App, None]:
    """Have an App open inside of an ``async with`` block; for a lifespan of your own.

    Args:
        app: the App.
        worker: run its jobs in this process as well?
        concurrency: attempts at once, of that worker.
        queues: which queues it serves; None means all.
        shutdown_timeout: how long running handlers may take to finish when the block ends: a ``timedelta``, seconds,
            or text. Servers are killed by their supervisors when they take too long; stay below that.

    Yields:
        The App.

    Raises:
        ConfigurationError: the app is not whole.
        StoreError: the database cannot be opened.
    """
    patience = parse_duration(shutdown_timeout)
    await asyncio.to_thread(app.open)
    try:
        if not worker:
            yield app
            return
        async with _working(Worker(app, concurrency=concurrency, queues=queues, shutdown_timeout=patience)):
            yield app
    finally:
        await asyncio.to_thread(app.close)


@asynccontextmanager
async def _working(worker: Worker) -> AsyncIterator[None]:
    """Run a worker beside the block, and let it finish at its end."""
    running = asyncio.create_task(worker.run(), name="redrive-worker")
    running.add_done_callback(_tell)
    try:
        yield
    finally:
        worker.stop()
        await asyncio.wait([running])


def _tell(running: asyncio.Task[None]) -> None:
    """A worker that ends by an error is missed by nobody until jobs pile up: it is said aloud, once."""
    if not running.cancelled() and (error := running.exception()) is not None:
        log.critical("the embedded worker has ended; jobs are stored, but not run here%s", Block(trace(error)))


def lifespan(
    app: App,
    *,
    worker: bool = False,
    concurrency: int = 50,
    queues: Sequence[str] | None = None,
    shutdown_timeout: Span = "10s",
) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Make the ``lifespan=`` of an application; see `serving` for the arguments.

    Args:
        app: the App.
        worker: run its jobs in this process as well?
        concurrency: attempts at once.
        queues: which queues.
        shutdown_timeout: how long running handlers may take to finish.

    Returns:
        What ``Starlette(lifespan=...)`` and ``FastAPI(lifespan=...)`` take.
    """

    @asynccontextmanager
    async def context(_: Any) -> AsyncIterator[Mapping[str, Any]]:  # noqa: ANN401 - of Starlette or FastAPI
        """Have the App open while the application serves."""
        async with serving(
            app, worker=worker, concurrency=concurrency, queues=queues, shutdown_timeout=shutdown_timeout
        ):
            yield {STATE: app}

    return context


def jobs_of(connection: HTTPConnection) -> App:
    """The App of the application that serves this request or WebSocket.

    Args:
        connection: the request.

    Returns:
        The App.

    Raises:
        ConfigurationError: the application has no `lifespan` of this module.
    """
    found: App | None = getattr(connection.state, STATE, None)
    if found is None:
        message = (
            "request.state has no App: give the application lifespan=redrive.contrib.starlette.lifespan(app), or have "
            f"your own lifespan yield {{{STATE!r}: app}}; servers and test clients must run it"
        )
        raise ConfigurationError(message)
    return found


# ------------------------------------------------------------------------------------------------------------ refusals


def refusals() -> dict[Any, Callable[[Request, Exception], Response]]:
    """Make the ``exception_handlers=`` of an application: what is not there for the moment becomes ``503``.

    Returns:
        The handler for each of `CircuitOpen`, `Overloaded`, `TooManyInRetry`, `StoreBusy`, `StoreUnreachable`.
    """
    return dict.fromkeys((CircuitOpen, Overloaded, TooManyInRetry, StoreBusy, StoreUnreachable), _refuse)


def _refuse(_: Request, error: Exception) -> Response:
    """Answer ``503``. The error itself is for the log: it names what stands behind this server."""
    logger("redrive.http").warning("refused: %s", error)
    wait = getattr(error, "retry_after", None) or MOMENT
    seconds = max(1, math.ceil(wait.total_seconds()))  # whole ones, and never early (law 9)
    answer = {"detail": "temporarily unavailable, try again later"}
    return JSONResponse(answer, status_code=503, headers={"Retry-After": str(seconds)})


# ----------------------------------------------------------------------------------------------------------- deadlines


class RequestTimeout:
    """Middleware: the time that the caller still waits is the deadline of its request.

    The caller says it in a header, in seconds: ``Request-Timeout: 2.5``. Inside of the request `redrive.deadline` tells
    it to adapters, which set the timeouts of their calls by it. When it has passed, the route is cancelled wherever it
    waits, in a retry for example, and the answer is ``504``. A route that is ``def`` runs in a thread, which nobody can
    cancel; it runs to its end. A header that cannot be read is as good as none.

    Args:
        app: what it stands before.
        header: name of the header.
        longest: what a caller may ask for at most, and what holds for those who say nothing; None for no bound.
    """

    def __init__(self, app: ASGIApp, *, header: str = "Request-Timeout", longest: Span | None = None) -> None:
        self._app = app
        self._header = header
        self._longest = None if longest is None else parse_duration(longest).total_seconds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, under the deadline that it brings."""
        seconds = self._seconds(scope) if scope["type"] == "http" else None
        if seconds is None:
            await self._app(scope, receive, send)
            return
        started = False

        async def noting(message: Message) -> None:
            """Note that the answer has begun."""
            nonlocal started
            started = True
            await send(message)

        ends = SystemClock.monotonic() + seconds
        # One attempt: it retries nothing, it only says until when.
        policy = Policy(on=(), on_result=_never, attempts=1, deadline=seconds)
        try:
            await policy.acall(self._app, scope, receive, noting)
        except TimeoutError:
            if started or SystemClock.monotonic() < ends:  # something further in has run out of time
                raise
            await JSONResponse({"detail": "the time of the request is over"}, status_code=504)(scope, receive, send)

    def _seconds(self, scope: Scope) -> float | None:
        said = math.nan
        with contextlib.suppress(ValueError):
            said = float(Headers(scope=scope).get(self._header, ""))
        if not (math.isfinite(said) and said > 0):
            return self._longest
        return said if self._longest is None else min(said, self._longest)


def _never(_: object) -> bool:
    return False
