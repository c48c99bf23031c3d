"""Replays of histories without a database."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - what a body must not use
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Flow, GiveUp
from redrive.app.flows.history import RunHistory
from redrive.errors import ConfigurationError, NonDeterminism, TimedOut
from redrive.testing import VirtualClock, areplay, drain, replay

CALLS: list[str] = []


def charge(cents: int) -> str:
    """Charge a card."""
    CALLS.append("charge")
    return f"charge-{cents}"


def mail(text: str) -> None:
    """Send a mail."""
    CALLS.append("mail")


@pytest.fixture
def app() -> Iterator[App]:
    """Yield an app in memory with a virtual clock."""
    app = App("memory://", clock=VirtualClock())
    CALLS.clear()
    yield app
    app.close()


def code(body: Any, **options: Any) -> App:
    """Return an app that is never opened, with this function as the workflow ``body``."""
    app = App("sqlite:////nowhere/at/all.db")
    app.workflow(name="body", **options)(body)
    return app


async def original(flow: Flow, cents: int) -> str:
    """Charge, wait, and write."""
    charged = await flow.step(charge, cents)
    await flow.sleep("1d")
    try:
        await flow.wait_for("shipped", timeout="1d")
    except TimedOut:
        await flow.gather(flow.step(mail, "a"), flow.step(mail, "b"))
    return charged


@pytest.fixture
def history(app: App) -> RunHistory:
    """Return the history of a run of `original`."""
    run = app.workflow(name="body")(original).start(7, id="r")
    drain(app)
    CALLS.clear()
    return run.history()


def test_fitting_code_is_replayed_without_a_call(history: RunHistory, tmp_path: Path):
    """Histories are taken as values, as JSON and as files; no step is called and no database is opened."""
    file = tmp_path / "r.json"
    file.write_text(history.to_json())
    replay(code(original), history, history.to_json(), history.to_json().encode(), file)
    asyncio.run(areplay(code(original), history))

    assert [] == CALLS
    assert history == RunHistory.from_json(history.to_json())


async def swapped(flow: Flow, cents: int) -> str:
    """Wait before the charge."""
    await flow.sleep("1d")
    return await flow.step(charge, cents)


async def early(flow: Flow, cents: int) -> str:
    """Leave the rest out."""
    return await flow.step(charge, cents)


async def longer(flow: Flow, cents: int) -> str:
    """Do one step more."""
    charged = await original(flow, cents)
    await flow.step(mail, "c")
    return charged


async def other_result(flow: Flow, cents: int) -> str:
    """Return another value."""
    return await original(flow, cents) + "!"


async def raising(flow: Flow, cents: int) -> str:
    """Fail at the end."""
    await original(flow, cents)
    raise ValueError("new check")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (swapped, r"step 1 was `charge`; the code now asks for a sleep \(testing/test_replay.py:\d+\)"),
        (early, "step 2 was a sleep and 3 more, and the code has ended without it"),
        (longer, r"the run has ended, and the code now asks for another step: `mail` \(testing/test_replay.py:\d+\)"),
        (other_result, 'the run returned "charge-7", and the code now returns "charge-7!"'),
        (raising, "the run succeeded, and the code now fails: ValueError"),
    ],
)
def test_changed_code_is_refused_with_the_first_difference(history: RunHistory, body: Any, text: str):
    """Differences name the run, the steps and the line."""
    with pytest.raises(NonDeterminism, match=rf"body r \(version 1\): {text}"):
        replay(code(body), history)


def test_a_run_that_waits_is_replayed_to_its_end(app: App):
    """Histories of open runs fit code that goes on differently behind the last recorded step."""
    run = app.workflow(name="body")(original).start(7, id="r")
    drain(app, within="1h")

    async def goes_on(flow: Flow, cents: int) -> str:
        await flow.step(charge, cents)
        await flow.sleep("1d")
        await flow.step(mail, "new")
        return ""

    replay(code(goes_on), run.history())
    with pytest.raises(NonDeterminism, match="step 2 was a sleep"):
        replay(code(early), run.history())


def test_a_run_that_was_undone_is_replayed(app: App):
    """Histories of dead runs with undos fit their code."""

    def fails() -> None:
        raise GiveUp("no")

    def undo(_: str) -> None:
        CALLS.append("undo")

    async def body(flow: Flow) -> None:
        await flow.step(charge, 1, undo=undo)
        await flow.step(fails)

    run = app.workflow(name="body")(body).start()
    drain(app)
    assert ["charge", "undo"] == CALLS
    replay(code(body), run.history())

    assert ["charge", "undo"] == CALLS


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: random.random(), r"random\.random\(\).*use flow\.random\.random\(\)"),  # noqa: PLW0108
        (lambda: uuid.uuid4(), r"uuid\.uuid4\(\).*use flow\.uuid\(\)"),  # noqa: PLW0108, TID251 - patched there
    ],
)
def test_what_changes_in_each_pass_is_refused(app: App, call: Any, text: str):
    """Random numbers and UUIDs of Python in a body are refused with the line."""

    async def body(flow: Flow) -> str:
        call()
        return await flow.step(charge, 1)

    run = app.workflow(name="body")(body).start()
    drain(app)

    with pytest.raises(NonDeterminism, match=rf"the body calls {text}"):
        replay(code(body), run.history())


def test_what_cannot_be_replayed_is_refused(history: RunHistory):
    """Other values, other JSON, and code without the workflow or the version are errors."""
    for wrong, text in ((3, "takes histories of runs"), ("{}", "is no history of a run")):
        with pytest.raises(ConfigurationError, match=text):
            replay(code(original), wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the app has no version 1 of the workflow 'body'"):
        replay(App("memory://"), history)
    with pytest.raises(ConfigurationError, match="the app has no version 1 of the workflow 'body'"):
        replay(code(original, version=2), history)
