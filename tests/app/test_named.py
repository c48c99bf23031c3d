"""Enqueueing by name: of tasks that this process has, and of tasks that only workers have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError, PayloadError
from redrive.testing import VirtualClock, drain


@pytest.fixture
def web(tmp_path: Path) -> Iterator[App]:
    """Return an app without tasks, on a file."""
    made = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", retry="2 1s")
    yield made
    made.close()


@pytest.fixture
def worker(web: App) -> Iterator[App]:
    """Return an app on the same file with a task."""
    made = App(web.url, clock=VirtualClock(SystemClock().now()))

    @made.task(queue="own")
    def add(one: int, two: int = 1) -> int:
        return one + two

    yield made
    made.close()


def test_a_process_without_the_code_enqueues_by_name(web: App, worker: App):
    """Jobs of a task that only a worker has run there, in both colours and in bulk."""
    add = web.named("add")
    jobs: list[Any] = [add.enqueue(one=1, two=2), *add.enqueue_many([{"one": 3}, {"one": 4, "two": 4}])]
    jobs.append(asyncio.run(add.aenqueue(one=10)))
    clock = worker.clock
    assert isinstance(clock, VirtualClock)
    clock.advance(60)
    drain(worker)

    assert [3, 4, 8, 11] == [job.result(timeout=0) for job in jobs]


def test_options_hold_for_tasks_by_name(web: App):
    """Queue, priority, policy and key are those of ``options``; the policy is otherwise that of the app."""
    add = web.named("add")
    plain = add.enqueue(one=1).record
    job = add.options(queue="own", priority=3, retry="5 1s catch recover", key="k").enqueue(one=1).record

    assert ("default", 0, 3) == (plain.queue, plain.priority, add._options.policy.policy.attempts)
    assert ("own", 3, "k") == (job.queue, job.priority, job.key)


def test_known_tasks_keep_their_check_and_their_options(worker: App):
    """The name of a known task leads to the task itself."""
    add = worker.named("add")

    assert worker.tasks["add"] is add
    with pytest.raises(PayloadError, match="Expected `int`, got `str`"):
        add.enqueue("one")
    assert "own" == add.enqueue(1).record.queue


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1,), {}, r"add: this process does not have the task, so its arguments are given by name, got \(1,\)"),
        ((), {"at": datetime(2026, 1, 1, tzinfo=UTC)}, "add: argument 'at' would not arrive as it is"),
        ((), {"one": object()}, "add: argument 'one': object cannot be written as JSON"),
    ],
)
def test_arguments_that_would_change_are_refused(web: App, args: tuple[Any, ...], kwargs: dict[str, Any], message: str):
    """Without the code there are no annotations, so only plain JSON by name is accepted; nothing is enqueued."""
    with pytest.raises(PayloadError, match=message):
        web.named("add").enqueue(*args, **kwargs)
    with pytest.raises(PayloadError, match="call 0: add: "):
        web.named("add").enqueue_many([(1, 2)])
    assert 0 == web.jobs.stats().due


def test_wrong_arguments_are_found_by_the_worker(web: App, worker: App):
    """Jobs that do not match the annotations wait for other code, as after a deploy, and are not lost."""
    job = web.named("add").enqueue(three=3)
    clock = worker.clock
    assert isinstance(clock, VirtualClock)
    clock.advance(60)
    drain(worker, within="1m")

    assert ("ready", "bad_payload") == (job.refresh().state, job.record.hold)


@pytest.mark.parametrize("name", ["", " ", 5])
def test_a_name_is_a_text(web: App, name: Any):
    """Other names are refused with one line."""
    with pytest.raises(ConfigurationError, match=r"app.named\(\) takes the name of a task, got"):
        web.named(name)
