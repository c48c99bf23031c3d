"""``redrive find``, and filters as the argument of ``redrive jobs``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from redrive import App
from redrive.runtime.worker import Worker
from redrive.stores.operations import admin
from tests.cli.conftest import Output


@pytest.fixture
def full(shop: App) -> App:
    """Return an App with dead jobs and others."""
    shop.open()
    charge = shop.tasks["charge"]
    for cents in (-1, -2, 13):
        charge.enqueue(cents)
    asyncio.run(Worker(shop, until_empty=True).run())
    charge.options(delay="1h", tags=["inv-443"], key="inv-443").enqueue(7)
    return shop


def ids(output: Output) -> list[str]:
    """Return the jobs that a command has printed as JSON."""
    assert output.status == 0, output.err
    return [json.loads(line)["id"] for line in output.out.splitlines()]


def test_a_value_is_found(full: App, redrive: Callable[..., Output]):
    """The command prints the jobs with the value, or that there are none; as JSON it prints one document."""
    output = redrive("find", "shop:app", "inv-443")
    nothing = redrive("find", "shop:app", "inv-999")
    document = json.loads(redrive("find", "shop:app", "7", "--json").out)

    assert (0, True) == (output.status, "4   charge  default  ready" in output.out)
    assert (0, "nothing has inv-999\n") == (nothing.status, nothing.out)
    assert ["4"] == [each["id"] for each in document["jobs"]]


def test_a_search_says_what_it_has_not_read(full: App, redrive: Callable[..., Output], monkeypatch: pytest.MonkeyPatch):
    """The last lines name it, and how to go on."""
    monkeypatch.setattr(admin, "BUDGET", 2)
    output = redrive("find", "shop:app", "nothing")
    older = redrive("jobs", "list", "shop:app", "nothing")

    assert "... of jobs older than 3 only tags, held keys and ids of runs were searched\n" in output.err
    assert "--before 3 searches the values of older jobs" in output.err
    assert "of jobs older than 3 only those were found that have it as a tag" in older.err
    assert "jobs older than 3 were not read" in redrive("jobs", "list", "shop:app", "args:*none").err


def test_a_wrong_filter_is_refused_with_a_caret(full: App, redrive: Callable[..., Output]):
    """The nearest word is named, and nothing is searched."""
    for words in (["find", "shop:app", "stat:dead"], ["jobs", "list", "shop:app", "stat:dead"]):
        output = redrive(*words)
        assert (2, True) == (output.status, "state: is one" in output.err)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["state:dead"], ["2", "1"]),
        (["state:dead", "-error:x"], ["2", "1"]),
        (["state:dead -args:-1"], ["2"]),
        (["args:7"], ["4"]),
        (["args:7", "--state", "ready"], ["4"]),
        (["1", "3"], ["3", "1"]),
        (["id:1,3", "--state", "dead"], ["1"]),
        (["since:1h attempts:>=1"], ["3", "2", "1"]),
        (["inv-443"], ["4"]),
        (["key:inv-443"], ["4"]),
        (["worker:404"], []),
    ],
    ids=str,
)
def test_a_filter_is_the_argument_of_a_list(
    full: App, redrive: Callable[..., Output], words: list[str], expected: list[str]
):
    """In the language of the page, together with options."""
    if words[-1].startswith("-error"):
        words = [" ".join(words)]

    assert expected == ids(redrive("jobs", "list", "shop:app", *words, "--json"))


def test_a_condition_is_given_once(full: App, redrive: Callable[..., Output]):
    """Not by an option and in the filter, which could contradict each other."""
    output = redrive("jobs", "list", "shop:app", "state:dead", "--state", "ready")

    assert (2, True) == (output.status, "state is given as --state and in the filter" in output.err)


def test_a_value_that_no_job_has_is_named(full: App, redrive: Callable[..., Output]):
    """A table without rows would not show that a word was taken for a value."""
    output = redrive("jobs", "list", "shop:app", "nonsense")

    assert (0, True) == (output.status, output.err.startswith("no job has the value 'nonsense'; a condition is"))


def test_commands_that_act_take_a_filter(full: App, redrive: Callable[..., Output]):
    """But no value that stands alone, which may mean several things."""
    refused = redrive("jobs", "cancel", "shop:app", "inv-443")
    dry = redrive("jobs", "redrive", "shop:app", "state:dead -args:-1", "--dry-run")
    done = redrive("jobs", "cancel", "shop:app", "tag:inv-443")

    assert (2, True) == (refused.status, "write args:inv-443" in refused.err)
    assert "1 job would be redriven\n" == dry.out
    assert (0, "1 job is cancelled\n") == (done.status, done.out)
