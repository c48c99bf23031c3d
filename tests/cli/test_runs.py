"""`redrive runs`: runs for readers and for programs, and actions on them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from redrive import App, Flow
from redrive.testing import VirtualClock, drain, replay
from tests.cli.conftest import Output

Redrive = Callable[..., Output]

MODULE = '''
from redrive import App, Flow
from redrive.testing import VirtualClock

app = App("memory://", clock=VirtualClock())
broken = []


def charge(cents: int) -> str:
    """Charge a card."""
    if broken:
        raise ConnectionError(broken.pop())
    return f"charge-{cents}"


@app.workflow()
async def checkout(flow: Flow, cents: int) -> str:
    """Charge, and wait for the parcel."""
    done = await flow.step(charge, cents, retry="1 1h")
    flow.set("state", "charged")
    parcel = await flow.wait_for("shipped", int, timeout="7d")
    return f"{done}, parcel {parcel}"


@app.workflow()
async def other(flow: Flow) -> None:
    """Do nothing."""
'''


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Create a module with workflows, in memory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "store.py").write_text(MODULE)
    import store

    _ = store.app.store
    yield store
    store.app.close()
    del sys.modules["store"]


def test_runs_are_listed_with_the_reason_why_they_wait(store: ModuleType, redrive: Redrive):
    """Lists show the id, the workflow, the version, the state and the reason; filters narrow them."""
    store.checkout.start(100, id="order-1")
    drain(store.app, within="1m")
    store.other.start(id="o")
    out = redrive("runs", "list", "store:app").out

    assert ["run", "workflow", "version", "state", "job", "why"] == out.splitlines()[0].split()
    assert "order-1  checkout  1        ready  1    parked: due in 7d" in out
    assert "waits for the signal 'shipped', 7d at most" in out
    assert "checkout" not in redrive("runs", "list", "store:app", "--workflow", "other").out
    assert "other" not in redrive("runs", "list", "store:app", "--hold", "parked").out
    assert ["order-1"] == [
        json.loads(line)["id"] for line in redrive("runs", "list", "store:app", "--json").out.splitlines()[1:]
    ]
    assert 1 == len(redrive("runs", "list", "store:app", "--held").out.splitlines())
    assert "... the newest 1; --limit shows more" in redrive("runs", "list", "store:app", "--limit", "1").err


def test_a_run_is_shown_with_its_timeline(store: ModuleType, redrive: Redrive):
    """Steps, failed tries, waits, signals and attempts are one list by time; JSON has all of it."""
    store.broken.append("no route")
    run = store.checkout.start(100, id="order-1")
    drain(store.app, within="1m")
    waiting = redrive("runs", "show", "store:app", "order-1").out
    assert re.search(
        r"1 +charge: try 1 failed: no route \(at .*store.py:12 in charge\); waits until 2026-01-01 0", waiting
    )
    drain(store.app, within="2h")
    run.signal("shipped", 7)
    run.signal("late", 8)
    drain(store.app)
    shown = redrive("runs", "show", "store:app", "order-1").out
    lines = re.sub(r" \(at .*store.py:12 in charge\)", "", shown).splitlines()
    document = json.loads(redrive("runs", "show", "store:app", "checkout/order-1", "--json").out)

    assert "run order-1  checkout, version 1, job 1" == lines[0]
    assert "succeeded" == lines[1][:9]
    assert 'values: {"state":"charged"}' in lines
    assert "unread signals: late" in lines
    assert 'result: "charge-100, parcel 7"' in lines
    assert [
        "1        charge: try 1 failed: no route, next in",
        "signal shipped was sent, read by step 2, 7",
        "signal late was sent, not read yet, 8",
        '1        charge: ok at try 2, "charge-100"',
        "2        wait shipped: ok, 7",
        "attempt 1: succeeded",
    ] == [line[27:].split(" 5", 1)[0].split(" 1h")[0] if "next" in line else line[27:] for line in lines[-6:]]
    assert ["charge", "late"] == [name for _, name in document["steps"]] + document["unread"]
    assert ("succeeded", "charge-100, parcel 7") == (document["run"]["state"], document["result"])


def test_steps_that_wait_for_a_retry_are_listed(store: ModuleType, redrive: Redrive):
    """Lists of retries show the run, the step, the tries and the time, and can be narrowed."""
    store.broken.append("no route")
    store.checkout.start(100, id="order-1")
    drain(store.app, within="1m")
    out = redrive("runs", "retrying", "store:app").out

    assert "order-1  checkout  1 charge  1      2026-01-01 0" in out
    assert "no route" in out
    line = redrive("runs", "retrying", "store:app", "--workflow", "checkout", "--json").out
    assert ("order-1", 1) == (json.loads(line)["id"], json.loads(line)["tries"])
    assert "order-1" not in redrive("runs", "retrying", "store:app", "--before", "2026-01-01T00:00Z").out


def test_signals_pauses_and_cancellations_are_sent(store: ModuleType, redrive: Redrive):
    """Commands act on a run, and report what became of it."""
    store.checkout.start(100, id="order-1")
    drain(store.app, within="1m")

    assert "run order-1 is paused\n" == redrive("runs", "pause", "store:app", "order-1", "--why", "closed").out
    shown = redrive("runs", "show", "store:app", "order-1").out
    assert "paused: closed" in shown
    assert "to clear it: redrive runs resume store:app checkout/order-1\n" in shown
    assert "run order-1 goes on\n" == redrive("runs", "resume", "store:app", "order-1").out
    assert "run order-1 was not paused\n" == redrive("runs", "resume", "store:app", "order-1").out
    assert (
        "is paused until 2026-01-02T00:00:00+00:00"
        in redrive("runs", "pause", "store:app", "order-1", "--until", "2026-01-02T00:00Z").out
    )
    sent = ("runs", "signal", "store:app", "order-1", "shipped", "3", "--key", "k")
    assert "run order-1 has received shipped\n" == redrive(*sent).out
    assert "run order-1 had a signal shipped with this key before\n" == redrive(*sent).out
    assert "run order-1 ends at its next step\n" == redrive("runs", "cancel", "store:app", "order-1").out
    drain(store.app)
    assert "run order-1 had ended before: cancelled\n" == redrive("runs", "cancel", "store:app", "order-1").out
    store.other.start(id="o")
    assert "run o is cancelled\n" == redrive("runs", "cancel", "store:app", "o", "--why", "not wanted").out


def test_dead_runs_are_supplied_with_a_value_or_forked(store: ModuleType, redrive: Redrive):
    """Operators give a failed step a result, or start new runs from a step, alone or by a filter."""
    store.broken += ["no route"] * 4
    for number in (1, 2):
        store.checkout.start(number, id=f"order-{number}")
    drain(store.app)
    supplied = redrive("runs", "supply", "store:app", "order-1", "charge", '"by hand"')
    dry = redrive("runs", "fork", "store:app", "--workflow", "checkout", "--state", "dead", "--dry-run")
    forked = redrive("runs", "fork", "store:app", "order-2", "--from-step", "charge")

    assert "run order-1 goes on with this result of charge\n" == supplied.out
    assert "run order-2 of checkout\n" == dry.out
    assert "run order-2 is forked as run-3, job 3\n" == forked.out
    (line,) = [json.loads(each.details) for each in store.app.database.audit() if each.action == "fork_run"]
    assert ([3], [2]) == (line["ids"], line["forked_from"])
    assert 2 == redrive("runs", "fork", "store:app").status
    assert "name the runs, or give --workflow, --state or --hold" in redrive("runs", "fork", "store:app").err
    assert (
        "has no step 'pay'; it has 1 charge"
        in redrive("runs", "fork", "store:app", "order-2", "--from-step", "pay").err
    )


def test_an_exported_history_can_be_replayed(store: ModuleType, redrive: Redrive):
    """The output of `export` is what `redrive.testing.replay` takes."""
    store.checkout.start(100, id="order-1")
    drain(store.app)
    exported = redrive("runs", "export", "store:app", "order-1").out

    replay(store.app, exported)
    assert "checkout" == json.loads(exported)["task"]


def test_runs_are_found_by_their_id_alone(store: ModuleType, redrive: Redrive):
    """Ids that two workflows have need the name of the workflow; unknown ones are errors with what exists."""
    store.other.start(id="a")
    store.checkout.start(1, id="a")
    doubled, missing = redrive("runs", "show", "store:app", "a"), redrive("runs", "show", "store:app", "b")

    assert "several workflows have a run 'a': write one of checkout/a, other/a" in doubled.err
    assert (1, "redrive: no workflow of the code has a run 'b'; workflows: checkout, other\n") == (
        missing.status,
        missing.err,
    )
    assert 0 == redrive("runs", "show", "store:app", "other/a").status
    unknown = redrive("runs", "list", "store:app", "--workflow", "chekout").err
    assert "there is no workflow 'chekout' in the code, and no run of it; known: checkout, other" in unknown
    assert "is no JSON" in redrive("runs", "signal", "store:app", "other/a", "x", "{").err


def test_restarts_children_and_forks_are_shown(redrive: Redrive, store: ModuleType):
    """Pages of runs name the parent, the children, the source of a fork and the restarts."""
    app: App = store.app
    assert isinstance(app.clock, VirtualClock)

    @app.workflow()
    async def parent(flow: Flow, again: bool) -> None:
        if again:
            flow.restart(again=False)
        await flow.call(store.other)

    run = parent.start(again=True, id="p")
    drain(app)
    run.fork(id="f")

    shown = redrive("runs", "show", "store:app", "p").out
    assert "restarted 1 times" in shown
    assert "children: parent/p/1.1 (job 2)" in shown
    assert "called by job 1 at its step 1" in redrive("runs", "show", "store:app", "other/parent/p/1.1").out
    assert "forked from job 1" in redrive("runs", "show", "store:app", "f").out


def test_cancellations_and_undos_are_shown_as_such(redrive: Redrive, store: ModuleType):
    """The timeline names where a cancellation was delivered, and when the undos began."""

    def refund(_: str) -> None:
        """Refund."""

    @store.app.workflow()
    async def undone(flow: Flow) -> None:
        await flow.step(store.charge, 1, undo=refund)
        with flow.shield():
            await flow.sleep("1h")
        await flow.sleep("1h")

    run = undone.start(id="u")
    drain(store.app, within="1m")
    run.cancel("not wanted")
    drain(store.app)
    lines = [line[25:].strip() for line in redrive("runs", "show", "store:app", "u").out.splitlines()]

    assert "the cancellation waits for a shield or for undos" in lines
    assert "3        cancelled here" in lines
    assert "undos begin: not wanted" in lines
    assert "u1       undo refund: ok" in lines


def test_the_job_of_a_paused_run_has_no_due_time(redrive: Redrive, store: ModuleType):
    """Its page has the pause and the command that ends it; a run that waits for ever has no time either."""
    run = store.checkout.start(100, id="order-1")
    run.pause("stocktaking")
    shown = redrive("jobs", "show", "store:app", str(run.job.id)).out
    resume = re.search(r"to clear it: redrive (runs resume store:app checkout/order-1)", shown)

    assert "ready: run paused (paused: stocktaking); run order-1 of workflow checkout\n" in shown
    assert "9000" not in shown
    assert " due " not in shown
    assert resume is not None
    redrive(*resume.group(1).split())
    assert ", due 2026-01-01" in redrive("jobs", "show", "store:app", str(run.job.id)).out
