"""`redrive topics`: names that neither the code nor the database has."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from redrive import App
from redrive.testing import drain

MODULE = '''
from redrive import App
from redrive.testing import VirtualClock

app = App("memory://", clock=VirtualClock())
clicks = app.topic("clicks", int)


@clicks.subscribe("count", retry="1 1h", dead="hold")
def count(event: int) -> None:
    """Fail each time."""
    raise ConnectionError(event)
'''


def test_a_deletion_needs_a_known_topic(redrive, shop: App):
    """Events of an unknown topic are not "0 deleted": the command names the topics of the code and of the database."""
    shop.topic("payments", int)
    shop.topic("clicks", int).publish(1)
    del shop.topics.declared["clicks"]
    output = redrive("topics", "prune", "shop:app", "payment", "--keep-for", "7d")

    expected = (
        "there is no topic 'payment' in the code, and no event or subscription of it; known topics: clicks, payments"
    )
    assert (2, "") == (output.status, output.out)
    assert expected in output.err
    assert "0 events are deleted\n" == redrive("topics", "prune", "shop:app", "clicks", "--keep-for", "7d").out
    assert "0 events are deleted\n" == redrive("topics", "prune", "shop:app", "payments", "--keep-for", "7d").out


@pytest.mark.parametrize("command", ["show", "pause"])
def test_a_subscription_that_no_worker_has_declared_is_named(redrive, shop: App, command: str):
    """A subscription that only the code has is refused with what creates it, by views and by actions."""
    shop.topic("clicks", int).publish(1)
    output = redrive("topics", command, "shop:app", "clicks", "count")

    assert (1, "") == (output.status, output.out)
    assert output.err == (
        "redrive: the topic 'clicks' has no subscription 'count'; a worker creates it when it starts with code that "
        "declares it\n"
    )


@pytest.fixture
def clicked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Create a module with a subscription that its first event holds, in memory."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "clicked.py").write_text(MODULE)
    import clicked

    clicked.clicks.publish(1)
    drain(clicked.app, within="1m")
    yield clicked
    clicked.app.close()
    del sys.modules["clicked"]


def test_a_subscription_that_delivers_nothing_has_the_commands_that_let_it_go_on(redrive, clicked: ModuleType):
    """Print what ends the pause, what starts the event that holds others, and what lets it go."""
    shown = redrive("topics", "show", "clicked:app", "clicks", "count").out
    skip = "redrive topics skip clicked:app clicks count 1"
    assert f"to clear it: redrive jobs retry clicked:app 2, or {skip}\n" in shown
    assert re.search(r"held by event 1 \(job 2\), attempt 1, next at [^:]+:\d\d:\d\d UTC: 1\n", shown)
    document = json.loads(redrive("topics", "show", "clicked:app", "clicks", "count", "--json").out)
    assert ["1"] == [each["error"] for each in document["subscription"]["held_by"]]

    drain(clicked.app, within="2h")
    clicked.count.pause()
    shown = redrive("topics", "show", "clicked:app", "clicks", "count").out
    assert "to clear it: redrive topics resume clicked:app clicks count\n" in shown
    assert f"to clear it: redrive topics redrive clicked:app clicks count, or {skip}\n" in shown


def test_subscriptions_are_skipped_redriven_and_moved(redrive, clicked: ModuleType):
    """Print what became of the events, as a dashboard does; what a person has skipped is not redriven."""
    drain(clicked.app, within="2h")
    redriven = redrive("topics", "redrive", "clicked:app", "clicks", "count", "--limit", "1").out
    skipped = redrive("topics", "skip", "clicked:app", "clicks", "count").out
    left_alone = redrive("topics", "redrive", "clicked:app", "clicks", "count").out
    refused = redrive("topics", "redrive", "clicked:app", "clicks", "count", "--limit", "0")
    clicked.clicks.publish(1)
    drain(clicked.app, within="1m")
    moved = redrive("topics", "move", "clicked:app", "clicks", "count", "2026-01-01").out

    assert "clicks.count: event 1 is dead, and the events behind it follow\n" == skipped
    assert "clicks.count: 1 dead events redriven; more may be dead: repeat it for the next ones\n" == redriven
    assert "clicks.count: 0 dead events redriven\n" == left_alone
    assert (2, "redrive: limit='0' is not a number of events\n") == (refused.status, refused.err)
    assert "clicks.count: moved to 2026-01-01T00:00:00+00:00; 1 pending deliveries are cancelled\n" == moved


@pytest.mark.usefixtures("clicked")
def test_a_topic_with_a_wrong_name_is_refused(redrive):
    """Name the topics that exist."""
    output = redrive("topics", "show", "clicked:app", "click", "count")

    assert (2, "") == (output.status, output.out)
    assert "there is no topic 'click' in the code, and no event or subscription of it" in output.err
