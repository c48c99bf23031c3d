"""``redrive topics``: show topics and subscriptions, and change subscriptions while workers run."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated

import typer

from redrive.app.app import App
from redrive.app.topics import words
from redrive.app.topics.subscription import SubscriptionHandle
from redrive.cli.acting import count, say_kept
from redrive.cli.known import check_topic
from redrive.cli.loading import Actor, AsJson, Target, load_existing, read_instant
from redrive.cli.screen import Grid, print_document, say
from redrive.engine.commands import command
from redrive.engine.explain import span
from redrive.engine.topics import Position
from redrive.stores.operations.topics.lag import Lag, SubscriptionStatus

topics = typer.Typer(help="Look at topics, and change subscriptions while workers run.", no_args_is_help=True)

# Dead events that `show` writes.
DEAD_SHOWN = 10

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
OptionalName = Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Name of the topic; by default all.")]
Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")]


def _handle(app: str, topic: str, subscription: str) -> SubscriptionHandle:
    loaded = load_existing(app)
    check_topic(loaded, topic)
    return loaded.topics.subscription(topic, subscription)


@topics.command("list")
def list_(app: Target, topic: OptionalName = None, *, json: AsJson = False) -> None:
    """List the subscriptions of a topic, or of all: order, lag, failed events, and what holds them."""
    loaded = load_existing(app)
    found = loaded.topics.select(topic)
    if json:
        for each in found:
            print_document(_plain(each))
        return
    sizes = [each for each in loaded.topics.sizes() if topic in (None, each.topic)]
    if not sizes:
        say("no topic has events or subscriptions" if topic is None else f"{topic} has no events and no subscriptions")
        return
    table = Grid("topic", "subscription", "order", "lag", "oldest", "failed", "dead", "state", wide=("state",))
    for each in found:
        lag = each.lag
        oldest = "-" if lag.oldest_at is None else span(each.at - lag.oldest_at)
        known = each.subscription
        numbers = (words.number(lag.events), oldest, words.number(lag.failed), words.number(lag.dead))
        table.add(known.topic, known.name, known.ordering, *numbers, words.state(each))
    subscribed = {each.subscription.topic for each in found}
    for size in sizes:
        if size.topic not in subscribed:
            table.add(size.topic, "-", "-", "-", "-", "-", "-", f"{words.number(size.events)} events, no subscription")
    table.show()


@topics.command()
def show(app: Target, topic: Name, subscription: Subscription, *, json: AsJson = False) -> None:
    """Show one subscription: its position, its lag, its feeders, and the events that hold others."""
    status = _handle(app, topic, subscription).status()
    if json:
        print_document(_plain(status))
        return
    known = status.subscription
    types = "all types" if known.types is None else ", ".join(known.types)
    say(f"subscription {known.task}: {words.state(status)}")
    say(f"order {known.ordering}, {types}, {words.shards(known.shards)}; after a dead event: {known.dead}")
    say(_lag(status.lag, status))
    if known.behind:
        say(f"behind: {known.behind} events were deleted before it had read them")
    alive = {job.id: job for job in status.feeders}
    for shard in status.shards:
        job = alive.get(shard.job_id)
        feeder = "has no feeder" if job is None else f"feeder job {job.id} {words.feeder(job.state)}"
        where = "at the end of its window" if shard.until is None else f"in a window, up to event {shard.at_id}"
        stuck = "" if shard.stuck_why is None else f"; waits: {shard.stuck_why}"
        say(f"shard {shard.shard}: {where}; {feeder}{stuck}")
    for each in status.held_by:
        say(f"held by {words.held(each)}")
    for remedy in words.remedies(status, app):
        say(f"to clear it: {remedy}")
    _show_dead(app, status)


def _show_dead(app: str, status: SubscriptionStatus) -> None:
    """Write the latest dead events that hold no others; those that do stand above."""
    holding = {each.id for each in status.held_by}
    for each in status.dead[:DEAD_SHOWN]:
        if each.id not in holding:
            say(words.dead(each))
    if status.lag.dead > DEAD_SHOWN:
        task = status.subscription.task
        listed = command("jobs list", app, task=task, state="dead", not_caught=True, limit="1000")
        say(f"these are the latest {DEAD_SHOWN}; all: {listed}")


@topics.command()
def pause(app: Target, topic: Name, subscription: Subscription, *, actor: Actor = None) -> None:
    """Deliver no further event of a subscription; calls that run go on, and events stay."""
    known = _handle(app, topic, subscription).pause(actor=actor)
    say(f"subscription {known.task} is paused")


@topics.command()
def resume(app: Target, topic: Name, subscription: Subscription, *, actor: Actor = None) -> None:
    """End a pause of a subscription."""
    known = _handle(app, topic, subscription).resume(actor=actor)
    say(f"subscription {known.task} goes on")


@topics.command()
def move(
    app: Target,
    topic: Name,
    subscription: Subscription,
    to: Annotated[str, typer.Argument(metavar="POSITION", help="beginning, end, an instant, or the id of an event.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what it would skip and repeat.")] = False,
    actor: Actor = None,
) -> None:
    """Put the cursor of a subscription at another position; failed events that wait for a retry are cancelled."""
    if dry_run:
        say(words.moved(_handle(app, topic, subscription).preview_move(_position(to))))
        return
    ended = _handle(app, topic, subscription).move(_position(to), actor=actor)
    cancelled = f"; {ended} pending deliveries are cancelled" if ended else ""
    say(f"subscription {topic}.{subscription} goes on from {_place(to)}{cancelled}")


def _place(to: str) -> str:
    return f"event {to}" if to.isdigit() else f"the {to}" if to.isalpha() else to


def _position(text: str) -> Position:
    if text in ("beginning", "end"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    found = read_instant(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@topics.command()
def skip(
    app: Target,
    topic: Name,
    subscription: Subscription,
    event: Annotated[int | None, typer.Argument(metavar="[EVENT]", help="Id of the event that holds others.")] = None,
    *,
    actor: Actor = None,
) -> None:
    """Let an event go that holds others: it is dead with its last error, and those behind it follow."""
    held = _handle(app, topic, subscription).skip(event, actor=actor)
    say(f"event {held.event_id} is dead (job {held.id}); the events behind it follow")


@topics.command()
def redrive(
    app: Target,
    topic: Name,
    subscription: Subscription,
    *,
    limit: Annotated[int, typer.Option(help="The most events.")] = 1000,
    rate: Annotated[str | None, typer.Option(help="How many are due within how long, for example 100/s.")] = None,
    actor: Actor = None,
) -> None:
    """Start the dead events of a subscription again, oldest first; they come out of order unless they hold others."""
    handle = _handle(app, topic, subscription)
    handle.status()
    done = handle.redrive(limit=limit, rate=rate, actor=actor)
    say_kept(done.kept)
    say(f"{count(len(done.ids))} redriven")


@topics.command()
def reshard(
    app: Target,
    topic: Name,
    subscription: Subscription,
    number: Annotated[int, typer.Argument(metavar="SHARDS", help="The number of shards.")],
    *,
    actor: Actor = None,
) -> None:
    """Give a subscription another number of shards, as soon as the present ones have read all events of now."""
    known = _handle(app, topic, subscription).reshard(number, actor=actor)
    say(
        f"subscription {known.task} gets {words.shards(number)}"
        if known.reshard
        else f"it has {words.shards(number)} already"
    )


@topics.command()
def forget(app: Target, topic: Name, subscription: Subscription, *, actor: Actor = None) -> None:
    """Delete a subscription with its cursor; a worker that declares it creates it again when it starts."""
    _handle(app, topic, subscription).forget(actor=actor)
    say(f"subscription {topic}.{subscription} is deleted")


@topics.command()
def prune(
    app: Target,
    topic: Name,
    *,
    keep_for: Annotated[str | None, typer.Option(help="Delete events that are older, such as 7d.")] = None,
    keep_bytes: Annotated[int | None, typer.Option(help="Keep only the newest events of so many bytes.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also events that subscriptions have not read.")] = False,
    actor: Actor = None,
) -> None:
    """Delete old events of a topic that all subscriptions have read."""
    loaded = load_existing(app)
    check_topic(loaded, topic)
    deleted, behind = 0, dict[str, int]()
    while True:
        done = loaded.topics.prune(topic, keep_for=keep_for, keep_bytes=keep_bytes, force=force, actor=actor)
        deleted += done.deleted
        for name, number in done.behind:
            behind[name] = behind.get(name, 0) + number
        if not done.more:
            break
    say(f"{deleted} events are deleted")
    if done.held:
        say(f"older events stay, because these have not read them: {', '.join(_holders(loaded, topic)) or 'unknown'}")
    for name, number in behind.items():
        say(f"subscription {name} had not read {number} of them")


@topics.command()
def rebase(app: Target, *, actor: Actor = None) -> None:
    """Repair the cursors after the database was restored from a dump of another server, while no worker runs.

    Events may be delivered again; none is skipped.
    """
    found = load_existing(app).topics.rebase(actor=actor)
    for shard, first in found:
        where = "has read all events" if first is None else f"goes on with event {first}"
        say(f"{shard.topic}.{shard.subscription}, shard {shard.shard}: {where}")
    say(f"cursors of this server: {len(found)}" if found else "no cursor needs a repair")


def _holders(app: App, topic: str) -> list[str]:
    late = [each for each in app.topics.select(topic) if each.lag.oldest_at is not None]
    late.sort(key=lambda each: each.lag.oldest_at or each.at)
    return [f"{each.subscription.name} ({words.state(each)})" for each in late]


def _lag(lag: Lag, status: SubscriptionStatus) -> str:
    oldest = "" if lag.oldest_at is None else f", the oldest since {span(status.at - lag.oldest_at)}"
    failed, dead = words.number(lag.failed), words.number(lag.dead)
    return f"lag: {words.number(lag.events)} events{oldest}; {failed} failed, {dead} dead"


def _plain(status: SubscriptionStatus) -> dict[str, object]:
    known, lag = status.subscription, status.lag
    plain: dict[str, object] = {name: getattr(known, name) for name in known.__struct_fields__}
    return plain | {
        "lag": {
            "events": lag.events,
            "oldest_seconds": None if lag.oldest_at is None else (status.at - lag.oldest_at).total_seconds(),
            "failed": lag.failed,
            "dead": lag.dead,
        },
        "shards": [
            {"shard": each.shard, "feeder": each.job_id, "at_id": each.at_id, "waits": each.stuck_why}
            for each in status.shards
        ],
        "held_by": [
            {"event": each.event_id, "job": each.id, "state": each.state, "next_at": each.scheduled_at}
            | {"error": each.error, "out_of_order": each.out_of_order}
            for each in status.held_by
        ],
        "dead": [
            {"event": each.event_id, "job": each.id, "error": each.error, "out_of_order": each.out_of_order}
            for each in status.dead
        ],
    }
