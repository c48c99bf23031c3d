"""Hostile texts in commands: without effect on the terminal, on a log, and on a reader of JSON."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from redrive.policy import Policy
from redrive.stores.operations import admin
from tests.cli.commands import lines, walk
from tests.cli.conftest import Output

EVIL = (
    "canary\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\x08\x7f\u202eb\u2066\u200f\u2028\r\n"
    "FORGED\x85FORGED [link=evil:it]x [bold]:bomb:\\"
)
"""Sets the clipboard, clears the screen, turns the direction of writing, forges lines, is markup."""

UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Text that no output may contain."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Escape codes that redrive itself writes to a terminal."""

MODULE = f'''
import os, signal
from dataclasses import dataclass

from redrive import App, CatchRequest, Context, Flow, GiveUp

EVIL = {EVIL!r}

app = App("sqlite:///hostile.db?synchronous=normal", heartbeat_every="50ms", lease_for="200ms")


@app.task(name="recover")
def recover(request: CatchRequest) -> None:
    """Fail as well."""
    raise GiveUp(EVIL)


@app.task(name=EVIL, queue=EVIL, retry="3 1h")
def charge(ctx: Context, text: str) -> None:
    """Fail with a hostile text."""
    ctx.heartbeat({{EVIL: EVIL}}, force=True)
    try:
        raise KeyError(EVIL)
    except KeyError as error:
        raise ConnectionError(EVIL) from error


@app.task(name="dies" + EVIL, queue=EVIL)
def dies(text: str) -> None:
    """Give up with a hostile text."""
    raise GiveUp(text)


@app.task
async def stop() -> None:
    """Stop the worker."""
    os.kill(os.getpid(), signal.SIGTERM)


@app.workflow(name="flow" + EVIL, queue=EVIL)
async def flow(flow: Flow) -> None:
    """Wait for a hostile signal after a hostile failure."""
    flow.set(EVIL, EVIL)
    try:
        await flow.step(broken)
    except GiveUp:
        await flow.wait_for(EVIL)


def broken() -> None:
    """Give up with a hostile text."""
    raise GiveUp(EVIL)


@dataclass
class Event:
    text: str


machine = app.machine("machine", data=str, queue=EVIL)


@machine.start(name="begun", timeout=("1d", Event(EVIL)), within="1ms")
def begin(event: Event, ctx: Context) -> None:
    """Store hostile data."""
    ctx.set_data(EVIL)


@machine.state(after="begun", name="next")
def go_on(event: Event) -> None:
    """Give up with a hostile text."""
    raise GiveUp(EVIL)


@app.cron("0 9 * * *", name="cron" + EVIL)
def nightly() -> None:
    """Run by the clock."""


@app.refresh("Refresh every 2 hours; allow 10 minutes", name="refresh" + EVIL)
def prices(shop: str) -> None:
    """Fail with a hostile text."""
    raise GiveUp(EVIL)
'''

WORDS = {
    "when": "0 9 * * *",
    "app": "hostile:app",
    "name": "refresh" + EVIL,
    "queue": EVIL,
    "number": "1",
    "numbers": "1",
    "words": "1",
    "key": EVIL,
    "task": EVIL,
    "group": EVIL,
    "machine": "machine",
    "state": EVIL,
    "moves": f"{EVIL}={EVIL}",
    "topic": EVIL,
    "subscription": EVIL,
    "to": "end",
    "event": "1",
    "run": EVIL,
    "value": json.dumps(EVIL),
    "step": EVIL,
    "names": EVIL,
}


@pytest.fixture
def hostile(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    redrive: Callable[..., Output],
    caplog: pytest.LogCaptureFixture,
) -> Iterator[ModuleType]:
    """Create a module with an App and a database full of hostile names and texts, after some work of a worker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    caplog.set_level(logging.DEBUG)
    (tmp_path / "hostile.py").write_text(MODULE)
    import hostile

    app = hostile.app
    monkeypatch.setattr(type(app), "default_actor", EVIL)
    hostile.charge.options(priority=0).enqueue(EVIL)
    hostile.dies.options(priority=0).enqueue(EVIL)
    hostile.prices.track(EVIL, EVIL)
    hostile.flow.start(id=EVIL)
    hostile.machine.send(EVIL, hostile.Event(EVIL), key=EVIL)
    hostile.machine.send(EVIL, hostile.Event(EVIL), busy="queue")
    app.queue(EVIL).limit(concurrency=7)
    hostile.stop.options(priority=200).enqueue()
    yield hostile
    app.close()
    del sys.modules["hostile"]


def everything(output: Output, caplog: pytest.LogCaptureFixture) -> str:
    """Return all output of a command, with its log as a handler of the standard library writes it."""
    formatter = logging.Formatter("%(name)s %(message)s")
    return "\n".join([output.out, output.err, *(formatter.format(each) for each in caplog.records)])


def faults(text: str) -> list[str]:
    """Return the harmful effects of a text."""
    plain = COLOUR.sub("", text)
    return [
        *(
            f"{found[0]!r} in {plain[max(0, found.start() - 40) : found.end() + 20]!r}"
            for found in UNSAFE.finditer(plain)
        ),
        *(f"a forged line: {line!r}" for line in plain.split("\n") if line.startswith("FORGED")),
    ]


@pytest.mark.parametrize("colour", [False, True], ids=["pipe", "terminal"])
def test_no_command_prints_unescaped_text(
    *, colour: bool, hostile: ModuleType, redrive: Callable[..., Output], caplog, monkeypatch: pytest.MonkeyPatch
):
    """Run every command in every form over hostile names and texts: none has an effect or a line of its own."""
    if colour:
        monkeypatch.setenv("FORCE_COLOR", "1")
    first = redrive("worker", "hostile:app")
    assert ([], 0) == (faults(everything(first, caplog)), first.status)

    shown = []
    for line in lines(WORDS):
        caplog.clear()
        if line[0] == "worker":
            hostile.stop.enqueue()
        output = redrive(*line)
        assert [] == faults(everything(output, caplog)), line
        assert "Traceback" not in output.err, (line, output.err)
        if "canary" in output.out + output.err:
            assert re.search(r"canary\\(u00|x)1b\]52;c;", output.out + output.err), line
            shown.append(line)

    assert len(shown) > 30


@pytest.mark.acceptance
def test_each_line_of_the_log_of_a_worker_is_an_entry_or_indented(hostile: ModuleType):
    """Of a real process: a line at the margin begins with the time of its record, whichever library has logged it."""
    source = Path("hostile.py").read_text()
    Path("hostile.py").write_text(f'{source}\nimport logging\nlogging.getLogger("other").error("%s", EVIL)\n')
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-m", "redrive", "worker", "hostile:app"]
    done = subprocess.run(command, capture_output=True, check=False, env=environment, timeout=60)
    lines = done.stderr.decode().split("\n")

    assert (0, b"") == (done.returncode, done.stdout)
    assert [] == faults(done.stderr.decode())
    assert [] == [line for line in lines if line and not re.match(r"    |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,", line)]


def test_json_is_exact(hostile: ModuleType, redrive: Callable[..., Output]):
    """Programs that read the JSON get the names and texts unchanged."""
    redrive("worker", "hostile:app")
    hostile.app.job(2).retry(actor=EVIL)
    listed = [json.loads(line) for line in redrive("jobs", "list", "hostile:app", "--json").out.splitlines()]
    shown = json.loads(redrive("jobs", "show", "hostile:app", "1", "--json").out)
    done = json.loads(redrive("jobs", "audit", "hostile:app", "--limit", "1", "--json").out)
    key = json.loads(redrive("schedules", "show", "hostile:app", "refresh" + EVIL, EVIL, "--json").out)

    assert {EVIL, "dies" + EVIL} <= {job["task"] for job in listed}
    assert ({EVIL: EVIL}, EVIL) == (shown["progress"], shown["attempts"][0]["error"])
    assert (EVIL, EVIL) == (done["actor"], key["key"])


def test_invalid_json_in_the_database_is_shown_as_text(hostile: ModuleType, redrive: Callable[..., Output]):
    """Another program may write anything into a payload: JSON on several lines, bytes that are no text, or no JSON."""
    redrive("worker", "hostile:app")

    def shown(payload: bytes) -> object:
        with contextlib.closing(sqlite3.connect("hostile.db")) as database, database:
            database.execute("UPDATE redrive_payloads SET payload = ? WHERE job_id = 1", (payload,))
        assert 0 == redrive("jobs", "show", "hostile:app", "1").status
        (line,) = redrive("jobs", "show", "hostile:app", "1", "--json").out.splitlines()
        return json.loads(line)["payload"]

    assert [{"text": "a\x9b"}] == shown(b'[\n  {"text":\n "a\xc2\x9b"}\n]')
    assert "a\ufffd" == shown(b'"a\xff"')
    assert "{nothing" == shown(b"{nothing")


def others(folder: Path) -> dict[tuple[str, ...], list[list[str]]]:
    """Command lines of the commands that take no app, with hostile arguments and files."""
    named = {"budget": EVIL, "breaker": EVIL}
    policy = json.dumps(Policy(attempts=3).to_dict() | named)
    (folder / f"{EVIL}.json").write_text(policy)
    (folder / "events.jsonl").write_text(f"{EVIL}\n{json.dumps({EVIL: EVIL})}\n")
    english = f"Refresh every 2 hours; allow 10 minutes {EVIL}"
    return {
        ("plan",): [
            [policy],
            [policy, "--json"],
            [policy, "--mermaid"],
            [policy, "--svg", "a.svg"],
            [f"{EVIL}.json"],
            [f"./{EVIL}"],
            [EVIL],
            [f"5 {EVIL}"],
            [f"5 1s catch {EVIL}"],
            [english],
            ["Refresh every 2 hours; allow 10 minutes", "--answers", EVIL],
            ["Refresh every 2 hours; allow 10 minutes", f"--{EVIL}"],
        ],
        ("simulate",): [[EVIL], ["tail", "--policy", policy, "--clients", "5"], ["tail", "--policy", EVIL], [EVIL]],
        ("db", "sql"): [["sqlite"], ["postgres"], [EVIL], ["sqlite", EVIL]],
        ("demo",): [[EVIL], ["--db", f"{EVIL}/x", "--events", "0"]],
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, and make it the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_arguments_and_files_are_escaped(folder: Path, redrive: Callable[..., Output]):
    """Commands without an app escape their arguments in tables, drawings and errors."""
    tried = others(folder)
    assert {path for path, command in walk() if "app" not in {each.name for each in command.params}} == set(tried)

    for path, forms in tried.items():
        for words in forms:
            output = redrive(*path, *words)
            assert [] == faults(output.out + output.err), (path, words)
            assert "Traceback" not in output.err, (path, words, output.err)
    drawing = (folder / "a.svg").read_text()
    assert ([], True) == (faults(drawing), "canary\\u001b" in drawing)


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "list", EVIL],
        ["jobs", "list", f"{EVIL}:app"],
        ["jobs", "list", f"os:{EVIL}"],
        ["jobs", "list", "raising:app"],
        ["jobs", "list", "raising:app", "--state", EVIL],
        ["jobs", "list", "raising:app", "--limit", EVIL],
        ["jobs", "list", "raising:app", EVIL],
        ["jobs", EVIL],
        [EVIL],
        [f"--{EVIL}"],
        ["jobs", "list", "raising:app", f"--{EVIL}"],
        ["worker", "raising:app", "--shutdown-timeout", EVIL],
    ],
    ids=repr,
)
def test_arguments_are_escaped_in_errors(folder: Path, redrive: Callable[..., Output], words: list[str]):
    """Whatever is wrong, the error repeats it escaped."""
    (folder / "raising.py").write_text(f"raise KeyError({EVIL!r}) from ValueError({EVIL!r})")
    output = redrive(*words)

    assert (2, "") == (output.status, output.out)
    assert [] == faults(output.err)


def test_an_unexpected_error_is_an_escaped_traceback(hostile: ModuleType, redrive: Callable[..., Output], monkeypatch):
    """Show an unexpected error in full with its causes, all of it escaped."""

    def defect(*_: object, **__: object) -> None:
        raise KeyError(EVIL) from OSError(EVIL)

    monkeypatch.setattr(admin, "page", defect)
    output = redrive("jobs", "list", "hostile:app")

    assert (1, "") == (output.status, output.out)
    assert "redrive: an unexpected error:" == output.err.splitlines()[0]
    assert ("OSError: canary\\u001b" in output.err, "KeyError: 'canary\\x1b" in output.err) == (True, True)
    assert [] == faults(output.err)
