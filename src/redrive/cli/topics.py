"""``redrive topics``: show topics and subscriptions, and change subscriptions while workers run."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated

import typer

from redrive.app.app import App
from redrive.app.subscription import SubscriptionHandle
from redrive.cli.acting import count, say_kept
from redrive.cli.loading import Actor, AsJson, Target, load_existing, read_instant
from redrive.cli.screen import Grid, print_document, say, utc
from redrive.engine.explain import span
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import Hold
from redrive.engine.topics import DeliveryRecord, Order, Position
from redrive.stores.operations.topics.subscriptions import EXACT, Lag, SubscriptionStatus

topics = typer.Typer(help="Look at topics, and change subscriptions while workers run.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
OptionalName = Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Name of the topic; by default all.")]
Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")]


def _handle(app: str, topic: str, subscription: str) -> SubscriptionHandle:
    return load_existing(app).topics.subscription(topic, subscription)


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
        say("no topic has events or subscriptions")
        return
    table = Grid("topic", "subscription", "order", "lag", "oldest", "failed", "dead", "state", wide=("state",))
    for each in found:
        lag = each.lag
        oldest = "-" if lag.oldest_at is None else span(each.at - lag.oldest_at)
        known = each.subscription
        numbers = (_number(lag.events), oldest, str(lag.failed), str(lag.dead))
        table.add(known.topic, known.name, known.ordering, *numbers, _state(each))
    subscribed = {each.subscription.topic for each in found}
    for size in sizes:
        if size.topic not in subscribed:
            table.add(size.topic, "-", "-", "-", "-", "-", "-", f"{_number(size.events)} events, no subscription")
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
    say(f"subscription {known.task}: {_state(status)}")
    say(f"order {known.ordering}, {types}, {_shards(known.shards)}; after a dead event: {known.dead}")
    say(_lag(status.lag, status))
    if known.behind:
        say(f"behind: {known.behind} events were deleted before it had read them")
    alive = {job.id: job for job in status.feeders}
    for shard in status.shards:
        job = alive.get(shard.job_id)
        feeder = "has no feeder" if job is None else f"feeder job {job.id} {_feeder(job.state)}"
        where = "at the end of its window" if shard.until is None else f"in a window, up to event {shard.at_id}"
        stuck = "" if shard.stuck_why is None else f"; waits: {shard.stuck_why}"
        say(f"shard {shard.shard}: {where}; {feeder}{stuck}")
    for each in status.held_by:
        say(f"held by {_held(each)}")


def _feeder(state: State) -> str:
    if state is State.RUNNING:
        return "runs"
    return "has ended" if state in FINAL else "waits for a worker with the code of the subscription"


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
    actor: Actor = None,
) -> None:
    """Put the cursor of a subscription at another position; failed events that wait for a retry are cancelled."""
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
    say(f"{count(done.ids)} redriven")


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
    say(f"subscription {known.task} gets {_shards(number)}" if known.reshard else f"it has {_shards(number)} already")


@topics.command()
def forget(app: Target, topic: Name, subscription: Subscription, *, actor: Actor = None) -> None:
    """Delete a subscription with its cursor; a worker whose code has it creates it again when it starts."""
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
    say(f"cursors of this server: {len(found)}")


def _holders(app: App, topic: str) -> list[str]:
    late = [each for each in app.topics.select(topic) if each.lag.oldest_at is not None]
    late.sort(key=lambda each: each.lag.oldest_at or each.at)
    return [f"{each.subscription.name} ({_state(each)})" for each in late]


def _number(number: int) -> str:
    return f"{EXACT:,}+" if number > EXACT else str(number)


def _shards(number: int) -> str:
    return "1 shard" if number == 1 else f"{number} shards"


def _lag(lag: Lag, status: SubscriptionStatus) -> str:
    oldest = "" if lag.oldest_at is None else f", the oldest since {span(status.at - lag.oldest_at)}"
    return f"lag: {_number(lag.events)} events{oldest}; {lag.failed} failed, {lag.dead} dead that hold others"


def _state(status: SubscriptionStatus) -> str:
    known = status.subscription
    parts = []
    if known.paused_at is not None:
        parts.append(f"paused since {utc(known.paused_at)}")
    parts += [f"waits: {shard.stuck_why}" for shard in status.shards if shard.stuck_why is not None][:1]
    if known.reshard is not None:
        parts.append(f"gets {_shards(known.reshard)}")
    held = status.held_by
    if held and known.ordering is Order.STRICT:
        parts.append(f"held by {_held(held[0])}")
    elif held:
        parts.append(f"{len(held)} keys held")
    if not any(job.state is State.RUNNING for job in status.feeders):
        parts.append("no worker delivers")
    return "; ".join(parts) or "open"


def _held(each: DeliveryRecord) -> str:
    if each.state is State.DEAD:
        return f"dead event {each.event_id} (job {each.id})"
    when = f", next at {utc(each.scheduled_at)}" if each.state is State.READY and each.hold is Hold.RETRY else ""
    return f"event {each.event_id} (job {each.id}), attempt {max(each.attempt, 1)}{when}"


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
            for each in status.held_by
        ],
    }
