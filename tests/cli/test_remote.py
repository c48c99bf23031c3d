"""Commands that act through the JSON API of a dashboard (`redrive --url`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import redrive as package
from redrive.cli import remote
from redrive.engine.lifecycle import State
from redrive.web import Account, Role, Users, create_app, hash_token
from tests.cli.conftest import Output
from tests.web.served import served

USERS = Users(
    {"ci": Account(Role.OPERATE, token=hash_token("ops")), "eve": Account(Role.READ, token=hash_token("dev"))}
)

Remote = Callable[..., Output]


@pytest.fixture(scope="module")
def app() -> Iterator[package.App]:
    """Return an App with a job."""
    app = package.App("memory://")

    @app.task(retry="0")
    def charge(cents: int) -> None:
        """Do nothing."""

    @app.workflow()
    async def checkout(flow: package.Flow) -> str:
        """Wait for the parcel."""
        return await flow.wait_for("parcel", str)

    app.open()
    charge.enqueue(1)
    checkout.start(id="order/1")
    yield app
    app.close()


@pytest.fixture(scope="module")
def url(app: package.App) -> Iterator[str]:
    """The address of its dashboard."""
    with served(create_app(app, auth=USERS)) as url:
        yield url


@pytest.fixture
def at_url(redrive: Remote, url: str, tmp_path: Path) -> Remote:
    """Run a command line through the URL."""
    (tmp_path / "token").write_text("ops\n")
    return lambda *words: redrive("--url", url, "--token-file", str(tmp_path / "token"), *words)


def test_commands_act_through_a_url(app: package.App, at_url: Remote):
    """Commands have their usual options, no App, and print the sentence of the server."""
    made = at_url("enqueue", "charge", "--args", "[7]", "--tag", "late", "--delay", "1h")
    listed = at_url("jobs", "list", "--task", "charge", "--tag", "late", "--json")
    limited = at_url("queues", "limit", "default", "--concurrency", "3", "--rate", "none")
    signal = at_url("runs", "signal", "checkout/order/1", "parcel", '"sent"')

    number = msgspec.json.decode(listed.out)["id"]
    assert f"job {number} of charge is enqueued\n" == made.out
    assert ("late",) == app.job(int(number)).tags
    assert (0, 3) == (limited.status, app.queue("default").settings.concurrency)
    assert "run checkout/order/1 has received parcel\n" == signal.out
    assert "ci via web" == app.database.audit()[0].actor


def test_the_doctor_answers_through_a_url(app: package.App, at_url: Remote):
    """The findings are those of the database, and the exit status is 1 if one is a problem."""
    app.tasks["charge"].enqueue(1)
    output = at_url("doctor", "--json")
    checks = [msgspec.json.decode(line)["check"] for line in output.out.splitlines()]

    assert 1 == output.status
    assert ["database", "schema", "clock", "workers"] == checks[:4]


def test_many_jobs_are_changed_by_an_operation(app: package.App, at_url: Remote):
    """Commands with ids or a filter start an operation, which can be followed; a dry run counts its jobs."""
    app.tasks["charge"].options(delay="1h", tags=["bulk"]).enqueue_many([1, 2, 3])
    counted = at_url("jobs", "redrive", "--task", "charge", "--dry-run")
    begun = at_url("jobs", "cancel", "--tag", "bulk", "--why", "not wanted")
    unfiltered = at_url("jobs", "cancel")
    operations = [msgspec.json.decode(line) for line in at_url("operations", "list", "--json").out.splitlines()]

    assert "job 1 is cancelled\n" == at_url("jobs", "cancel", "1").out
    assert (1, True) == (counted.status, "no job can be changed" in counted.err)
    assert re.match(r"operation \d+ is ", begun.out)
    assert [("cancel", "tag:bulk", "not wanted")] == [(each["action"], each["q"], each["why"]) for each in operations]
    assert 2 == unfiltered.status


def test_a_limit_counts_the_jobs_that_are_changed(app: package.App, at_url: Remote):
    """An operation that is started through a URL changes at most so many jobs, and is not asked to be confirmed."""
    app.tasks["charge"].options(delay="1h", tags=["many"]).enqueue_many([1, 2, 3])
    at_url("jobs", "cancel", "--tag", "many", "--limit", "2")
    (newest,) = app.operations.select(limit=1)
    done = app.operations.finish(newest.id)

    assert (2, 1) == (done.done, len(app.jobs.select(package.Filter(tag="many", state=State.READY))))


def test_lists_are_tables_and_documents_are_lines(at_url: Remote):
    """Lists are tables, or with --json an object in each line; documents are texts."""
    assert re.search(r"^id +task +queue +state", at_url("jobs", "list").out)
    assert re.search(r"^default +\d+ ", at_url("queues", "list").out, re.MULTILINE)
    first = at_url("jobs", "list", "--limit", "1")
    before = first.out.split("\n")[1].split()[0]
    assert f"... --before {before} shows older jobs, --limit more at once\n" == first.err
    older = at_url("jobs", "list", "--before", before, "--json")
    assert [] == [each for each in older.out.splitlines() if int(msgspec.json.decode(each)["id"]) >= int(before)]
    assert older.out
    assert "job 1  charge on default" in at_url("jobs", "show", "1").out
    assert "order/1" == msgspec.json.decode(at_url("runs", "show", "checkout/order/1", "--json").out)["run"]["id"]


def test_errors_have_the_status_and_the_sentence_of_the_command(at_url: Remote):
    """The exit status and the text are those that the command has with a database."""
    assert (1, "redrive: there is no job 77\n") == (
        at_url("jobs", "show", "77").status,
        at_url("jobs", "show", "77").err,
    )
    assert (2, True) == (
        (wrong := at_url("queues", "limit", "default", "--rate", "fast")).status,
        "fast" in wrong.err,
    )
    assert 2 == at_url("enqueue", "charge", "--args", '["x"]').status


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["worker"], "redrive worker does not work through --url: it needs the App and its database"),
        (["jobs", "archive", "--to", "x"], "these commands do: doctor, enqueue, erase, errors list"),
        (["jobs", "retry", "1", "--actor", "bob"], "--actor of redrive jobs retry does not work through --url"),
        (["runs", "show", "x"], "WORKFLOW/ID"),
        (["enqueue", "charge", "--args", "["], "cannot be read"),
    ],
)
def test_what_needs_the_database_is_refused(at_url: Remote, words: list[str], part: str):
    """Commands and options that the API does not have are errors that name those that work."""
    output = at_url(*words)

    assert 2 == output.status
    assert part in " ".join(output.err.split())


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--url", "ftp://x", "jobs", "list"], "is not the address of a dashboard"),
        (["--url", "https://user:secret@x", "jobs", "list"], "is not the address of a dashboard"),
        (["--url", "http://ops.example.com", "jobs", "list"], "in plain text"),
        (["--url", "https://x", "--token-file", "missing", "jobs", "list"], "cannot be read"),
        (["--url", "https://x", "--token-file", "empty", "jobs", "list"], "has no token"),
        (["--token-file", "empty", "jobs", "list", "x:y"], "--url"),
    ],
)
def test_wrong_options_are_refused_before_a_request(
    redrive: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], part: str
):
    """Tokens are sent to no host without encryption, and to no address that is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text(" \n")
    monkeypatch.setattr(remote._OPENER, "open", lambda *_, **__: pytest.fail("a request was sent"))
    output = redrive(*options)

    assert 2 == output.status
    assert part in " ".join(output.err.split())


def test_tokens_have_their_roles(redrive: Remote, url: str, tmp_path: Path):
    """Unknown tokens are a wrong configuration; one with the role read changes nothing."""
    statuses = []
    for token in ("wrong", "dev"):
        (tmp_path / token).write_text(token)
        output = redrive("--url", url, "--token-file", str(tmp_path / token), "jobs", "retry", "1")
        statuses.append((output.status, output.err))

    assert [(2, True), (1, True)] == [
        (statuses[0][0], "refuses the token" in statuses[0][1]),
        (statuses[1][0], "eve may read, but not change anything" in statuses[1][1]),
    ]


def test_other_servers_are_named(redrive: Remote):
    """Servers that do not answer, redirect, or answer with other content than a dashboard, are reported."""

    async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
        """Redirect one path, and answer a page otherwise."""
        moved = scope["path"].endswith("/workers")
        body = b"{}" if scope["path"].endswith("/topics") else b"<html>"
        headers = [(b"location", b"http://127.0.0.1:1/")] if moved else []
        await send({"type": "http.response.start", "status": 302 if moved else 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    with served(elsewhere) as url:
        moved, page = redrive("--url", url, "workers", "list"), redrive("--url", url, "queues", "list")
        other = redrive("--url", url, "topics", "list")
    gone = redrive("--url", url, "doctor")

    assert [1, 1, 1, 1] == [each.status for each in (moved, page, other, gone)]
    assert "does not answer as a dashboard: status 302" in moved.err
    assert all("does not answer as a dashboard" in each.err for each in (page, other, gone))


def test_of_several_apps_the_address_names_one(redrive: Remote, tmp_path: Path):
    """Without its name the answer has all of them."""
    apps = {name: package.App("memory://") for name in ("shop:eu", "shop:us")}
    for name, app in apps.items():
        app.task(name=name)(lambda: None)
        app.open()
        app.named(name).enqueue()
    (tmp_path / "token").write_text("ops\n")
    with served(create_app(apps, auth=USERS)) as url:
        words = ("--token-file", str(tmp_path / "token"), "jobs", "list", "--json")
        listed = [msgspec.json.decode(redrive("--url", f"{url}/{name}", *words).out)["task"] for name in apps]
        refused = redrive("--url", url, *words)
    for app in apps.values():
        app.close()

    assert ["shop:eu", "shop:us"] == listed
    assert (1, True) == (refused.status, "each below its name: /shop:eu/, /shop:us/" in refused.err)
