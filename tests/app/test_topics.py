"""Topics in the code: what may be declared, published and subscribed, and how events of older versions are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App, CatchRequest, Context, DeadLetter, Filter, Tasks
from redrive.app.attempts.origins import Delivery
from redrive.engine.topics import Envelope
from redrive.errors import ConfigurationError, PayloadError, RedriveError, TaskDefinitionError
from redrive.testing import VirtualClock, drain

T0 = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Paid:
    """An event."""

    n: int


@dataclass
class Refunded:
    """Another event."""

    n: int


@pytest.fixture
def app() -> Iterator[App]:
    """Yield an app in virtual time."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


def print_event(n: int) -> None:
    """Do nothing."""


def mend(request: CatchRequest[Paid]) -> None:
    """Do nothing."""


def subscribing(**options: Any) -> Callable[[App], object]:
    """Return a function that subscribes with these options."""

    def subscribe(app: App) -> object:
        return app.topic("pay", Paid).subscribe("log", **options)(lambda paid: None)

    return subscribe


WRONG: dict[str, tuple[Callable[[App], object], str]] = {
    "name": (lambda app: app.topic("a/b", Paid), "must not contain any of / # @, got 'a/b'"),
    "blank": (lambda app: app.topic(" ", Paid), "must not contain"),
    "number": (lambda app: app.topic(7, Paid), "must be a text"),
    "type": (lambda app: app.topic("pay", complex), "its events cannot be stored"),
    "twice": (lambda app: [app.topic("pay", Paid), app.topic("pay", Paid)], "two topics are called 'pay'"),
    "version": (lambda app: app.topic("pay", Paid, version=0), "version must be a whole number above zero"),
    "keep": (lambda app: app.topic("pay", Paid, keep_for="0s"), "keep_for must be positive"),
    "bytes": (lambda app: app.topic("pay", Paid, keep_bytes=-1), "keep_bytes must be a whole number above zero"),
    "unions": (lambda app: app.topic("pay", list[int] | list[str]), "two of its types are called 'list'"),
    "order": (subscribing(order="odd"), "subscription 'pay.log': order is one of 'strict', 'key', 'none', got 'odd'"),
    "dead": (subscribing(dead="stop"), "dead is one of 'continue', 'hold', 'topic:...', got 'stop'"),
    "dead topic": (
        lambda app: [subscribing(dead="topic:gone")(app), app.check()],
        "there is no such topic: declare app",
    ),
    "dead name": (subscribing(dead="topic:a/b"), "the topic in dead= must not contain any of / # @, got 'a/b'"),
    "dead type": (
        lambda app: [app.topic("bad", Refunded), subscribing(dead="topic:bad")(app), app.check()],
        "that has events of Refunded: declare app.topic('bad', redrive.DeadLetter)",
    ),
    "dead itself": (
        lambda app: [app.topic("bad", DeadLetter).subscribe("log", dead="topic:bad")(lambda letter: None), app.check()],
        "dead events would go in a circle, from the topic 'bad' to 'bad'",
    ),
    "dead catch": (
        lambda app: [
            app.topic("bad", DeadLetter),
            app.task(name="mend")(mend),
            subscribing(dead="topic:bad", retry="1 1s catch mend")(app),
            app.check(),
        ],
        "subscription 'pay.log' has a catch task, which gets its dead events",
    ),
    "strict": (subscribing(at_once=3), "leave out at_once= and shards="),
    "held": (subscribing(order="none", dead="hold"), "with order='none' no event waits for another"),
    "feeder": (
        lambda app: [subscribing()(app), app.task(name="pay.log.feeder")(print_event), app.check()],
        "'pay.log.feeder', which is the name of the feeder",
    ),
    "shards": (subscribing(order="none", shards=0), "shards must be a whole number above zero"),
    "many shards": (subscribing(order="none", shards=1000), "shards is at most 256, got 1000"),
    "types number": (subscribing(types=5), "types= is a list of types of the topic, got 5"),
    "upcast type": (
        lambda app: app.topic("pay", Paid, version=2).upcast(1, type=int),
        "topic 'pay' has no events of the type int; it has Paid",
    ),
    "no list": (lambda app: app.topic("pay", Paid).publish_many(3), "takes a list of events, got 3; publish() takes"),
    "text": (lambda app: app.topic("pay", str).publish_many("abc"), "takes a list of events, got 'abc'"),
    "prune bytes": (lambda app: app.topics.prune("pay", keep_bytes=-1), "keep_bytes=) is a whole number, zero or more"),
    "prune force": (lambda app: app.topics.prune("pay", keep_bytes=1, force="no"), "prune(force=) is True or False"),
    "prune name": (lambda app: app.topics.prune(5, keep_bytes=1), "the name of a topic must be a text"),
    "far": (lambda app: app.topics.subscription("pay", "log").move(1 << 63), "or the id of an event, got 922337203"),
    "skip": (lambda app: app.topics.subscription("pay", "log").skip("7"), "the id of an event must be a whole number"),
    "handle": (lambda app: app.topics.subscription("pay", ""), "the name of a subscription must be a text"),
    "reshard": (lambda app: app.topics.subscription("pay", "log").reshard(300), "shards is at most 256, got 300"),
    "batch": (subscribing(batch=10_001), "batch is at most 10000"),
    "start": (subscribing(start="now"), "start is 'beginning', 'latest' or a datetime"),
    "naive": (subscribing(start=datetime(2026, 1, 1)), "has no time zone"),  # noqa: DTZ001 - wrong on purpose
    "types": (subscribing(types=Paid), "types= is a list of types"),
    "missing": (subscribing(types=[Refunded]), "types= has Refunded, and the topic has Paid"),
    "none": (subscribing(types=[]), "types= has no type"),
    "retry": (subscribing(retry="often"), "often"),
    "catch": (lambda app: [subscribing(retry="1 1s catch gone")(app), app.check()], "there is no such task"),
    "method": (lambda app: app.topic("pay", Paid).subscribe("log")(7), "7 is no function"),
    "upcast": (lambda app: app.topic("pay", Paid, version=2).upcast(2), "takes an older one"),
    "upcasts": (
        lambda app: [(topic := app.topic("pay", Paid, version=2)).upcast(1)(lambda data: data), topic.upcast(1)],
        "two functions that upcast version 1",
    ),
    "prune": (lambda app: app.topics.prune("pay"), "takes keep_for= or keep_bytes="),
    "key": (lambda app: app.topic("pay", Paid).publish(Paid(1), key=""), "the key of an event must be a text"),
    "keys": (lambda app: app.topic("pay", Paid).publish_many([], key="k"), "is a function of an event"),
    "place": (lambda app: app.topic("pay", Paid).publish_many([Paid(1), 2]), "event 1: topic 'pay' takes events"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_topics_are_refused(app: App, case: str):
    """State what was wrong at the declaration or the call, and write nothing."""
    act, text = WRONG[case]

    with pytest.raises(RedriveError) as caught:
        act(app)
    assert text in str(caught.value)
    assert () == app.topics.sizes()


def test_a_subscription_twice_is_refused(app: App):
    """Refuse a subscription as the function of another one, and its use as a task with arguments of its own."""
    topic = app.topic("pay", Paid)

    @topic.subscribe("log")
    def log(paid: Paid) -> None: ...

    with pytest.raises(TaskDefinitionError, match="is a subscription already"):
        topic.subscribe("other")(log)
    with pytest.raises(PayloadError, match="publish the event"):
        log.enqueue(Paid(1))
    assert ("<subscription pay.log>", "<topic pay>", None) == (repr(log), repr(topic), log(Paid(1)))
    assert "<subscription pay.gone>" == repr(app.topics.subscription("pay", "gone"))


def test_events_of_an_older_version_are_upcast(app: App):
    """Read events of older versions through the functions of their versions, in order."""
    topic = app.topic("pay", Paid)
    topic.publish(Paid(1))
    newer = App("memory://", clock=app.clock)
    newer._store = app.store
    topic = newer.topic("pay", Paid | Refunded, version=3)
    seen: list[object] = []

    @topic.upcast(1)
    def add(data: dict[str, int]) -> dict[str, int]:
        return {"n": data["n"] + 10}

    @topic.upcast(2, type=Paid)
    def double(data: dict[str, int]) -> dict[str, int]:
        return {"n": data["n"] * 2}

    @topic.subscribe("log")
    def log(event: Paid | Refunded) -> None:
        seen.append(event)

    topic.publish(Refunded(5))
    drain(newer)

    assert [Paid(22), Refunded(5)] == seen


def test_a_subscription_takes_some_types(app: App):
    """Deliver only the types that the subscription takes, and pass the others."""
    topic = app.topic("pay", Paid | Refunded)
    seen: list[Refunded] = []

    @topic.subscribe("refunds", types=[Refunded])
    def refunds(event: Refunded) -> None:
        seen.append(event)

    topic.publish_many([Paid(1), Refunded(2), Paid(3)])
    drain(app)

    assert ([Refunded(2)], 0) == (seen, refunds.status().lag.events)


def test_an_upcast_that_fails_sets_its_event_aside(app: App):
    """Make a job of an event that cannot be read, which waits as every job with unreadable arguments."""
    topic = app.topic("pay", Paid, version=1)
    topic.publish(Paid(1))
    topic.version = 2
    topic.upcast(1)(lambda data: data["gone"])

    @topic.subscribe("log", order="none")
    def log(event: Paid) -> None: ...

    drain(app, within="1s")
    (job,) = (each for each in app.jobs.select() if each.task == "pay.log")

    assert ("bad_payload", True) == (job.hold, "an event does not match Paid" in (job.note or ""))


def test_events_published_in_a_handler_commit_with_its_attempt(app: App):
    """Publish nothing of an attempt that fails, and everything of the one that succeeds, once."""
    topic = app.topic("pay", Paid)
    seen: list[int] = []

    @topic.subscribe("log")
    def log(event: Paid) -> None:
        seen.append(event.n)

    @app.task(retry="2 1s")
    async def charge(ctx: Context) -> None:
        await topic.apublish(Paid(ctx.attempt))
        await topic.apublish_many([Paid(10), Paid(11)])
        if ctx.attempt == 1:
            raise ValueError("no")

    charge.enqueue()
    drain(app)

    assert [2, 10, 11] == seen


def test_a_collection_has_topics(app: App):
    """Include the topics of a collection with its tasks."""
    tasks = Tasks()
    topic = tasks.topic("pay", Paid)
    seen: list[int] = []

    @topic.subscribe("log")
    def log(event: Paid) -> None:
        seen.append(event.n)

    app.include(tasks)
    topic.publish(Paid(1))
    drain(app)

    assert ([1], {"pay"}) == (seen, set(app.topics.declared))


def test_a_context_outside_of_a_delivery_has_no_events(app: App):
    """Refuse to fail an event outside of a delivery, or one that the delivery does not have."""
    context = Context(1, "task", 1, 0, "1.1", "key", T0, None)
    with pytest.raises(ConfigurationError, match="belongs to the delivery of a topic"):
        context.fail(1)
    delivery = Delivery([Envelope(7, "k", "int", 1, T0, b"1")], redelivered=True)
    delivery.values = [1]
    context = Context(1, "task", 1, 0, "1.1", "key", T0, None, delivery=delivery)
    with pytest.raises(ConfigurationError, match="takes an event of this delivery"):
        context.fail(2)
    context.fail(1)

    assert ((7,), True, "the handler has marked the event as failed") == (
        tuple(each.id for each in context.events),
        context.redelivered,
        str(delivery.failed[0]),
    )


def test_positions_are_checked(app: App):
    """Refuse a position of a cursor that has none of the forms."""
    handle = app.topics.subscription("pay", "log")
    for wrong, text in [("now", "the id of an event"), (0, "the id"), (datetime(2026, 1, 1), "no time zone")]:  # noqa: DTZ001 - wrong on purpose
        with pytest.raises(ConfigurationError, match=text):
            handle.move(wrong)
    with pytest.raises(ConfigurationError, match="the number of shards must be"):
        handle.reshard(0)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_handles_act_in_both_colours(app: App, colour: str):
    """Pause, resume, move, skip, redrive, reshard and delete by a handle, with and without await."""
    topic = app.topic("pay", Paid)

    @topic.subscribe("log", order="none")
    def log(event: Paid) -> None:
        raise ValueError("no")

    topic.publish(Paid(1))
    drain(app)

    def act(name: str, *words: Any) -> Any:
        if colour == "sync":
            return getattr(log, name)(*words)
        return asyncio.run(getattr(log, f"a{name}")(*words))

    assert app.clock.now() == act("pause").paused_at
    assert None is act("resume").paused_at
    assert 0 == act("move", app.clock.now() + timedelta(days=1))
    assert 1 == len(act("redrive").ids)
    assert 2 == act("reshard", 2).reshard
    assert 0 == act("status").lag.events
    act("forget")
    assert () == app.topics.select()


def test_a_redriven_event_is_marked_in_its_context(app: App):
    """Show the handler that later events of the key were delivered before, and no handler of another event."""
    topic = app.topic("pay", Paid)
    seen: list[tuple[int, bool, bool]] = []
    healed: list[bool] = []

    @topic.subscribe("log", order="key", retry="1 1s")
    def log(paid: Paid, ctx: Context) -> None:
        seen.append((paid.n, ctx.out_of_order, ctx.redelivered))
        if paid.n == 1 and not healed:
            raise ValueError("not yet")

    @app.task
    def plain(ctx: Context) -> None:
        seen.append((0, ctx.out_of_order, ctx.redelivered))

    topic.publish_many([Paid(1), Paid(2)], key=lambda _: "k")
    drain(app)
    healed.append(True)
    log.redrive()
    plain.enqueue()
    drain(app)

    assert [(1, False, False), (1, False, True), (2, False, False)] == seen[:3]
    assert {(1, True, True), (0, False, False)} == set(seen[3:])
    assert ["out of order"] == [tag for job in app.jobs.select(Filter(task="pay.log")) for tag in app.job(job.id).tags]


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/jobs.db"])
def test_dead_events_are_handled_by_subscriptions_of_their_topic(url: str, tmp_path: Path):
    """A typed letter has the event as the first topic has it."""
    seen: list[DeadLetter[Paid]] = []
    app = App(url.format(tmp_path), clock=VirtualClock())
    pay, bad = app.topic("pay", Paid), app.topic("bad", DeadLetter[Paid])

    @pay.subscribe("log", retry="2 1s", order="key", dead="topic:bad")
    def log(paid: Paid) -> None:
        if paid.n == 2:
            raise ValueError("no such account")

    @bad.subscribe("tell", order="key")
    def tell(letter: DeadLetter[Paid]) -> None:
        seen.append(letter)

    pay.publish_many([Paid(1), Paid(2), Paid(3)], key=lambda each: "k")
    drain(app)
    app.close()

    assert [(Paid(2), "k", 3, "builtins.ValueError", "no such account")] == [
        (each.event, each.key, each.attempts, each.error_type, each.error) for each in seen
    ]
