"""Topics and subscriptions as text."""

from __future__ import annotations

from datetime import timedelta

from redrive.cli.screen import Grid, say
from redrive.engine.commands import command
from redrive.engine.explain import span
from redrive.engine.records import Count
from redrive.operate.subscription import MovePage, ShardLine, SubscriptionPage
from redrive.operate.topic_words import shards
from redrive.operate.topics import SubscriptionLine, TopicList

# Dead events that a text shows.
DEAD_SHOWN = 10


def topics(view: TopicList, topic: str | None) -> None:
    """Print subscriptions, and topics without any."""
    if not view.topics:
        say("no topic has events or subscriptions" if topic is None else f"{topic} has no events and no subscriptions")
        return
    table = Grid("topic", "subscription", "order", "lag", "oldest", "failed", "dead", "state", wide=("state",))
    for each in view.subscriptions:
        oldest = "-" if each.oldest_seconds is None else _span(each.oldest_seconds)
        numbers = (_number(each.lag), oldest, _number(each.failed), _number(each.dead))
        table.add(each.topic, each.name, each.order, *numbers, each.standing)
    subscribed = {each.topic for each in view.subscriptions}
    for size in view.topics:
        if size.name not in subscribed:
            table.add(size.name, "-", "-", "-", "-", "-", "-", f"{_number(size.events)} events, no subscription")
    table.show()


def subscription(view: SubscriptionPage, app: str) -> None:
    """Print one subscription: its position, its lag, its feeders, and the events that hold others."""
    known = view.subscription
    types = "all types" if view.types is None else ", ".join(view.types)
    say(f"subscription {known.topic}.{known.name}: {known.standing}")
    say(f"order {known.order}, {types}, {shards(len(view.shards))}; after a dead event: {view.after_dead}")
    say(_lag(known))
    if view.behind:
        say(f"behind: {view.behind} events were deleted before it had read them")
    for shard in view.shards:
        say(_shard(shard))
    for each in known.held_by:
        say(f"held by {each.words}")
    for remedy in view.remedies:
        say(f"to clear it: {remedy}")
    _dead(view, app)


def _shard(shard: ShardLine) -> str:
    feeder = "has no feeder" if shard.feeder_state is None else f"feeder job {shard.feeder} {shard.feeding}"
    where = "at the end of its window" if shard.at_id is None else f"in a window, up to event {shard.at_id}"
    waits = "" if shard.waits is None else f"; waits: {shard.waits}"
    return f"shard {shard.shard}: {where}; {feeder}{waits}"


def _dead(view: SubscriptionPage, app: str) -> None:
    """Print the latest dead events that hold no others; those that do stand above."""
    known = view.subscription
    holding = {each.job_id for each in known.held_by}
    for each in view.dead[:DEAD_SHOWN]:
        if each.job_id not in holding:
            say(each.words)
    if known.dead.value > DEAD_SHOWN:
        task = f"{known.topic}.{known.name}"
        listed = command("jobs list", app, task=task, state="dead", not_caught=True, not_skipped=True, limit="1000")
        say(f"these are the latest {DEAD_SHOWN}; all: {listed}")


def moved(view: MovePage) -> None:
    """Print the effect that a move would have."""
    parts = [
        f"{_number(view.skipped)} unread events would be skipped",
        f"{_number(view.repeated)} would be delivered again",
        f"{_number(view.cancelled)} pending deliveries would be cancelled",
    ]
    say(", ".join(parts))


def _lag(known: SubscriptionLine) -> str:
    oldest = "" if known.oldest_seconds is None else f", the oldest since {_span(known.oldest_seconds)}"
    return f"lag: {_number(known.lag)} events{oldest}; {_number(known.failed)} failed, {_number(known.dead)} dead"


def _span(seconds: float) -> str:
    return span(timedelta(seconds=seconds))


def _number(count: Count) -> str:
    """Return a number that is exact up to a limit."""
    return f"{count.value:,}+" if count.capped else str(count.value)
