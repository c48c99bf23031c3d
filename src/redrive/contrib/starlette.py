"""Durable jobs in Starlette and FastAPI applications: a lifespan, access to the App, and an embedded worker.

::

    jobs = redrive.App("sqlite:///shop.db")
    app = Starlette(routes, lifespan=lifespan(jobs, worker=True), exception_handlers=refusals())
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

from redrive.app.app import App
from redrive.clock import SystemClock
from redrive.contrib import extra
from redrive.errors import (
    CircuitOpen,
    ConfigurationError,
    JobNotFound,
    Overloaded,
    StartHookError,
    StoreBusy,
    StoreUnreachable,
    TooManyInRetry,
)
from redrive.errors.foreign import trace
from redrive.observe.logs import Block, logger
from redrive.policy import Policy, parse_duration
from redrive.policy.duration import Duration
from redrive.runtime.supervision import first
from redrive.runtime.worker import Worker

with extra("starlette"):
    from starlette.datastructures import Headers
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import JSONResponse, Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["RequestTimeout", "jobs_of", "lifespan", "refusals", "serving"]

log = logger("redrive.worker")

#: The name of the App in the state of the lifespan, and so in ``request.state``.
STATE = "redrive"

#: The ``Retry-After`` of errors that have none.
DEFAULT_RETRY_AFTER = timedelta(seconds=1)


@asynccontextmanager
async def serving(
    app: App,
    *,
    worker: bool = False,
    concurrency: int = 50,
    queues: Sequence[str] | None = None,
    exclude_queues: Sequence[str] | None = None,
    name: str | None = None,
    shutdown_timeout: Duration = "10s",
) -> AsyncGenerator[App, None]:
    """Open an App for an ``async with`` block, in a lifespan of your own.

    Args:
        app: the App.
        worker: True to run its jobs in this process. Its start hooks have run when the block begins, and its stop
            hooks when the block has ended.
        concurrency: attempts at once of that worker.
        queues: the queues that it serves; None means all.
        exclude_queues: queues that it does not serve.
        name: its name in lists, by default ``host:pid``.
        shutdown_timeout: the time that running handlers have to finish when the block ends: a ``timedelta``, seconds,
            or text. Make it shorter than the time after which the supervisor kills the server.

    Yields:
        The App.

    Raises:
        ConfigurationError: a task is not complete.
        StartHookError: a start hook of the worker failed (`App.on_start`); the server does not start.
        StoreError: the database cannot be opened.
    """
    patience = parse_duration(shutdown_timeout)
    await asyncio.to_thread(app.open)
    try:
        if not worker:
            yield app
            return
        runner = Worker(
            app,
            concurrency=concurrency,
            queues=queues,
            exclude_queues=exclude_queues,
            name=name,
            shutdown_timeout=patience,
        )
        async with _working(runner):
            yield app
    finally:
        await asyncio.to_thread(app.close)


@asynccontextmanager
async def _working(worker: Worker) -> AsyncIterator[None]:
    """Run a worker during the block, and stop it at its end."""
    running = asyncio.create_task(worker.run(), name="redrive-worker")
    running.add_done_callback(_log_error)
    try:
        # Any other error of the worker is logged, and the server goes on without it.
        with contextlib.suppress(Exception):
            await first(running, worker.started.wait())
        if running.done() and isinstance(error := running.exception(), StartHookError):
            raise error
        yield
    finally:
        worker.stop()
        await asyncio.wait([running])


def _log_error(running: asyncio.Task[None]) -> None:
    # Without this line, an embedded worker that ended by an error is noticed only when jobs accumulate.
    if not running.cancelled() and (error := running.exception()) is not None:
        log.critical("the embedded worker has ended; jobs are stored, but not run here%s", Block(trace(error)))


def lifespan(
    app: App,
    *,
    worker: bool = False,
    concurrency: int = 50,
    queues: Sequence[str] | None = None,
    exclude_queues: Sequence[str] | None = None,
    name: str | None = None,
    shutdown_timeout: Duration = "10s",
) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Return the ``lifespan=`` of a Starlette or FastAPI application; see `serving` for the arguments."""

    @asynccontextmanager
    async def context(_: object) -> AsyncIterator[Mapping[str, Any]]:
        """Open the App while the application serves."""
        async with serving(
            app,
            worker=worker,
            concurrency=concurrency,
            queues=queues,
            exclude_queues=exclude_queues,
            name=name,
            shutdown_timeout=shutdown_timeout,
        ):
            yield {STATE: app}

    return context


def jobs_of(connection: HTTPConnection) -> App:
    """Return the App of the application that serves a request or WebSocket.

    Raises:
        ConfigurationError: the application has no `lifespan` of this module.
    """
    found: App | None = getattr(connection.state, STATE, None)
    if found is None:
        raise ConfigurationError(
            "request.state has no App: give the application lifespan=redrive.contrib.starlette.lifespan(app), or have "
            f"your own lifespan yield {{{STATE!r}: app}}; servers and test clients must run it"
        )
    return found


def refusals() -> dict[Any, Callable[[Request, Exception], Response]]:
    """Return the ``exception_handlers=`` of an application: ``503`` for temporary errors, ``404`` for an unknown job.

    The temporary errors are `CircuitOpen`, `Overloaded`, `TooManyInRetry`, `StoreBusy` and `StoreUnreachable`; an
    unknown job is `JobNotFound`.
    """
    temporary = (CircuitOpen, Overloaded, TooManyInRetry, StoreBusy, StoreUnreachable)
    return {**dict.fromkeys(temporary, _refuse), JobNotFound: _not_found}


def _not_found(_: Request, error: Exception) -> Response:
    logger("redrive.http").info("not found: %s", error)
    return JSONResponse({"detail": "there is no such job"}, status_code=404)


def _refuse(_: Request, error: Exception) -> Response:
    # The text of the error goes to the log only, because it names the services behind this server.
    logger("redrive.http").warning("refused: %s", error)
    wait = getattr(error, "retry_after", None) or DEFAULT_RETRY_AFTER
    # Rounded up, because a client must not come back before the time.
    seconds = max(1, math.ceil(wait.total_seconds()))
    answer = {"detail": "temporarily unavailable, try again later"}
    return JSONResponse(answer, status_code=503, headers={"Retry-After": str(seconds)})


class RequestTimeout:
    """Middleware that sets the deadline of a request from the time that the caller waits.

    The caller sends the time in seconds: ``Request-Timeout: 2.5``. Inside the request `redrive.deadline` returns the
    deadline, from which adapters set the timeouts of their calls. When it has passed, the route is cancelled, during a
    retry for example, and the response is ``504``. A ``def`` route runs in a thread, which cannot be cancelled, and
    continues to its end. A header that cannot be read is ignored.

    Args:
        app: the application.
        header: name of the header.
        longest: the upper bound, also for requests without the header; None for no bound.
    """

    def __init__(self, app: ASGIApp, *, header: str = "Request-Timeout", longest: Duration | None = None) -> None:
        self._app = app
        self._header = header
        self._longest = None if longest is None else parse_duration(longest).total_seconds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request under its deadline."""
        seconds = self._seconds(scope) if scope["type"] == "http" else None
        if seconds is None:
            await self._app(scope, receive, send)
            return
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        ends = SystemClock.monotonic() + seconds
        # One attempt: the policy only sets the deadline.
        policy = Policy(on=(), on_result=_never, attempts=1, deadline=seconds)
        try:
            await policy.acall(self._app, scope, receive, noting)
        except TimeoutError:
            if started or SystemClock.monotonic() < ends:
                # The timeout is of another call inside the route.
                raise
            await JSONResponse({"detail": "the time of the request is over"}, status_code=504)(scope, receive, send)

    def _seconds(self, scope: Scope) -> float | None:
        seconds = math.nan
        with contextlib.suppress(ValueError):
            seconds = float(Headers(scope=scope).get(self._header, ""))
        if not (math.isfinite(seconds) and seconds > 0):
            return self._longest
        return seconds if self._longest is None else min(seconds, self._longest)


def _never(_: object) -> bool:
    return False
