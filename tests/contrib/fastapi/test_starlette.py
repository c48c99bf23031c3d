"""Durable jobs in an ASGI application: opened, found, run and closed with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

import redrive
from redrive.contrib.starlette import RequestTimeout, jobs_of, lifespan, refusals, serving
from redrive.errors import CircuitOpen, ConfigurationError, Overloaded, StartHookError, StoreBusy, StoreOpenError
from redrive.runtime.worker import Worker
from tests.contrib.fastapi.asgi import ask

PATIENCE = 90


@pytest.fixture
def jobs(tmp_path):
    """Yield an App on a file."""
    app = redrive.App(f"sqlite:///{tmp_path}/jobs.db")
    yield app
    app.close()


def wait_for(event: threading.Event) -> None:
    """Wait for a signal."""
    assert event.wait(PATIENCE)


def test_the_app_is_available_in_the_application(jobs):
    """Routes get the App, and their jobs are run by the worker in the server."""

    @jobs.task
    def double(number: int) -> int:
        return 2 * number

    async def enqueue(request):
        assert jobs is jobs_of(request)
        job = await double.aenqueue(4)
        return JSONResponse(await job.aresult(timeout=PATIENCE))

    application = Starlette(routes=[Route("/", enqueue)], lifespan=lifespan(jobs, worker=True))

    assert 8 == ask(application).json()


def test_without_a_worker_jobs_wait(jobs):
    """By default a server stores jobs and runs none; it opens the database before the first request and closes it."""

    @jobs.task
    def double(number: int) -> int:
        return 2 * number

    async def use():
        async with serving(jobs) as app:
            assert jobs._store is not None
            job = await double.aenqueue(4)
            return (await app.job(job.id).arefresh()).state

    assert "ready" == asyncio.run(use())
    assert jobs._store is None


def test_running_jobs_may_finish_at_shutdown(jobs):
    """At shutdown running jobs may finish."""
    started, go = threading.Event(), threading.Event()

    @jobs.task
    def hold() -> str:
        started.set()
        wait_for(go)
        return "done"

    async def use():
        async with serving(jobs, worker=True, shutdown_timeout=PATIENCE):
            job = await hold.aenqueue()
            await asyncio.to_thread(wait_for, started)
            asyncio.get_running_loop().call_later(0.01, go.set)
        return job

    job = asyncio.run(use())

    assert "done" == job.result(timeout=PATIENCE)


def test_unfinished_jobs_are_given_back_at_shutdown(jobs):
    """After the shutdown timeout a running coroutine is interrupted, and its job is due at once."""

    @jobs.task
    async def hold() -> None:
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()

    async def use():
        async with serving(jobs, worker=True, shutdown_timeout="1ms"):
            job = await hold.aenqueue()
            async with asyncio.timeout(PATIENCE):
                await started.wait()
        return job

    job = asyncio.run(use()).refresh()

    assert ("ready", 0, ["released"]) == (job.state, job.record.failures, [each.outcome for each in job.attempts])


def test_a_server_without_its_database_does_not_start(tmp_path):
    """Databases that cannot be opened fail the startup, not the first request."""
    app = redrive.App(f"sqlite:///{tmp_path}/no/such/folder/jobs.db")

    with pytest.raises(StoreOpenError):
        ask(Starlette(lifespan=lifespan(app)))


def test_a_failing_worker_is_logged(jobs, monkeypatch, caplog):
    """If the worker fails, the server goes on and logs it."""

    async def run(self):
        raise OSError("no more threads")

    monkeypatch.setattr(Worker, "run", run)

    async def use():
        async with serving(jobs, worker=True):
            await asyncio.to_thread(jobs.jobs.stats)

    asyncio.run(use())

    assert "the embedded worker has ended" in caplog.text


def test_hooks_of_an_embedded_worker_run_around_the_server(jobs):
    """Start hooks have run when the server starts, and stop hooks when its lifespan has ended."""
    calls = []

    @jobs.on_start
    async def open_() -> AsyncIterator[dict[str, int]]:
        calls.append("opened")
        yield {"number": 4}
        calls.append("closed")

    @jobs.task
    def number(ctx: redrive.Context) -> int:
        return ctx.resources["number"]

    async def use():
        async with serving(jobs, worker=True):
            calls.append("serving")
            job = await number.aenqueue()
            calls.append(await job.aresult(timeout=PATIENCE))

    asyncio.run(use())
    assert ["opened", "serving", 4, "closed"] == calls


def test_a_server_with_a_failing_start_hook_does_not_start(jobs):
    """The error of the hook leaves the lifespan, so that the server ends with its message."""
    stopped = []
    jobs.on_stop(lambda: stopped.append(True))

    @jobs.on_start
    def broken() -> None:
        raise ConnectionRefusedError("redis is down")

    with pytest.raises(StartHookError, match="broken failed: ConnectionRefusedError: redis is down"):
        ask(Starlette(lifespan=lifespan(jobs, worker=True)))
    assert [True] == stopped


def test_a_route_without_a_lifespan_raises_an_error():
    """Without the lifespan, routes raise an error that names it."""

    async def look(request):
        return JSONResponse(str(jobs_of(request)))

    with pytest.raises(ConfigurationError, match="lifespan=redrive.contrib.starlette.lifespan"):
        ask(Starlette(routes=[Route("/", look)]))


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (CircuitOpen(retry_after=timedelta(seconds=2.1)), "3"),
        (CircuitOpen(), "1"),
        (CircuitOpen(retry_after=timedelta(0)), "1"),
        (Overloaded(rejection=0.5), "1"),
        (StoreBusy("the path of the database"), "1"),
    ],
)
def test_temporary_unavailability_is_503(error, seconds):
    """Open breakers, overloaded targets and unreachable databases become 503 with a Retry-After that is rounded up."""

    async def fail(_):
        raise error

    answer = ask(Starlette(routes=[Route("/", fail)], exception_handlers=refusals()))

    assert (503, seconds) == (answer.status, answer.headers["retry-after"])
    assert {"detail": "temporarily unavailable, try again later"} == answer.json()


def test_an_unknown_job_is_not_found(jobs):
    """Answer a question about a job that does not exist with 404."""
    jobs.open()

    def look(_):
        return JSONResponse({"state": jobs.job(7).state})

    answer = ask(Starlette(routes=[Route("/", look)], exception_handlers=refusals()))

    assert (404, {"detail": "there is no such job"}) == (answer.status, answer.json())


def remaining(headers, **options) -> float | None:
    """Return the deadline inside a route with a retried call."""

    @redrive.retry("1 1ms", on=OSError)
    async def look():
        found = redrive.deadline()
        return None if found is None else found.remaining

    async def route(_):
        return JSONResponse(await look())

    middleware = [Middleware(RequestTimeout, **options)]
    return ask(Starlette(routes=[Route("/", route)], middleware=middleware), headers=headers).json()


def test_the_timeout_header_of_the_caller_is_the_deadline():
    """Headers bound all retries in the request; the application bounds the header."""
    assert 0 < remaining({"Request-Timeout": "50"}) <= 50
    assert 0 < remaining({"Request-Timeout": "5000"}, longest="40s") <= 40
    assert 0 < remaining({}, longest="40s") <= 40
    assert 0 < remaining({"X-Wait": "50"}, header="X-Wait") <= 50


@pytest.mark.parametrize("given", ["soon", "-1", "0", "inf", "nan", ""])
def test_an_invalid_timeout_header_is_ignored(given):
    """Invalid headers are ignored."""
    assert None is remaining({"Request-Timeout": given})


def test_calls_are_cancelled_at_the_deadline_of_the_request():
    """Retried calls are cancelled at the deadline of the request, and the response is 504."""
    attempts = []

    @redrive.retry("9 1h", on=OSError)
    async def call():
        attempts.append("once")
        raise OSError("out")

    async def route(_):
        await call()

    application = Starlette(routes=[Route("/", route)], middleware=[Middleware(RequestTimeout)])

    assert 504 == ask(application, headers={"Request-Timeout": "0.02"}).status
    assert ["once"] == attempts


def test_a_timeout_of_the_route_itself_is_raised():
    """Only the caller's deadline is a 504; what runs out further in is for the application to handle."""

    async def route(_):
        raise TimeoutError("of a supplier")

    application = Starlette(routes=[Route("/", route)], middleware=[Middleware(RequestTimeout)])
    with pytest.raises(TimeoutError, match="of a supplier"):
        ask(application, headers={"Request-Timeout": "600"})


def test_a_started_response_is_not_replaced():
    """If the deadline passes during a response, the response is aborted."""

    async def stream():
        yield b"the beginning"
        await asyncio.Event().wait()

    async def route(_):
        return StreamingResponse(stream())

    application = Starlette(routes=[Route("/", route)], middleware=[Middleware(RequestTimeout)])
    with pytest.raises(TimeoutError):
        ask(application, headers={"Request-Timeout": "0.02"})
