"""The pages of runs: the list with its filter, one run with its timeline, and actions on it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator

import pytest

import redrive
from redrive.engine.lifecycle import State
from redrive.operate import run as page
from redrive.operate import runs as pages
from redrive.testing import VirtualClock, drain
from tests.web.client import Operator


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with a workflow that retries a step and then waits for a signal, and its parent."""
    app = redrive.App("memory://", clock=VirtualClock())
    broken = ["no route"]

    def charge(cents: int) -> str:
        """Fail once."""
        if broken:
            raise ConnectionError(broken.pop())
        return f"charge-{cents}"

    @app.workflow()
    async def checkout(flow: redrive.Flow, cents: int) -> str:
        """Charge, and wait for the parcel."""
        done = await flow.step(charge, cents, retry="1 1h")
        return f"{done}, parcel {await flow.wait_for('shipped', int)}"

    @app.workflow()
    async def basket(flow: redrive.Flow) -> str:
        """Call the other workflow."""
        return await flow.call(checkout, 1)

    app.open()
    checkout.start(100, id="a/1")
    drain(app, within="2h")
    basket.start(id="b")
    drain(app)
    yield app
    app.close()


@pytest.fixture
def client(app: redrive.App) -> Operator:
    """Return a client that may operate."""
    return Operator(app)


def test_runs_are_listed_newest_first_with_the_reason_why_they_wait(client: Operator):
    """Lists of runs are filtered by workflow, state and hold."""
    items = client.read("/runs")["items"]
    parked = client.read("/runs?workflow=checkout&state=ready&hold=parked")["items"]

    assert ["basket/b/1", "b", "a/1"] == [each["id"] for each in items]
    assert ["parked"] * 3 == [each["standing"] for each in items]
    assert ["basket/b/1", "a/1"] == [each["id"] for each in parked]
    assert "signal 'shipped'" in parked[0]["why"]
    assert [] == client.read("/runs?state=dead")["items"]


def test_runs_are_paged_and_searched_with_a_budget(client: Operator, monkeypatch: pytest.MonkeyPatch):
    """Each run is on one page, and a rare state reads a limited number of runs for each page."""
    monkeypatch.setattr(pages, "SHOWN", 2)
    first = client.read("/runs")
    second = client.read(f"/runs?before={first['before']}")
    monkeypatch.setattr(pages, "BUDGET", 2)
    rare = client.read("/runs?workflow=none")
    rest = client.read(f"/runs?workflow=none&before={rare['before']}")

    assert [["basket/b/1", "b"], ["a/1"]] == [[each["id"] for each in page["items"]] for page in (first, second)]
    assert second["before"] is None
    assert (2, None) == (rare["searched"], rest["searched"])
    assert "0 found among 2 runs" in client.get("/runs?workflow=none").text
    assert rest["before"] is None


def test_a_run_shows_its_steps_tries_signals_and_attempts_in_one_list(app: redrive.App, client: Operator):
    """The timeline has what the command line shows, with results as values and links to called runs."""
    app.runs.get("checkout", "a/1").signal("shipped", {"box": 7})
    app.runs.get("checkout", "a/1").signal("late")
    data = client.read("/runs/checkout/a/1")
    parent = client.read("/runs/basket/b")
    html = client.get("/runs/basket/b").text

    assert [
        ("try", "1", "charge: try 1 failed: no route (at web/test_runs.py)"),
        ("step", "1", "charge: ok at try 2"),
        ("step", "2", "wait shipped: waiting"),
        ("signal", "", "signal shipped was sent, not read yet"),
        ("signal", "", "signal late was sent, not read yet"),
    ] == [
        (each["kind"], each["path"], re.sub(r":\d+ in .*, next in .*", ")", each["text"]))
        for each in sorted(data["events"], key=lambda each: each["path"] or "9")
        if each["kind"] != "attempt"
    ]
    assert [{"box": 7}, "charge-100"] == [each["result"] for each in data["events"] if each["result"]]
    assert ["shipped", "late"] == data["unread"]
    assert [{"workflow": "checkout", "id": "basket/b/1", "job_id": "3"}] == parent["children"]
    assert '<a href="/runs/checkout/basket/b/1">basket/b/1</a>' in html
    assert '<a href="/runs/basket/b">run b of workflow basket</a>' in client.get("/jobs/2").text
    assert '<a href="/jobs/2">job 2</a> at its step 1' in client.get("/runs/checkout/basket/b/1").text


def test_a_run_shows_each_step_with_its_times(app: redrive.App, client: Operator):
    """Lanes have the run, the tries of each step with the waits between them, and what it waits for now."""
    data, parent = client.read("/runs/checkout/a/1"), client.read("/runs/basket/b")
    html = client.get("/runs/checkout/a/1?step=1&scale=1").text
    run, charge, shipped = data["lanes"]

    assert [("", "parked"), ("1", "succeeded"), ("2", "waiting")] == [
        (each["path"], each["standing"]) for each in data["lanes"]
    ]
    assert ["retried", "backoff", "succeeded"] == [each["kind"] for each in charge["spans"]]
    assert ["run", "waits"] == [each["spans"][-1]["kind"] for each in (run, shipped)]
    assert (["shipped"], None) == (data["awaits"], shipped["ended_at"])
    assert [("call", "3")] == [(each["kind"], each["job_id"]) for each in parent["lanes"][1:]]
    assert "Step 1, charge" in html
    assert "1 charge: try 1: retried, " in html


def test_named_steps_are_shown_in_the_order_of_their_ends(app: redrive.App, client: Operator):
    """Their lanes have their names and times; one that was cut off is cancelled, and a sleep has its own time."""

    @app.workflow()
    async def tasks(flow: redrive.Flow) -> None:
        async def slow() -> None:
            await asyncio.Event().wait()

        async def quick() -> None:
            """Do nothing."""

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await flow.named("slow").step(slow)
        asked = asyncio.ensure_future(flow.named("ask").wait_for("answer"))
        await asyncio.gather(flow.named("pause").sleep("1h"), flow.named("quick").step(quick), asked)

    run = tasks.start(id="t")
    drain(app, within="1m")
    assert any(each["text"].startswith("pause: sleeps until") for each in client.read("/runs/tasks/t")["events"])
    app.clock.advance("1m")
    run.signal("answer", 3)
    drain(app)
    lanes = client.read("/runs/tasks/t")["lanes"][1:]
    spans = {each["name"]: each["spans"][0] for each in lanes}

    assert [
        ("quick", "succeeded", 1), ("answer", "succeeded", 1), ("pause", "succeeded", 1), ("slow", "cancelled", 1),
    ] == [(each["name"], each["standing"], each["depth"]) for each in lanes]  # fmt: skip
    assert ["sleeps", "waits"] == [spans[each]["kind"] for each in ("pause", "answer")]
    assert all(spans[each]["began_at"] < spans[each]["ended_at"] for each in ("pause", "answer"))
    assert "slow: dropped" in [each["text"] for each in client.read("/runs/tasks/t")["events"]]


def test_the_form_of_a_signal_has_the_name_that_the_run_waits_for(app: redrive.App, client: Operator):
    """The name is filled in; another signal needs a tick, and asks first."""
    html = client.get("/runs/checkout/a/1").text
    app.runs.get("checkout", "a/1").cancel()
    drain(app)
    ended = client.get("/runs/checkout/a/1").text

    assert '<input type="hidden" name="name" value="shipped">' in html
    assert '<input type="checkbox" required>' in html
    assert 'data-confirm="The run waits for shipped, and not for this signal. Send it all the same?"' in html
    assert "It waits for the signal “shipped”" in html
    assert ("It was cancelled" in ended, 'value="signal"' in ended) == (True, False)


def test_events_of_a_run_are_a_table_too(client: Operator):
    """The table has what the picture shows."""
    html = client.get("/runs/checkout/a/1?view=table").text

    assert "charge: ok at try 2" in html
    assert 'class="lanes"' not in html


def test_long_runs_show_their_latest_steps(client: Operator, monkeypatch: pytest.MonkeyPatch):
    """The page of a run reads a limited number of steps."""
    monkeypatch.setattr(page, "LATEST", 1)
    data = client.read("/runs/checkout/a/1")

    assert data["left_out"]
    assert "Only the latest steps are shown" in client.get("/runs/checkout/a/1").text


def test_a_run_receives_a_signal(app: redrive.App, client: Operator):
    """The value is JSON, and a signal with the same key is dropped."""
    path = "/runs/checkout/a/1"
    first = client.act(path, action="signal", name="shipped", value=7, key="k", state="ready")
    again = client.act(path, action="signal", name="shipped", value=8, key="k")
    wrong = client.post(path, data={"action": "signal", "name": "shipped", "value": "seven"})
    unnamed = client.act(path, action="signal", name="")
    drain(app)

    assert (200, "run a/1 has received shipped") == first
    assert (200, "run a/1 had a signal shipped with this key before") == again
    assert [("local via web", "signal_run")] == [(each.actor, each.action) for each in app.database.audit()]
    assert (400, True) == (wrong.status_code, "the value &#39;seven&#39; is no JSON" in wrong.text)
    assert 400 == unnamed[0]
    assert "charge-100, parcel 7" == app.runs.get("checkout", "a/1").result()


def test_a_run_is_paused_and_resumed(app: redrive.App, client: Operator):
    """Paused runs show since when and why, and offer to resume them."""
    path = "/runs/checkout/a/1"
    paused = client.act(path, action="pause", why="bank is down")
    data = client.read(path)
    resumed = client.act(path, action="resume")

    assert ((200, "run a/1 is paused"), (200, "run a/1 goes on")) == (paused, resumed)
    assert ("paused", "bank is down") == (data["run"]["standing"], data["paused_why"])
    assert ["signal", "resume", "cancel", "fork"] == data["actions"]
    assert (409, "run a/1 is ready: 'resume' is not possible, but signal, pause, cancel, fork") == client.act(
        path, action="resume"
    )
    assert ["resume_run", "pause_run"] == [each.action for each in app.database.audit()[:2]]
    assert app.database.audit()[0].actor.endswith("via web")


def test_a_run_is_cancelled(app: redrive.App, client: Operator):
    """Runs end where they wait; pages with an old state change nothing."""
    path = "/runs/checkout/a/1"
    assert (200, "run a/1 ends at its next step") == client.act(path, action="cancel", why="not wanted")
    assert "End at once" in client.get(path).text
    drain(app)

    assert State.CANCELLED is app.runs.get("checkout", "a/1").state
    assert (409, "run a/1 is cancelled now, not ready: look at it again") == client.act(
        path, action="cancel", state="ready"
    )
    assert ["retry", "fork"] == client.read(path)["actions"]
    assert (200, "run a/1 starts again") == client.act(path, action="retry", state="cancelled")
    assert "retry" == app.database.audit()[0].action
    assert State.READY is app.runs.get("checkout", "a/1").state


def test_a_run_is_forked_from_a_step(app: redrive.App, client: Operator):
    """Forks lead to the new run, which has the steps before the chosen one."""
    response = client.post("/runs/checkout/a/1", data={"action": "fork", "from_step": "2", "state": "ready"})
    place = response.headers["location"]

    assert 303 == response.status_code
    assert ["1"] == [each["path"] for each in client.read(place)["events"] if each["kind"] == "step"]
    assert (400, "run 'a/1' of checkout has no step '9'") == (
        (refused := client.act("/runs/checkout/a/1", action="fork", from_step="9"))[0],
        refused[1].partition(";")[0],
    )
    assert 4 == len(app.runs.select())


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs/checkout/none", 404),
        ("/runs/none/a/1", 404),
        ("/runs?state=odd", 400),
        ("/runs?hold=odd", 400),
        ("/runs?before=odd", 400),
        (f"/runs?workflow={'x' * 2001}", 400),
    ],
)
def test_wrong_addresses_are_refused_with_a_sentence(client: Operator, path: str, status: int):
    """Each wrong input has a status and a sentence."""
    response = client.get(f"/api/v1{path}")

    assert status == response.status_code
    assert len(response.json()["detail"]) > 10


def test_the_job_of_a_paused_run_has_no_due_time(app: redrive.App, client: Operator):
    """The pages name the pause and the command that ends it, and no date."""
    run = app.runs.get("checkout", "a/1")
    run.pause("stocktaking")
    data, html = client.read(f"/jobs/{run.job.id}"), client.get(f"/jobs/{run.job.id}").text

    assert (None, "paused") == (data["job"]["due_at"], data["job"]["standing"])
    assert "run paused (paused: stocktaking)" in data["job"]["why"]
    assert "redrive runs resume shop:app checkout/a/1" == data["remedy"]
    assert None is client.read("/runs/checkout/a%2F1")["due_at"]
    assert "9000" not in html
    assert data["remedy"] in html
