"""`redrive errors`: groups of equal failures, and the jobs of a group."""

from __future__ import annotations

import asyncio
import json

import pytest

from redrive import App
from redrive.runtime.worker import Worker


@pytest.fixture
def failed(shop: App) -> App:
    """Return an app with a group of two dead jobs, and one of a job that waits for its retry."""

    @shop.task(name="refund", retry="0")
    def refund(order: str) -> None:
        """Fail."""
        raise ValueError(f"no card for {order}")

    @shop.task(name="later", retry="3 1h")
    def later() -> None:
        """Fail."""
        raise TimeoutError("\x1b[31mred")

    refund.enqueue_many(["order-17", "order-23"])
    later.enqueue()
    asyncio.run(Worker(shop, until_empty=True).run())
    return shop


def test_groups_are_listed(redrive, failed: App):
    """Print a row for each group, with its error, its dead jobs and its failures; --dead leaves the others out."""
    rows = [json.loads(line) for line in redrive("errors", "list", "shop:app", "--json").out.splitlines()]
    (dead,) = [json.loads(line) for line in redrive("errors", "list", "shop:app", "--dead", "--json").out.splitlines()]
    table = " ".join(redrive("errors", "list", "shop:app").out.split())

    assert {("refund", "no card for <argument>", 2), ("later", "\x1b[<n>mred", 0)} == {
        (row["task"], row["title"], row["dead"]["value"]) for row in rows
    }
    assert ("refund", 2) == (dead["task"], sum(dead["hours"]))
    assert dead["id"] in table
    assert "\x1b" not in table


def test_groups_of_a_span_are_listed_by_their_failures(redrive, failed: App):
    """Print the failures of the span, and after how many of them a job gave up."""
    output = redrive("errors", "list", "shop:app", "--span", "1h")
    rows = [
        json.loads(line) for line in redrive("errors", "list", "shop:app", "--span", "7d", "--json").out.splitlines()
    ]
    refused = redrive("errors", "list", "shop:app", "--span", "2h")

    assert output.out.startswith("failures since ")
    assert ["in 1h", "gave up"] == [name for name in ("in 1h", "gave up") if name in output.out]
    assert [("refund", 2, 2), ("later", 1, 0)] == [(row["task"], row["within"], row["deaths_within"]) for row in rows]
    assert (2, True) == (refused.status, "is none of 1h, 24h, 7d" in refused.err)


def test_a_group_is_shown_with_what_to_do(redrive, failed: App):
    """Print the facts of a group, and commands that list and redrive exactly its jobs."""
    (row,) = [json.loads(line) for line in redrive("errors", "list", "shop:app", "--dead", "--json").out.splitlines()]
    name = row["id"]
    output = redrive("errors", "show", "shop:app", name).out
    listed = redrive("jobs", "list", "shop:app", "--state", "dead", "--group", name, "--json").out.splitlines()

    assert f"group {name}  ValueError: no card for <argument>" in output
    assert "dead now: 2" in output
    assert f"redrive jobs redrive shop:app --group {name} --rate 100/s" in output
    assert row == json.loads(redrive("errors", "show", "shop:app", name, "--json").out)["group"]
    assert {name} == {json.loads(line)["group"] for line in listed}
    assert "2 jobs are redriven\n" == redrive("jobs", "redrive", "shop:app", "--group", name).out
    assert "dead now: 0" in redrive("errors", "show", "shop:app", name).out


def test_unknown_groups_are_named(redrive, failed: App):
    """Groups that do not exist are one line with the command that lists them."""
    output = redrive("errors", "show", "shop:app", "1-0")

    assert (1, "") == (output.status, output.out)
    assert "there is no error group '1-0'" in output.err
    assert output.err.endswith("redrive errors list shop:app\n")


def test_groups_are_muted_and_unmuted(redrive, failed: App):
    """Groups are muted for a span or until they fail again, with the user in the audit log, and that is taken back."""
    (row,) = [json.loads(line) for line in redrive("errors", "list", "shop:app", "--dead", "--json").out.splitlines()]
    name = row["id"]

    assert f"group {name} is muted for 24h\n" == redrive("errors", "mute", "shop:app", name, "--for", "24h").out
    assert ", until 2" in redrive("errors", "show", "shop:app", name).out
    assert f"group {name} is muted until it fails again\n" == redrive("errors", "mute", "shop:app", name).out
    assert ", until it fails again" in redrive("errors", "show", "shop:app", name).out
    assert f"group {name} is not muted any more\n" == redrive("errors", "unmute", "shop:app", name).out
    assert "muted" not in redrive("errors", "show", "shop:app", name).out
    assert ["unmute", "mute", "mute"] == [each.action for each in failed.database.audit()]
    assert {failed.default_actor} == {each.actor for each in failed.database.audit()}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["mute", "shop:app", "1-0"], "there is no error group '1-0'"),
        (["unmute", "shop:app", "1-0"], "there is no error group '1-0'"),
        (["mute", "shop:app", "1-0", "--for", "soon"], "soon"),
    ],
)
def test_wrong_groups_and_spans_mute_nothing(redrive, failed: App, words: list[str], error: str):
    """Groups that do not exist and spans that cannot be read are errors, and nothing is recorded."""
    output = redrive("errors", *words)

    assert 0 != output.status
    assert error in output.err
    assert () == failed.database.audit()
