"""`redrive machines`: machines and instances for readers and for programs, actions on them, and diagrams."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from redrive import CatchRequest
from redrive.testing import drain
from tests.cli.conftest import Output

BANK = '''
from dataclasses import dataclass
from datetime import UTC, datetime

from redrive import App, Context, FailedTransition
from redrive.testing import VirtualClock

app = App("memory://", clock=VirtualClock(datetime(2026, 3, 28, 12, tzinfo=UTC)))
payment = app.machine("payment", data=dict)


@dataclass
class Created:
    amount: int = 0


@dataclass
class Paid:
    amount: int = 0


@dataclass
class Expired:
    pass


@payment.start
def created(event: Created, ctx: Context) -> None:
    """Take the amount."""
    ctx.set_data({"amount": event.amount})


@payment.state(after=[created, "paid"], timeout=("3 days", Expired()), within="1h")
def paid(event: Paid) -> None:
    """Fail for some."""
    if event.amount < 0:
        raise ValueError("negative [b]amount")


@payment.state(after=[paid])
def expired(event: Expired) -> None:
    """End it."""


@payment.state(after=[paid], failed_to="review")
def booked(event: Created) -> None:
    """Book it."""


@payment.state()
def review(event: FailedTransition) -> None:
    """Look at it."""
'''


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return a module with a machine: one instance is created, one is paid, and the transition of one has failed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "bank.py").write_text(BANK)
    import bank

    for key, amounts in {"a": [], "b": [5], "c": [-1]}.items():
        bank.payment.send(key, bank.Created(7))
        drain(bank.app, within=0)
        for amount in amounts:
            bank.payment.send(key, bank.Paid(amount), key=f"webhook-{amount}")
            drain(bank.app, within=0)
    bank.app.clock.advance("2h")
    yield bank
    bank.app.close()
    del sys.modules["bank"]


Redrive = Callable[..., Output]


def rows(text: str) -> list[list[str]]:
    """Return the words of each line of a table."""
    return [line.split() for line in text.splitlines()]


def test_machines_are_listed_with_their_states(bank: ModuleType, redrive: Redrive):
    """Print a row for each state of each machine, in the order of the code, with the numbers of instances."""
    out = redrive("machines", "list", "bank:app").out

    assert [
        ["machine", "state", "instances", "running", "busy", "failed", "oldest"],
        ["payment", "created", "2", "1", "0", "1", "2h"],
        ["payment", "paid", "1", "1", "0", "0", "2h"],
        ["payment", "expired", "0", "0", "0", "0", "-"],
        ["payment", "booked", "0", "0", "0", "0", "-"],
        ["payment", "review", "0", "0", "0", "0", "-"],
    ] == rows(out)
    document = json.loads(redrive("machines", "list", "bank:app", "--json").out)
    assert ("payment", True, 5) == (document["name"], document["declared"], len(document["states"]))


def test_instances_are_listed(bank: ModuleType, redrive: Redrive):
    """Print a row for each instance with its transition, filtered by state, status, key and limit."""

    def keys(*options: str) -> list[str]:
        return [row[0] for row in rows(redrive("machines", "list", "bank:app", "payment", *options).out)[1:]]

    assert ["a", "b", "c"] == keys()
    assert (["a", "c"], ["c"], ["b"]) == (keys("--state", "created"), keys("--status", "failed"), keys("--overdue"))
    assert (["b", "c"], ["a"]) == (keys("--after", "a"), keys("--limit", "1"))
    page = redrive("machines", "list", "bank:app", "payment", "--limit", "1")
    assert "... the first 1; --after a or --limit shows more\n" == page.err
    assert "to paid on Paid, job 5: negative [b]amount" in redrive("machines", "list", "bank:app", "payment").out
    lines = redrive("machines", "list", "bank:app", "payment", "--json").out.splitlines()
    assert [("a", 1)] == [(each["key"], each["moves"]) for each in map(json.loads, lines)][:1]


def test_an_instance_is_shown_with_its_history(bank: ModuleType, redrive: Redrive):
    """Print the state, the timeout, the transition, the data and the events of an instance."""
    paid = redrive("machines", "show", "bank:app", "payment", "b").out.splitlines()
    failed = redrive("machines", "show", "bank:app", "payment", "c").out

    assert [
        "payment/b  paid, running, since 2h",
        "created 2026-03-28 12:00:00 UTC, 2 moves",
        "waits for: Paid (to paid), Expired (to expired), Created (to booked)",
        "timeout: Expired at 2026-03-31 12:00:00 UTC, in 2d 22h",
        'data: {"amount":7}',
        "2026-03-28 12:00:00 UTC  moved  created -> paid, on Paid, by send, key webhook-5",
        "2026-03-28 12:00:00 UTC  moved  (new) -> created, on Created, by send",
    ] == paid
    assert "it goes on by redrive machines retry (unless it was caught), skip or reset" in failed
    assert "transition: to paid on Paid, job 5: negative [b]amount: dead: " in failed
    assert "failed  created -> paid, on Paid, by send, key webhook--1, error: negative [b]amount" in failed
    document = json.loads(redrive("machines", "show", "bank:app", "payment", "c", "--json").out)
    assert ("failed", ["failed", "moved"]) == (
        document["instance"]["status"],
        [each["status"] for each in document["history"]],
    )


def test_a_busy_instance_is_shown(bank: ModuleType, redrive: Redrive):
    """Print why the job of a transition is not running, that the timeout waits, and a timeout that is due."""
    bank.payment.send("b", bank.Paid(6))
    assert "in 2d 22h" not in redrive("machines", "show", "bank:app", "payment", "b").out
    shown = redrive("machines", "show", "bank:app", "payment", "b").out
    assert "timeout: Expired at 2026-03-31 12:00:00 UTC, waits for the transition\n" in shown
    assert (
        "transition: to paid on Paid, job 6: due since 0ms, no worker is alive; transition of b of machine payment\n"
        in shown
    )
    drain(bank.app, within=0)
    bank.app.clock.advance("4d")
    assert (
        "timeout: Expired at 2026-03-31 14:00:00 UTC, due\n"
        in redrive("machines", "show", "bank:app", "payment", "b").out
    )


def test_a_machine_is_shown(bank: ModuleType, redrive: Redrive):
    """Print the transitions with the counts, stranded instances, and those that have failed."""
    out = redrive("machines", "show", "bank:app", "payment").out
    document = json.loads(redrive("machines", "show", "bank:app", "payment", "--json").out)

    assert out.startswith("machine payment\n  (start)      -- Created ")
    assert "failed: c: to paid on Paid, job 5: negative [b]amount\n" in out
    assert {"source": None, "target": "created", "event": "Created"} == document["transitions"][0]


def test_instances_without_code_are_shown(bank: ModuleType, redrive: Redrive):
    """Print machines and states that only the database has."""
    del bank.payment.tasks["created"]
    del bank.payment._states.__dict__["definition"]
    bank.payment.tasks["paid"].state = type(bank.payment.tasks["paid"].state)(start=True)
    assert "created (stranded)" in redrive("machines", "list", "bank:app").out
    stranded = redrive("machines", "show", "bank:app", "payment")
    assert (
        "stranded: 2 instances are in the state 'created', which the code does not have: deploy code that has it, or "
        "redrive machines migrate bank:app payment created=STATE\n"
    ) == stranded.err
    bank.app.machines.declared.clear()

    assert "payment  created" in redrive("machines", "list", "bank:app").out
    assert "only the database has it" in redrive("machines", "show", "bank:app", "payment").out
    assert [] == json.loads(redrive("machines", "show", "bank:app", "payment", "--json").out)["transitions"]


@pytest.mark.parametrize("command", [("list",), ("show",), ("retry", "a"), ("skip", "a"), ("delete", "a")])
def test_an_unknown_machine_is_an_error(bank: ModuleType, redrive: Redrive, command: tuple[str, ...]):
    """Report the machines that exist."""
    name, *rest = command
    output = redrive("machines", name, "bank:app", "paymnt", *rest)

    assert 1 == output.status
    assert "redrive: there is no machine 'paymnt' in the code or in memory://; known machines: payment\n" == output.err


def test_a_failed_transition_is_retried_or_skipped(bank: ModuleType, redrive: Redrive):
    """Print the instance after the action, and record the actor."""
    again = redrive("machines", "retry", "bank:app", "payment", "c", "--actor", "ann").out
    assert "payment/c: created, running; to paid on Paid, job 5\n" == again
    drain(bank.app, within=0)
    assert (
        "payment/c: created, running\n" == redrive("machines", "skip", "bank:app", "payment", "c", "--actor", "ann").out
    )
    assert ["skip", "retry"] == [each.action for each in bank.app.database.audit() if each.actor == "ann"]
    idle = redrive("machines", "retry", "bank:app", "payment", "a")
    assert (1, True) == (idle.status, "has no transition to retry" in idle.err)
    refused = redrive("machines", "skip", "bank:app", "payment", "c")
    assert (1, True) == (refused.status, "only a failed transition can be skipped" in refused.err)


def test_an_instance_is_reset_or_deleted(bank: ModuleType, redrive: Redrive):
    """Print the new state; refuse a state that the machine does not have, and an instance that does not exist."""
    assert "payment/c: expired, completed\n" == redrive("machines", "reset", "bank:app", "payment", "c", "expired").out
    assert "payment/c is deleted\n" == redrive("machines", "delete", "bank:app", "payment", "c").out
    wrong = redrive("machines", "reset", "bank:app", "payment", "a", "gone")
    gone = redrive("machines", "show", "bank:app", "payment", "c")

    assert (2, 1) == (wrong.status, gone.status)
    assert "has no state 'gone'; known states: created, paid, expired, booked, review" in wrong.err
    assert "redrive: machine 'payment' has no instance 'c'\n" == gone.err


def test_instances_are_migrated(bank: ModuleType, redrive: Redrive):
    """Print the number of instances that move and of those that stay, in a dry run too."""
    dry = redrive("machines", "migrate", "bank:app", "payment", "created=paid", "--dry-run").out
    document = redrive("machines", "migrate", "bank:app", "payment", "created=paid", "--dry-run", "--json").out

    assert "created to paid: 1 would be moved; 1 with a transition stay: repeat this later\n" == dry
    assert {"moved": {"created": 1}, "busy": {"created": 1}, "stranded": {}} == json.loads(document)
    assert "paid to expired: 1 moved\n" == redrive("machines", "migrate", "bank:app", "payment", "paid=expired").out
    wrong = redrive("machines", "migrate", "bank:app", "payment", "created")
    assert (2, True) == (wrong.status, "not of the form OLD=NEW" in wrong.err)


def test_migrations_list_what_is_stranded(bank: ModuleType, redrive: Redrive):
    """Print the instances in other states that the code does not have."""
    del bank.payment.tasks["created"]
    del bank.payment._states.__dict__["definition"]
    bank.payment.tasks["paid"].state = type(bank.payment.tasks["paid"].state)(start=True)
    output = redrive("machines", "migrate", "bank:app", "payment", "paid=expired", "--dry-run")

    assert "stranded: 2 in 'created', which the code does not have\n" == output.err


def test_a_machine_is_drawn(bank: ModuleType, redrive: Redrive, tmp_path: Path):
    """Draw a machine as text, for Mermaid and as SVG, with the numbers of instances or without them."""
    text = redrive("machines", "diagram", "bank:app", "payment").out
    plain = redrive("machines", "diagram", "bank:app", "payment", "--no-counts").out
    mermaid = redrive("machines", "diagram", "bank:app", "payment", "--mermaid", "--svg", str(tmp_path / "payment.svg"))

    assert ("created (2)" in text, "created (2)" in plain) == (True, False)
    assert '    state "created (2)" as s0\n    state "paid (1)" as s1\n' in mermaid.out
    assert f"the machine is drawn in {tmp_path}/payment.svg\n" == mermaid.err
    drawing = ET.fromstring((tmp_path / "payment.svg").read_text())  # noqa: S314 - its own drawing
    texts = {each.text for each in drawing.iter() if each.tag.endswith("text")}
    assert {"machine payment", "created (2)", "paid (1)", "Expired after 3d", "failed"} <= texts


def test_a_drawing_that_cannot_be_written_is_an_error(bank: ModuleType, redrive: Redrive):
    """Report the file and the reason."""
    output = redrive("machines", "diagram", "bank:app", "payment", "--svg", "nowhere/payment.svg")

    assert (2, True) == (output.status, "nowhere/payment.svg cannot be written: No such file" in output.err)


def test_a_state_that_is_never_entered_is_drawn(bank: ModuleType, redrive: Redrive, tmp_path: Path):
    """Draw states that no event leads to in a row of their own, and transitions that lead backwards beside the rest."""
    bank.payment.state(after=["lost"], name="lost")(bank.created.function)
    with pytest.warns(RuntimeWarning, match="'lost'"):
        bank.app.check()
    redrive("machines", "diagram", "bank:app", "payment", "--svg", str(tmp_path / "odd.svg"))

    assert ">lost</text>" in (tmp_path / "odd.svg").read_text()


def test_a_deleted_job_is_named(bank: ModuleType, redrive: Redrive):
    """Report what to do about an instance after its job was deleted."""
    redrive("jobs", "delete", "bank:app", "5", "--yes")

    assert (
        "its job was deleted: skip it, or reset the instance"
        in redrive("machines", "show", "bank:app", "payment", "c").out
    )


def test_an_unknown_state_is_refused(bank: ModuleType, redrive: Redrive):
    """Lists of instances in a state that nothing has end with the states that there are."""
    refused = redrive("machines", "list", "bank:app", "payment", "--state", "piad")

    assert "machine 'payment' has no state 'piad'; known states: created, paid, expired, booked, review" in refused.err
    assert ["key"] == rows(redrive("machines", "list", "bank:app", "payment", "--state", "booked").out)[0][:1]


def test_a_timeout_is_computed_again(bank: ModuleType, redrive: Redrive):
    """Print how many instances have a new timeout."""
    done = redrive("machines", "rearm", "bank:app", "payment", "paid")

    assert "payment: the timeout of 1 instance in paid is computed again\n" == done.out


def test_keys_are_printed_on_one_line(bank: ModuleType, redrive: Redrive):
    """Control characters in a key are escaped in tables, details and errors, and quoted in the next command."""
    key = "x\ny\x1b[31m z"
    bank.payment.send(key, bank.Created(7))
    shown = "x\\ny\\u001b[31m z"
    listed = redrive("machines", "list", "bank:app", "payment", "--after", "c", "--limit", "1")

    assert listed.out.splitlines()[1].startswith(shown)
    assert f"--after '{shown}' or --limit" in listed.err
    assert f"payment/{shown}  (new), running" in redrive("machines", "show", "bank:app", "payment", key).out
    for command in ("skip", "delete"):
        refused = redrive("machines", command, "bank:app", "payment", key).err
        assert 1 == len(refused.splitlines())
        assert shown.replace("z", "z'") in refused or "\\n" in refused


def test_a_transition_that_waits_for_a_retry_shows_its_last_error(bank: ModuleType, redrive: Redrive):
    """Details of an instance have, while its transition waits for a retry, the error of the attempt before."""
    retried = bank.app.machine("retried", retry="3 1h")

    def begun(event: Any) -> None:
        raise ValueError("no [b]bank")

    begun.__annotations__["event"] = bank.Paid
    retried.start(begun)
    retried.send("a", bank.Paid())
    drain(bank.app, within=0)

    assert "last error: no [b]bank\n" in redrive("machines", "show", "bank:app", "retried", "a").out


def test_a_caught_transition_is_skipped_or_reset(bank: ModuleType, redrive: Redrive):
    """Retries of a transition that its catch task has dealt with are refused with the commands that help."""

    @bank.app.task
    def mend(request: CatchRequest[Any]) -> None: ...

    caught = bank.app.machine("caught", retry="0 catch mend")

    def begun(event: Any) -> None:
        raise ValueError("no")

    begun.__annotations__["event"] = bank.Paid
    caught.start(begun)
    caught.send("a", bank.Paid())
    drain(bank.app, within=0)
    refused = redrive("machines", "retry", "bank:app", "caught", "a").err

    assert "was caught: its catch task has dealt with it; redrive machines skip or reset lets 'a' go on" in refused
    assert (
        "it goes on by redrive machines retry (unless it was caught), skip or reset"
        in redrive("machines", "show", "bank:app", "caught", "a").out
    )
