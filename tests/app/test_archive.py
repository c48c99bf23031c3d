"""Deleting and archiving jobs, and the filters of bulk operations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Flow
from redrive.app.operators import jobs as jobs_module
from redrive.engine.records import Filter
from redrive.errors import ArchiveError, ConfigurationError, GiveUp, RunNotFound
from redrive.testing import VirtualClock, drain

ALL = Filter(all=True)


@pytest.fixture
def send(app: App):
    """Return a task, with one succeeded, one dead and one waiting job."""

    @app.task(keep_for="1h")
    def send(text: str) -> str:
        """Return the text, or refuse it."""
        if text == "bad":
            raise GiveUp("refused")
        return text.upper()

    send.options(tags="spring").enqueue("a")
    send.enqueue("bad")
    drain(app)
    send.options(delay="1d").enqueue("later")
    app.clock.advance("1m")
    return send


def test_jobs_are_deleted_in_batches(app: App, send, monkeypatch: pytest.MonkeyPatch):
    """Deletes go on until no job matches or the limit is reached."""
    monkeypatch.setattr(jobs_module, "BATCH", 2)

    assert (1, 2, 3) == app.jobs.delete(ALL, dry_run=True).ids
    assert (1,) == app.jobs.delete(Filter(all=True, limit=1)).ids
    assert (2, 3) == asyncio.run(app.jobs.adelete(ALL, actor="ann")).ids
    assert () == app.jobs.select()
    assert "ann" == app.database.audit()[0].actor


def test_an_archive_is_a_file_of_lines(app: App, send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Archived jobs are lines of JSON with their history; unfinished jobs stay."""
    monkeypatch.setattr(jobs_module, "BATCH", 1)
    file = tmp_path / "jobs.jsonl"

    assert (1, 2) == app.jobs.archive(ALL, file, dry_run=True).ids
    assert not file.exists()
    assert (1,) == app.jobs.archive(Filter(tag="spring"), file).ids
    assert (2,) == asyncio.run(app.jobs.aarchive(ALL, str(file))).ids
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert (1, "send", "succeeded", ["spring"], {"text": "a"}, "A") == (
        first["id"], first["task"], first["state"], first["tags"], first["payload"], first["result"],
    )  # fmt: skip
    assert [["succeeded"], ["failed"]] == [[each["outcome"] for each in job["history"]] for job in (first, second)]
    assert {"attempts": 1} == {"attempts": first["policy"]["attempts"]}
    assert [3] == [job.id for job in app.jobs.select()]
    newest = app.database.audit()[0]
    assert ("archive", str(file)) == (newest.action, json.loads(newest.details)["to"])


def test_the_archive_of_a_run_has_its_steps(app: App):
    """Lines of runs have the run, its steps in their order with their results, and the signals that it has not read."""

    def charge(order: int) -> int:
        return order * 2

    @app.workflow(keep_for="1h")
    async def checkout(flow: Flow, order: int) -> int:
        flow.set("state", "open")
        paid = await flow.step(charge, order)
        return paid + await flow.wait_for("shipped", int)

    checkout.start(7, id="order-7").signal("shipped", 1)
    checkout.run("order-7").signal("late", {"parcel": 2})
    drain(app)
    app.clock.advance("1m")
    stored: list[bytes] = []
    app.jobs.archive(ALL, stored.extend)
    (job,) = map(json.loads, stored)

    assert ("checkout", "order-7", {"state": "open"}) == tuple(
        job["run"][each] for each in ("workflow", "id", "values")
    )
    assert [("1", "charge", 14), ("2", "shipped", 1)] == [
        (each["path"], each["name"], each["result"]) for each in job["steps"]
    ]
    assert [("late", {"parcel": 2})] == [(each["name"], each["payload"]) for each in job["signals"]]
    assert 15 == job["result"]
    with pytest.raises(RunNotFound):
        checkout.run("order-7").timeline()


def test_an_archive_may_be_a_function(app: App, send):
    """Functions get the lines of a batch; if one raises, its jobs stay."""
    stored: list[bytes] = []

    def refuse(lines: object) -> None:
        raise ConnectionError("no bucket")

    with pytest.raises(ConnectionError, match="no bucket"):
        app.jobs.archive(ALL, refuse)
    assert 3 == len(app.jobs.select())
    app.jobs.archive(ALL, stored.extend)
    assert [1, 2] == [json.loads(line)["id"] for line in stored]


def test_a_file_that_cannot_be_written_deletes_nothing(app: App, send, tmp_path: Path):
    """Errors of the file name it, and every job stays."""
    missing = tmp_path / "none" / "jobs.jsonl"

    with pytest.raises(ArchiveError, match=r"none/jobs.jsonl' cannot be written, and nothing was deleted: "):
        app.jobs.archive(ALL, missing)
    assert 3 == len(app.jobs.select())


@pytest.mark.parametrize(
    "act",
    [
        lambda app, where: app.jobs.cancel(where),
        lambda app, where: app.jobs.redrive(where),
        lambda app, where: app.jobs.redrive(where, dry_run=True),
        lambda app, where: app.jobs.repolicy(where),
        lambda app, where: app.jobs.delete(where),
        lambda app, where: app.jobs.archive(where, "never.jsonl"),
    ],
    ids=["cancel", "redrive", "dry run", "repolicy", "delete", "archive"],
)
def test_all_jobs_must_be_meant(app: App, send, act: Callable[[App, Filter], Any]):
    """Operations on many jobs refuse a filter without a condition, and accept one that means all."""
    with pytest.raises(ConfigurationError, match=r"the filter has no condition: give one, or Filter\(all=True\)"):
        act(app, Filter(limit=5, after_id=1))
    assert ["succeeded", "dead", "ready"] == [job.state for job in reversed(app.jobs.select())]
    act(app, Filter(ids=()))


def test_all_jobs_are_no_condition_beside_others():
    """``all=True`` beside a condition is refused, because one of them is a mistake."""
    with pytest.raises(ConfigurationError, match="all=True with task, tag: give the conditions, or all=True"):
        Filter(all=True, task="send", tag="t")


def test_an_instant_of_a_filter_has_a_time_zone():
    """Filters refuse an instant without a time zone."""
    assert datetime(2026, 1, 1, tzinfo=UTC) == Filter(finished_before=datetime(2026, 1, 1, tzinfo=UTC)).finished_before
    with pytest.raises(ConfigurationError, match="has no time zone: add tzinfo=UTC"):
        Filter(finished_before=datetime(2026, 1, 1))  # noqa: DTZ001


def test_cancelled_jobs_may_be_kept_for_a_time_of_their_own():
    """``keep_cancelled_for`` applies to every task; without it cancelled jobs are kept as others."""
    app = App("memory://", clock=VirtualClock(), keep_for="1h", keep_cancelled_for="forever")
    app.task(keep_for="5m")(keep)
    plain = App("memory://", clock=VirtualClock(), keep_for="1h")

    assert (None, None) == (app.keep.by_state["keep_cancelled"], app.keeps()["keep"].by_state["keep_cancelled"])
    assert plain.keep.ended == plain.keep.by_state["keep_cancelled"]
    with pytest.raises(ConfigurationError, match="keep_cancelled_for must be positive"):
        App("memory://", keep_cancelled_for=0)


def keep() -> None:
    """Do nothing."""
