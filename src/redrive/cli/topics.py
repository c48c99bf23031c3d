"""``redrive topics``: show topics and subscriptions, and change subscriptions while workers run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import Annotated, Any

import typer

from redrive.app.app import App
from redrive.app.topics.subscription import SubscriptionHandle
from redrive.cli.known import check_topic
from redrive.cli.loading import Actor, AsJson, Target, load_existing, read_instant
from redrive.cli.local import Desk, ask, check, name_of, present
from redrive.cli.local import show as show_view
from redrive.cli.screen import say
from redrive.cli.text import topics as text
from redrive.operate import topic_words
from redrive.operate.topics import TopicList

topics: typer.Typer = typer.Typer(
    help="Look at topics, and change subscriptions while workers run.", no_args_is_help=True
)

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
    view: TopicList = ask(app, "topics list")
    if topic is not None:
        subscriptions = tuple(each for each in view.subscriptions if each.topic == topic)
        sizes = tuple(each for each in view.topics if each.name == topic)
        view = TopicList(subscriptions, sizes)
    present(view, "topics list", lambda view: text.topics(view, topic), json=json)


@topics.command()
def show(app: Target, topic: Name, subscription: Subscription, *, json: AsJson = False) -> None:
    """Show one subscription: its position, its lag, its feeders, and the events that hold others."""
    _show(app, "topics show", topic, subscription, lambda view: text.subscription(view, name_of(app)), json=json)


def _show(
    app: Desk,
    words: str,
    topic: str,
    subscription: str,
    render: Callable[[Any], None],
    **given: Any,  # noqa: ANN401
) -> None:
    check(app, check_topic, topic)
    show_view(app, words, render, topic=topic, subscription=subscription, **given)


def _ask(app: Desk, words: str, topic: str, subscription: str, actor: str | None, **given: object) -> str:
    check(app, check_topic, topic)
    note: str = ask(app, words, actor=actor, topic=topic, subscription=subscription, **given).note
    return note


@topics.command()
def pause(app: Target, topic: Name, subscription: Subscription, *, actor: Actor = None) -> None:
    """Deliver no further event of a subscription; calls that run go on, and events stay."""
    _ask(app, "topics pause", topic, subscription, actor)
    say(f"subscription {topic}.{subscription} is paused")


@topics.command()
def resume(app: Target, topic: Name, subscription: Subscription, *, actor: Actor = None) -> None:
    """End a pause of a subscription."""
    _ask(app, "topics resume", topic, subscription, actor)
    say(f"subscription {topic}.{subscription} goes on")


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
        _show(app, "topics move --dry-run", topic, subscription, text.moved, json=False, to=_written(to))
    else:
        say(_ask(app, "topics move", topic, subscription, actor, to=_written(to)))


def _written(to: str) -> str:
    """Return a position as the API takes it; an instant has an offset there."""
    if to in {"beginning", "end"} or (to.isascii() and to.isdigit()):
        return to
    found = read_instant(to)
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).isoformat()


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
    say(_ask(app, "topics skip", topic, subscription, actor, event=None if event is None else str(event)))


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
    say(_ask(app, "topics redrive", topic, subscription, actor, limit=limit, rate=rate))


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
        f"subscription {known.task} gets {topic_words.shards(number)}"
        if known.reshard
        else f"it has {topic_words.shards(number)} already"
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
    return [f"{each.subscription.name} ({topic_words.state(each)})" for each in late]
