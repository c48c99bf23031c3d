"""Topics: what publishers write, what feeders read and write, and what operators change."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Lost
from redrive.engine.records import ENCODED, Filter, Hold
from redrive.engine.topics import Dead, DeadLetter, NewTopicEvent, Order, Publish, TopicEvent
from redrive.errors import IllegalMove, LeaseLost, SubscriptionNotFound, TaskDefinitionError, TopicsRestored
from redrive.stores.operations import admin, checks, doctor, events, jobs, redriving
from redrive.stores.operations.topics import cluster, feed, lag, retention, subscriptions
from redrive.stores.operations.topics.feed import FeedProgress, Lease, Reading
from redrive.stores.query import Query, Statements, writes
from tests.stores.helpers import Harness, failed
from tests.stores.topics import POLICY, Reader, payloads, publish


def test_a_subscription_reads_events_in_the_order_of_their_publish(store: Harness):
    """Read the events of a window by id, and none of another topic."""
    publish(store, 1, 2)
    store.do(events.publish([NewTopicEvent("other", b"9", "P")], now=store.now))
    publish(store, 3, key="k")
    reader = Reader(store)
    found = reader.read()

    assert [b"1", b"2", b"3"] == payloads(found)
    assert [(None, "P", 1, store.now), ("k", "P", 1, store.now)] == [
        (each.key, each.type, each.version, each.at) for each in found[1:]
    ]
    assert found[-1].id == reader.shard.ahead_id


def test_an_empty_publish_writes_nothing(store: Harness):
    """Publish no event without a statement."""
    publish(store)

    assert () == store.do(retention.topics())


def test_a_window_has_the_same_events_after_a_crash(store: Harness):
    """Read the same window again from the position, and new events in the next one."""
    publish(store, 1, 2, 3)
    reader = Reader(store)
    first = reader.read()
    publish(store, 4)
    reader.turn(first[0].id)
    again = reader.turn(first[0].id, reading=Reading(after=first[0].id))
    later = reader.turn(first[2].id, closes=True, reading=Reading())

    assert ([b"2", b"3"], [b"4"]) == (payloads(again.events), payloads(later.events))


def test_a_window_without_events_is_not_stored(store: Harness):
    """Store no window if no event is new."""
    reader = Reader(store)
    before = reader.shard
    turned = reader.turn(reading=Reading())

    assert (before.seen, None, (), True) == (turned.shard.seen, turned.shard.until, turned.events, turned.complete)
    assert [False] == [each.news for each in store.do(feed.look([reader.lease.job_id]))]


def test_a_look_finds_new_events(store: Harness):
    """Answer whether a subscription has new events, and whether it is paused."""
    reader = Reader(store)
    publish(store, 1)
    store.do(subscriptions.pause("pay", "log", now=store.now))
    (look,) = store.do(feed.look([reader.lease.job_id, 10**6]))

    assert (True, True, False, 0) == (look.news, look.paused, look.ending, look.epoch)


def test_a_large_window_is_read_by_pages(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """Read a window with many events along the primary key, a page at a time."""
    monkeypatch.setattr(feed, "SMALL", 3)
    monkeypatch.setattr(feed, "PAGE", 2)
    publish(store, 1, 2, 3, 4, 5)
    reader = Reader(store)
    first = reader.turn(reading=Reading())
    second = reader.turn(reading=Reading(after=first.events[-1].id, large=True))
    third = reader.turn(reading=Reading(after=second.events[-1].id, large=True))
    pages = [payloads(each.events) for each in (first, second, third)]

    assert [[b"1", b"2"], [b"3", b"4"], [b"5"]] == pages
    assert [(True, False), (True, False), (True, True)] == [
        (each.large, each.complete) for each in (first, second, third)
    ]


def test_other_types_and_other_shards_are_read_without_payload(store: Harness):
    """Leave out the payloads of events that a shard does not deliver, so that its position passes them."""
    publish(store, 1, type_="Q")
    publish(store, 2, key="a")
    publish(store, 3, key="b")
    reader = Reader(store, Order.KEY, types=("P",), shards=2)
    first = payloads(reader.read())
    reader.attach(reader.claims[1])
    second = payloads(reader.read())

    assert (None, None) == (first[0], second[0])
    assert {(b"2", None), (None, b"2")} >= {(first[1], second[1])}
    assert {(b"3", None), (None, b"3")} >= {(first[2], second[2])}


def test_a_failed_event_becomes_a_job_with_its_first_attempt(store: Harness):
    """Write the job, its attempt and the position together, and hold the line until the job has ended."""
    publish(store, 1, 2)
    reader = Reader(store)
    first, _ = reader.read()
    turned = reader.turn(first.id, diverted=(reader.job(first, failed()),))
    ((claim, moved),) = turned.settled
    job = store.do(jobs.get(claim.id))

    assert (State.READY, Hold.RETRY, 1, "boom") == (job.state, job.hold, job.attempt, job.error)
    assert (1, moved.job_id) == (len(store.do(jobs.history(job.id))), job.id)
    assert ("other",) == store.do(feed.free(reader.record, ["strict", "other"]))
    assert [first.id] == [each.event_id for each in reader.status.held_by]
    assert (1, 1, 0) == (reader.status.lag.events, reader.status.lag.failed, reader.status.lag.dead)


def test_published_events_are_written_with_the_position(store: Harness):
    """Write what handlers have published in the transaction that moves the position."""
    publish(store, 1)
    reader = Reader(store)
    (first,) = reader.read()
    turned = reader.turn(first.id, effects=(Publish(NewTopicEvent("other", b"1", "P")),))

    assert (first.id, ()) == (turned.shard.at_id, turned.settled)
    assert ["other", "pay"] == [each.topic for each in store.do(retention.topics())]


def test_a_forced_deletion_of_events_that_were_read_leaves_nothing_behind(store: Harness):
    """Count nothing for a subscription that has read what is deleted by force."""
    publish(store, 1)
    reader = Reader(store)
    (first,) = reader.read()
    reader.turn(first.id, closes=True)
    store.wait(100)
    done = store.do(retention.prune("pay", keep_for=timedelta(seconds=50), force=True, now=store.now))

    assert (1, (), 0) == (done.deleted, done.behind, reader.status.subscription.behind)


def test_a_repeated_turn_writes_nothing_twice(store: Harness):
    """Recognize a write with a lost reply."""
    publish(store, 1)
    reader = Reader(store)
    (first,) = reader.read()
    progress = FeedProgress(
        0,
        first.id,
        reader.shard.turns + 1,
        diverted=(reader.job(first),),
        effects=(Publish(NewTopicEvent("other", b"1", "P")),),
    )
    for _ in range(2):
        turned = store.do(feed.turn(reader.lease, reader.record, progress, now=store.now))

    assert (first.id, 1) == (turned.shard.at_id, len(reader.status.deliveries))
    assert [("other", 1), ("pay", 1)] == [(each.topic, each.events) for each in store.do(retention.topics())]


def test_a_turn_requires_the_turn_before_it(store: Harness):
    """Write nothing if the database has lost an earlier turn, as after the takeover of an asynchronous standby."""
    publish(store, 1, 2)
    reader = Reader(store)
    _, second = reader.read()
    stored = reader.shard
    reader.shard = msgspec.structs.replace(stored, turns=stored.turns + 1)
    effect = Publish(NewTopicEvent("other", b"1", "P"))
    turned = reader.turn(second.id, diverted=(reader.job(second),), effects=(effect,), reading=Reading())

    assert (True, stored, ()) == (turned.moved, turned.shard, reader.status.deliveries)
    assert [("pay", 2)] == [(each.topic, each.events) for each in store.do(retention.topics())]


def test_a_feeder_without_its_lease_writes_nothing(store: Harness):
    """Refuse the write of a feeder that has lost its lease."""
    reader = Reader(store)
    reader.lease = msgspec.structs.replace(reader.lease, lease_id=reader.lease.lease_id + 1)

    assert (None, False) == (
        store.do(feed.attach(reader.lease)),
        store.do(feed.commit(reader.lease, reader.shard, [1], now=store.now)),
    )
    with pytest.raises(LeaseLost):
        reader.turn(1)


def test_events_done_in_transactions_are_remembered_until_their_shard_has_them(store: Harness):
    """Keep the rows of events that a transaction has ended, once, and publish what their handlers asked for."""
    publish(store, 1, 2)
    reader = Reader(store, Order.NONE)
    _, second = reader.read()
    effect = Publish(NewTopicEvent("other", b"1", "P"))
    assert store.do(feed.commit(reader.lease, reader.shard, [second.id], [effect], now=store.now))
    assert not store.do(feed.commit(reader.lease, reader.shard, [second.id], now=store.now))
    reader.attach(reader.claims[0])
    before = reader.done
    reader.turn(second.id, done=(second.id,), healthy=True)
    reader.attach(reader.claims[0])

    assert (frozenset({second.id}), frozenset()) == (before, reader.done)
    assert ["other", "pay"] == [each.topic for each in store.do(retention.topics())]


@writes
def forget(topic: str, subscription: str) -> Statements[None]:
    """Delete the rows of ended deliveries, as a standby lacks them that has taken over too early."""
    yield Query("done_forget", {"topic": topic, "subscription": subscription})


def test_a_turn_requires_the_deliveries_that_count_as_done(store: Harness):
    """Write nothing if the database has lost the transaction in which a handler had ended a delivery."""
    publish(store, 1, 2)
    reader = Reader(store, Order.NONE)
    first, second = reader.read()
    stored = reader.shard
    for each in (first, second):
        assert store.do(feed.commit(reader.lease, reader.shard, [each.id], now=store.now))
    store.do(forget("pay", "log"))
    assert store.do(feed.commit(reader.lease, reader.shard, [first.id], now=store.now))
    with pytest.raises(feed.DeliveryLost, match="lost a delivery of pay/log"):
        reader.turn(second.id, done=(first.id, second.id))
    reader.attach(reader.claims[0])

    assert (stored, frozenset({first.id})) == (reader.shard, reader.done)


@pytest.mark.parametrize("way", ["close", "move"])
def test_a_shard_keeps_what_is_done_beyond_its_position(store: Harness, way: str):
    """Give the next feeder the events behind an unfinished one that are done, until the end of the window or a move."""
    publish(store, 1, 2, 3)
    reader = Reader(store, Order.NONE)
    first, second, third = (each.id for each in reader.read())
    reader.turn(first - 1, done_id=third, unfinished=(first, second))
    reader.attach(reader.claims[0])
    kept = reader.shard
    pruned = store.do(retention.prune("pay", keep_for=timedelta(0), force=True, now=store.now + timedelta(days=1)))
    if way == "move":
        store.do(subscriptions.move("pay", "log", "beginning", now=store.now))
    else:
        reader.turn(closes=True)
    reader.attach(reader.claims[0])

    assert (first - 1, third, [first, second]) == (kept.at_id, kept.done_id, kept.unfinished)
    assert (("log", 2),) == pruned.behind
    assert (0, []) == (reader.shard.done_id, reader.shard.unfinished)


def test_a_delivery_is_ended_by_its_transaction_or_by_its_job(store: Harness):
    """Make no job of a failed event whose transaction was committed, and commit none after the job was made."""
    publish(store, 1, 2, 3)
    reader = Reader(store, Order.NONE)
    first, second, third = reader.read()
    committed = store.do(feed.commit(reader.lease, reader.shard, [second.id], now=store.now))
    diverted = tuple(reader.job(each, failed()) for each in (first, second, third))
    turned = reader.turn(third.id, diverted=diverted)
    late = store.do(feed.commit(reader.lease, reader.shard, [first.id], now=store.now))

    assert (True, False) == (committed, late)
    origins = [f"topic:pay/log#{each.id}" for each in (first, third)]
    assert origins == [claim.origin for claim, _ in turned.settled]
    assert origins == sorted(each.origin for each in store.jobs() if "#" in (each.origin or ""))


@pytest.mark.parametrize("crashes", [True, False])
def test_a_transaction_of_before_a_move_ends_no_delivery_of_after_it(store: Harness, *, crashes: bool):
    """Deliver an event again after a move although a delivery of before it commits later; then end it once."""
    publish(store, 1)
    reader = Reader(store, Order.NONE)
    (event,) = reader.read()
    store.do(subscriptions.move("pay", "log", "beginning", now=store.now))
    old = store.do(feed.commit(reader.lease, reader.shard, [event.id], now=store.now))
    if not crashes:
        # The feeder writes what it has before it reads the shard again.
        assert reader.turn(done=(event.id,)).moved
    reader.attach(reader.claims[0])
    done = reader.done
    new_ = store.do(feed.commit(reader.lease, reader.shard, [event.id], now=store.now))
    reader.attach(reader.claims[0])

    assert (True, frozenset(), True, {event.id}) == (old, done, new_, reader.done)


def test_another_feeder_of_a_shard_keeps_what_is_done(store: Harness):
    """Keep the ended deliveries of a shard whose feeder an operator has cancelled."""
    publish(store, 1, 2)
    reader = Reader(store, Order.NONE)
    _, second = reader.read()
    store.do(feed.commit(reader.lease, reader.shard, [second.id], now=store.now))
    store.do(admin.cancel(reader.claims[0].id, now=store.now))
    again = Reader(store, Order.NONE)

    assert again.shard.job_id != reader.shard.job_id
    assert (frozenset({second.id}), reader.shard.epoch) == (again.done, again.shard.epoch)


def test_lines_are_free_when_their_jobs_have_ended(store: Harness):
    """Answer which held lines have no job left that holds them."""
    publish(store, 1, key="a")
    reader = Reader(store, Order.KEY)
    (first,) = reader.read()
    reader.turn(first.id, diverted=(reader.job(first, failed()),))
    reader.attach(reader.claims[0])
    held = reader.held
    store.do(subscriptions.skip("pay", "log", now=store.now))

    assert (("key:a",), ("key:a",)) == (held, store.do(feed.free(reader.record, ["key:a"])))


@pytest.mark.parametrize(("dead", "free"), [(Dead.CONTINUE, ("key:a",)), (Dead.HOLD, ())])
def test_a_dead_event_holds_its_key_if_the_subscription_says_so(store: Harness, dead: Dead, free: tuple[str, ...]):
    """Let the events behind a dead one pass, or hold them until it is skipped."""
    publish(store, 1, key="a")
    reader = Reader(store, Order.KEY, dead=dead)
    (first,) = reader.read()
    fatal = failed("no", permanent="no", reason="GAVE_UP")
    reader.turn(first.id, diverted=(reader.job(first, fatal),))

    assert free == store.do(feed.free(reader.record, ["key:a"]))
    if dead is Dead.HOLD:
        assert 1 == reader.status.lag.dead
        assert State.DEAD is store.do(subscriptions.skip("pay", "log", first.id, now=store.now)).state
        assert ("key:a",) == store.do(feed.free(reader.record, ["key:a"]))


@pytest.mark.parametrize("by_job", [True, False])
def test_an_event_that_a_rule_has_passed_is_a_problem_until_an_operator_decides(store: Harness, *, by_job: bool):
    """It counts as dead although it holds no others; one that an operator has skipped does not."""
    publish(store, 1, key="a")
    reader = Reader(store, Order.KEY, dead=Dead.CONTINUE)
    (first,) = reader.read()
    fatal = failed("no", permanent="no", reason="GAVE_UP")
    reader.turn(first.id, diverted=(reader.job(first, None if by_job else fatal),))
    if by_job:
        (claim,) = store.claimed(1, tasks=["pay.log"]).claims
        store.end(claim, fatal)
    (dead,) = reader.status.dead
    job = store.do(jobs.get(dead.id))
    before = (reader.status.lag.dead, [each.id for each in store.do(admin.select(_DEAD, now=store.now))])
    skipped = [store.do(admin.skip(job.id, now=store.now)) for _ in range(2)]
    after = (reader.status.lag.dead, [each.id for each in store.do(admin.select(_DEAD, now=store.now))])

    assert ((job.finished_at, False), (1, [job.id])) == ((job.skipped_at, job.is_skipped), before)
    assert ([True, False], (0, [])) == (skipped, after)
    assert [job.id] == [each.id for each in store.do(admin.select(Filter(skipped=True), now=store.now))]


_DEAD = Filter(state=State.DEAD, caught=False, skipped=False)


def test_a_skipped_event_is_dead_with_its_last_error(store: Harness):
    """End a delivery as dead, keep its error, and refuse to skip where none holds others."""
    publish(store, 1)
    reader = Reader(store)
    (first,) = reader.read()
    reader.turn(first.id, diverted=(reader.job(first, failed()),))
    held = store.do(subscriptions.skip("pay", "log", actor="ada", now=store.now))
    job = store.do(jobs.get(held.id))

    assert (State.DEAD, "boom", "skipped by ada", True) == (job.state, job.error, job.note, job.is_skipped)
    assert 0 == reader.status.lag.dead
    with pytest.raises(IllegalMove, match=r"no event holds pay\.log"):
        store.do(subscriptions.skip("pay", "log", now=store.now))


def test_a_running_delivery_can_be_skipped(store: Harness):
    """End the attempt that runs when its event is skipped; its worker loses the lease."""
    publish(store, 1)
    reader = Reader(store)
    (first,) = reader.read()
    reader.turn(first.id, diverted=(reader.job(first),))
    (claim,) = store.claimed(1, tasks=["pay.log"]).claims
    store.do(subscriptions.skip("pay", "log", now=store.now))

    assert State.DEAD is store.do(jobs.get(claim.id)).state
    assert ["cancelled"] == [each.outcome for each in store.do(jobs.history(claim.id))]


def test_several_held_keys_are_skipped_by_event(store: Harness):
    """Refuse to skip without an id if several events hold others."""
    publish(store, 1, key="a")
    publish(store, 2, key="b")
    reader = Reader(store, Order.KEY)
    first, second = reader.read()
    reader.turn(second.id, diverted=(reader.job(first, failed()), reader.job(second, failed())))

    with pytest.raises(IllegalMove, match=f"give one of {first.id}, {second.id}"):
        store.do(subscriptions.skip("pay", "log", now=store.now))
    with pytest.raises(IllegalMove, match=f"event 99 does not hold pay.log; these do: {first.id}, {second.id}"):
        store.do(subscriptions.skip("pay", "log", 99, now=store.now))
    assert second.id == store.do(subscriptions.skip("pay", "log", second.id, now=store.now)).event_id


@pytest.mark.parametrize(
    ("to", "expected"),
    [("beginning", [b"1", b"2", b"3"]), ("end", []), (2, [b"2", b"3"]), ("instant", [b"3"]), ("future", [])],
)
def test_a_cursor_is_moved(store: Harness, to: str | int, expected: list[bytes]):
    """Deliver from the beginning, from the end, from an instant or from an event on."""
    publish(store, 1, 2)
    store.wait(60)
    publish(store, 3)
    reader = Reader(store)
    found = reader.read()
    position = {"instant": store.now, "future": store.now + timedelta(days=1), 2: found[1].id}.get(to, to)
    store.do(subscriptions.move("pay", "log", position, now=store.now))
    moved = reader.turn(found[-1].id, effects=(Publish(NewTopicEvent("other", b"1", "P")),))
    reader.attach(reader.claims[0])
    shard, after = reader.shard, reader.shard.at_id
    again = reader.turn(reading=Reading(after=after)).events if shard.until or to != "end" else reader.read()

    assert (True, expected) == (moved.moved, payloads(again))
    assert "other" in [each.topic for each in store.do(retention.topics())]


def test_a_move_is_previewed_between_two_windows(store: Harness):
    """Subscriptions that have read everything have no window, and what a move would repeat is counted all the same."""
    publish(store, 1, 2)
    reader = Reader(store, Order.NONE)
    reader.turn(reader.read()[-1].id, closes=True)
    found = [store.do(subscriptions.preview("pay", "log", to)) for to in ("beginning", "end")]

    assert None is reader.shard.until
    assert [(0, 2), (0, 0)] == [(each.skipped, each.repeated) for each in found]


def test_a_move_is_previewed(store: Harness):
    """Previews count the events that a move would skip, deliver again and cancel, and change nothing."""
    publish(store, 1, 2, 3, 4)
    reader = Reader(store, Order.NONE)
    events = reader.read()
    reader.turn(events[1].id, diverted=(reader.job(events[0], failed()),))
    ids = [each.id for each in events]
    before = reader.status
    positions = ("beginning", ids[1], ids[2], ids[3], "end", ids[3] + 1, store.now - timedelta(days=1))
    found = [store.do(subscriptions.preview("pay", "log", to)) for to in positions]

    assert [(0, 2), (0, 1), (0, 0), (1, 0), (2, 0), (2, 0), (0, 2)] == [(each.skipped, each.repeated) for each in found]
    assert {1} == {each.cancelled for each in found}
    assert before == reader.status
    with pytest.raises(SubscriptionNotFound, match="the topic 'pay' has no subscription 'none'"):
        store.do(subscriptions.preview("pay", "none", "end"))


def test_a_move_cancels_pending_deliveries(store: Harness):
    """Cancel failed events that wait for a retry, since the cursor decides what is delivered; dead ones stay."""
    publish(store, 1, 2)
    reader = Reader(store, Order.NONE, dead=Dead.HOLD)
    first, second = reader.read()
    fatal = failed("no", permanent="no", reason="GAVE_UP")
    reader.turn(second.id, diverted=(reader.job(first, failed()), reader.job(second, fatal)))
    ended = store.do(subscriptions.move("pay", "log", "end", now=store.now))
    states = [job.state for job in store.do(admin.select(Filter(task="pay.log")))]

    assert (1, {State.CANCELLED, State.DEAD}) == (ended, set(states))


def test_a_pause_is_taken_back(store: Harness):
    """Pause and resume a subscription; doing either twice changes nothing."""
    Reader(store)
    paused = [store.do(subscriptions.pause("pay", "log", now=store.now)).paused_at for _ in range(2)]
    resumed = [store.do(subscriptions.resume("pay", "log", now=store.now)).paused_at for _ in range(2)]

    assert ([store.now] * 2, [None] * 2) == (paused, resumed)


def test_unknown_subscriptions_are_refused(store: Harness):
    """Name the topic and the subscription that no worker has declared."""
    for operation in (subscriptions.pause, subscriptions.resume, subscriptions.skip, subscriptions.forget):
        with pytest.raises(SubscriptionNotFound, match="the topic 'pay' has no subscription 'log'"):
            store.do(operation("pay", "log", now=store.now))
    assert () == store.do(lag.status("pay", "log", now=store.now))


def test_a_declared_subscription_keeps_its_cursor(store: Harness):
    """Keep the cursor of a subscription that is declared again, and give it a new feeder if the old one has ended."""
    publish(store, 1)
    reader = Reader(store)
    (first,) = reader.read()
    reader.turn(first.id, closes=True)
    store.do(admin.cancel(reader.lease.job_id, now=store.now))
    (again,) = store.do(subscriptions.declare([reader.definition], now=store.now))
    (claim,) = store.claimed(10, tasks=["pay.log.feeder"]).claims
    reader.attach(claim)

    assert ("log", (), True) == (again.name, reader.read(), claim.id != reader.claims[0].id)


def test_a_declaration_that_changes_nothing_only_reads(store: Harness):
    """Return the subscription as it is stored; one that differs is written."""
    reader = Reader(store)
    before = store.do(subscriptions.declare([reader.definition], now=store.now))
    store.wait(60)
    again = store.do(subscriptions.declare([reader.definition], now=store.now))
    (other,) = store.do(
        subscriptions.declare([msgspec.structs.replace(reader.definition, types=("Paid",))], now=store.now)
    )

    assert (before, ("Paid",)) == (again, other.types)


@pytest.mark.parametrize(("start", "expected"), [("beginning", 2), ("latest", 1), ("instant", 1)])
def test_a_new_subscription_begins_where_the_code_says(store: Harness, start: str, expected: int):
    """Begin at the oldest event, after the latest one, or at an instant."""
    publish(store, 1)
    store.wait(60)
    reader = Reader(store, start=store.now if start == "instant" else start)
    publish(store, 2)
    found = reader.read()
    if not found or reader.shard.until is None:
        found += reader.read()
    if len(found) < expected or found[-1].payload != b"2":
        found += reader.turn(reader.shard.at_id, closes=True, reading=Reading()).events

    assert ([b"1"] * (expected - 1)) + [b"2"] == payloads(found)


def test_a_reshard_begins_where_all_shards_have_ended(store: Harness):
    """Replace the shards when each has reached one common mark, and refuse a move before."""
    publish(store, 1, 2, 3)
    reader = Reader(store, Order.KEY, shards=1)
    found = reader.read()
    store.do(subscriptions.reshard("pay", "log", 2, now=store.now))
    publish(store, 4)
    early = store.do(subscriptions.end_reshard("pay", "log", POLICY, now=store.now))
    with pytest.raises(IllegalMove, match="is getting 2 shards"):
        store.do(subscriptions.move("pay", "log", "end", now=store.now))
    with pytest.raises(IllegalMove, match="is getting 2 shards already"):
        store.do(subscriptions.reshard("pay", "log", 3, now=store.now))
    last = reader.turn(found[-1].id, closes=True, reading=Reading())
    ended = store.do(subscriptions.end_reshard("pay", "log", POLICY, now=store.now))
    again = store.do(subscriptions.end_reshard("pay", "log", POLICY, now=store.now))
    read = []
    for claim in store.claimed(10, tasks=["pay.log.feeder"]).claims:
        reader.attach(claim)
        read += [each for each in payloads(reader.read()) if each is not None]

    assert (False, True, (), True, False) == (early, last.shard.ended, last.events, ended, again)
    assert [b"4"] == read
    assert None is store.do(feed.attach(Lease(reader.claims[0].id, reader.claims[0].lease_id, 1)))


def test_a_strict_subscription_has_one_shard(store: Harness):
    """Refuse several shards for strict order, and answer the present number without a change."""
    Reader(store)

    with pytest.raises(IllegalMove, match="strict order"):
        store.do(subscriptions.reshard("pay", "log", 2, now=store.now))
    store.do(subscriptions.forget("pay", "log", now=store.now))
    Reader(store, Order.NONE)
    assert None is store.do(subscriptions.reshard("pay", "log", 1, now=store.now)).reshard


def test_old_events_are_deleted_when_all_have_read_them(store: Harness):
    """Delete events by age and by size, never those that a cursor has not passed."""
    publish(store, 1, 2, 3)
    reader = Reader(store)
    found = reader.read()
    store.wait(100)
    kept = store.do(retention.prune("pay", keep_for=timedelta(seconds=50), now=store.now))
    late = retention.holders(store.do(lag.status("pay", now=store.now)))
    reader.turn(found[-1].id, closes=True, reading=Reading())
    sized = store.do(retention.prune("pay", keep_bytes=1, now=store.now))
    aged = store.do(retention.prune("pay", keep_for=timedelta(seconds=50), now=store.now))
    none = store.do(retention.prune("pay", keep_for=timedelta(seconds=50), now=store.now))

    assert (0, True, ("log (behind)",)) == (kept.deleted, kept.held, late)
    assert (2, 1, 0, False) == (sized.deleted, aged.deleted, none.deleted, none.held)


def test_a_forced_deletion_counts_what_was_not_read(store: Harness):
    """Delete unread events by force, and store by how many events each subscription is behind."""
    publish(store, 1, 2, 3)
    reader = Reader(store)
    first, *_ = reader.read()
    reader.turn(first.id)
    store.wait(100)
    done = store.do(retention.prune("pay", keep_for=timedelta(seconds=50), force=True, now=store.now))

    assert (3, (("log", 2),), 2) == (done.deleted, done.behind, reader.status.subscription.behind)
    store.do(subscriptions.move("pay", "log", "end", now=store.now))
    assert 0 == reader.status.subscription.behind


def test_a_database_in_a_file_needs_no_rebase(store: Harness):
    """Repair nothing where cursors are ids, and keep what is right on a server."""
    publish(store, 1, 2)
    reader = Reader(store)
    first, _ = reader.read()
    reader.turn(first.id)
    found = store.do(cluster.rebase(now=store.now))
    reader.attach(reader.claims[0])
    rest = payloads(reader.turn(reading=Reading(after=reader.shard.at_id)).events)

    # An event has the number of the transaction that wrote its row unless it was restored.
    assert ([], [b"2"]) == (list(found), rest) or ([1], [b"1", b"2"]) == ([len(found)], rest)


@writes
def elsewhere() -> Statements[None]:
    """Store the identity of another server."""
    yield Query("meta_put", many=[{"key": cluster.KEY, "value": "another server"}])


def test_a_moved_feeder_writes_nothing(store: Harness):
    """Write nothing under the epoch before a move."""
    publish(store, 1)
    reader = Reader(store)
    (first,) = reader.read()
    store.do(subscriptions.move("pay", "log", "end", now=store.now))

    assert (True, 1) == (reader.turn(first.id).moved, reader.shard.epoch)


def test_a_database_without_subscriptions_takes_the_identity_of_its_server(store: Harness):
    """Store the identity of another server while no cursor depends on it, and rebase all shards of a topic."""
    publish(store, 1)
    store.do(elsewhere())
    reader = Reader(store, Order.NONE, shards=2)
    rebased = store.do(cluster.rebase(now=store.now))

    assert len(rebased) in {0, 2}
    assert "log" == reader.status.subscription.name


def test_a_restored_database_is_refused_until_it_is_rebased(store: Harness):
    """Refuse to declare subscriptions under cursors of another server."""
    reader = Reader(store)
    store.do(elsewhere())
    if not store.url.startswith("postgresql:"):
        store.do(subscriptions.declare([reader.definition], now=store.now))
        return
    with pytest.raises(TopicsRestored, match="redrive topics rebase"):
        store.do(subscriptions.declare([reader.definition], now=store.now))
    store.do(cluster.rebase(now=store.now))
    store.do(subscriptions.declare([reader.definition], now=store.now))


def test_a_deleted_subscription_leaves_its_jobs(store: Harness):
    """Delete the cursor and end the feeder; the jobs of failed events stay."""
    publish(store, 1)
    reader = Reader(store)
    (first,) = reader.read()
    reader.turn(first.id, diverted=(reader.job(first, failed()),))
    store.do(subscriptions.forget("pay", "log", now=store.now))

    assert () == store.do(lag.status("pay"))
    assert [State.READY, State.CANCELLED] == [each.state for each in store.do(admin.select(Filter()))]


def test_a_redriven_delivery_runs_again(store: Harness):
    """Start a dead delivery again, as any dead job."""
    publish(store, 1)
    reader = Reader(store)
    (first,) = reader.read()
    fatal = failed("no", permanent="no", reason="GAVE_UP")
    reader.turn(first.id, diverted=(reader.job(first, fatal),))
    done = store.do(redriving.redrive(Filter(task="pay.log", state=State.DEAD), now=store.now))

    assert (1, State.READY) == (len(done.ids), store.do(jobs.get(done.ids[0])).state)


@writes
def spoiled() -> Statements[None]:
    """Give the shard a feeder of another subscription."""
    where = {"topic": "pay", "subscription": "log", "shard": 0}
    yield Query("shard_feeder", many=[{**where, "job_id": 10**9}])


def test_a_check_finds_a_shard_without_its_feeder(store: Harness):
    """Find nothing wrong with a healthy subscription, and the shard without its feeder."""
    publish(store, 1, 2)
    reader = Reader(store)
    first, _ = reader.read()
    reader.turn(first.id, diverted=(reader.job(first, failed()),))
    healthy = store.do(checks.check()).findings
    store.do(spoiled())
    (found,) = store.do(checks.check()).findings

    assert ((), "topics") == (healthy, found.rule)
    assert f"shard 0 of pay.log has job {10**9} as its feeder, which is not there" == found.text


def test_the_sizes_of_pages_decide_what_is_beyond_a_size(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """Keep the newest events of so many bytes, whether the limit lies in a measured page or beyond the last one."""
    monkeypatch.setattr(retention, "PAGE", 3)
    monkeypatch.setattr(retention, "PAGES", 2)
    publish(store, *range(10, 30))

    def kept(size: int) -> int:
        while store.do(retention.prune("pay", keep_bytes=size, now=store.now)).more:
            pass
        return store.do(retention.topics())[0].events

    assert [20, 20, 17, 15, 12, 9, 1] == [kept(2 * each) for each in (100, 20, 17, 15, 12, 9, 1)]
    publish(store, *range(10, 17))
    assert [8, 4] == [kept(each) for each in (16, 8)]


def test_all_dead_deliveries_are_counted(store: Harness):
    """Count dead events also where they hold no others, and list the latest first."""
    publish(store, 1, 2, 3)
    reader = Reader(store, Order.NONE)
    found = reader.read()
    fatal = failed("no", permanent="no", reason="GAVE_UP")
    reader.turn(found[-1].id, diverted=tuple(reader.job(each, fatal) for each in found[:2]))

    assert (0, 2) == (reader.status.lag.failed, reader.status.lag.dead)
    assert [found[1].id, found[0].id] == [each.event_id for each in reader.status.dead]
    assert ["no", "no"] == [each.error for each in reader.status.dead]


@pytest.mark.parametrize(
    ("order", "dead", "late"),
    [(Order.STRICT, Dead.CONTINUE, True), (Order.STRICT, Dead.HOLD, False), (Order.NONE, Dead.CONTINUE, False)],
)
@pytest.mark.parametrize("way", ["redrive", "retry"])
def test_a_delivery_that_starts_after_later_ones_is_marked(
    store: Harness, order: Order, dead: Dead, late: bool, way: str
):
    """Mark a dead delivery that starts again when it has let later events pass, and no other."""
    publish(store, 1, 2)
    reader = Reader(store, order, dead=dead)
    first, _ = reader.read()
    fatal = failed("no", permanent="no", reason="GAVE_UP")
    reader.turn(first.id, diverted=(reader.job(first, fatal),))
    (job,) = reader.status.dead
    for _ in range(2):
        if way == "retry":
            store.do(redriving.retry(job.id, now=store.now))
        else:
            store.do(redriving.redrive(Filter(task="pay.log", state=State.DEAD), now=store.now))
    (started,) = reader.status.deliveries

    assert (late, State.READY) == (started.out_of_order, started.state)
    assert ({job.id: ("out of order",)} if late else {}) == store.do(jobs.tags([job.id]))


@pytest.mark.parametrize(("minute", "expected"), [(0, 20), (7.5, 12), (18.5, 1), (25, 0)])
def test_a_cursor_is_moved_to_an_instant_by_halves(store: Harness, minute: float, expected: int):
    """Begin with the first event from an instant on, also where instants have another order than ids."""
    began = store.now
    for number in range(20):
        # Two publishers that take turns: the instants of the second one are half a minute earlier.
        store.now = began + timedelta(minutes=number, seconds=-30 * (number % 2))
        publish(store, number)
    reader = Reader(store, start=began + timedelta(minutes=minute))

    assert expected == len(reader.read(reader.shard.at_id))


# --------------------------------------------------------------------------------------------- topics for dead events

FATAL = failed("no such account", permanent="no", reason="GAVE_UP")


def letters(store: Harness, topic: str = "failed") -> list[DeadLetter]:
    """Return what was published to a topic for dead events, in order."""
    found = Reader(store, topic=topic).read()
    assert {"DeadLetter"} >= {each.type for each in found}
    assert [each.key for each in found] == [msgspec.json.decode(each.payload, type=DeadLetter).key for each in found]
    return [msgspec.json.decode(each.payload, type=DeadLetter) for each in found]


def dying(store: Harness, order: Order = Order.KEY, *keys: str) -> tuple[Reader, tuple[TopicEvent, ...]]:
    """Return a reader that publishes its dead events, with the events of these keys."""
    for number, key in enumerate(keys or ("a",)):
        publish(store, number, key=key)
    reader = Reader(store, order, dead_topic="failed")
    return reader, reader.read()


def test_a_dead_event_is_published_with_its_error(store: Harness):
    """The topic for dead events gets the event, where it came from, and why it died; the job says so."""
    reader, (event,) = dying(store)
    ((claim, _),) = reader.turn(event.id, diverted=(reader.job(event, FATAL),)).settled
    (letter,) = letters(store)

    assert ("pay", "log", event.id, "a", "P", 1, store.now, 0) == (
        letter.topic, letter.subscription, letter.id, letter.key, letter.type, letter.version, letter.at, letter.event,
    )  # fmt: skip
    assert (claim.id, 1, "GAVE_UP", "builtins.ValueError", "no such account") == (
        letter.job_id, letter.attempts, letter.reason, letter.error_type, letter.error,
    )  # fmt: skip
    assert store.do(jobs.get(claim.id)).note.endswith(", published to the topic failed")
    assert ("key:a",) == store.do(feed.free(reader.record, ["key:a"]))
    assert "topic:failed" == reader.record.after_dead


def test_a_delivery_that_is_retried_or_succeeds_publishes_nothing(store: Harness):
    """Only a death publishes; a cancellation by an operator is none."""
    reader, (first, second) = dying(store, Order.KEY, "a", "b")
    reader.turn(second.id, diverted=(reader.job(first, failed()), reader.job(second, failed())))
    found = store.do(admin.select(Filter(queue="pay.log"), now=store.now))
    deliveries = tuple(each.id for each in found if "#" in (each.origin or ""))
    store.now += timedelta(hours=1)
    (claim, _) = sorted(store.claimed(2, tasks=["pay.log"]).claims, key=lambda each: each.id)
    store.end(claim)
    store.do(admin.cancel_all(Filter(ids=deliveries), now=store.now))

    assert [] == letters(store)


def test_a_dead_event_is_published_once_by_whatever_ends_it(store: Harness):
    """An attempt, a sweep and an operator who skips it publish it in the transaction of its death."""
    reader, events_ = dying(store, Order.KEY, "a", "b", "c")
    reader.turn(events_[-1].id, diverted=tuple(reader.job(each, failed()) for each in events_))
    store.now += timedelta(hours=1)
    claims = sorted(store.claimed(3, tasks=["pay.log"]).claims, key=lambda each: each.id)
    store.settle((claims[0], FATAL))
    store.settle((claims[0], FATAL))
    for crash in range(3):
        store.settle((claims[1], Lost("fell silent")))
        store.settle((claims[1], FATAL))
        store.now += timedelta(hours=1)
        claims[1:2] = store.claimed(1, tasks=["pay.log"]).claims if crash < 2 else claims[1:2]
    store.do(subscriptions.skip("pay", "log", events_[2].id, actor="amy", now=store.now))
    store.settle((claims[2], FATAL))
    found = letters(store)

    assert [("a", "GAVE_UP", 2), ("b", "POISON", 4), ("c", "ERROR", 2)] == [
        (each.key, each.reason, each.attempts) for each in found
    ]
    assert ("no such account", "boom") == (found[0].error, found[2].error)


def test_a_redriven_event_that_dies_again_is_published_again(store: Harness):
    """A redriven delivery is a delivery as before: its next death is a letter of its own."""
    reader, (event,) = dying(store)
    ((claim, _),) = reader.turn(event.id, diverted=(reader.job(event, FATAL),)).settled
    store.do(redriving.redrive(Filter(ids=(claim.id,)), now=store.now))
    (again,) = store.claimed(1, tasks=["pay.log"]).claims
    store.end(again, FATAL)

    assert [claim.id] * 2 == [each.job_id for each in letters(store)]


def test_a_death_that_is_rolled_back_publishes_nothing(store: Harness):
    """A settle that fails leaves neither the death nor the letter."""
    reader, (event,) = dying(store)
    reader.lease = Lease(reader.lease.job_id, reader.lease.lease_id + 1, reader.lease.worker_id)
    with pytest.raises(LeaseLost):
        reader.turn(event.id, diverted=(reader.job(event, FATAL),))

    assert [] == letters(store)


@writes
def encode(job_id: int) -> Statements[None]:
    """Give a delivery a document that no process can decode."""
    yield Query("payload_put", {"job_id": job_id, "payload": ENCODED + b'"secret"}'})


UNPUBLISHED = ", not published to the topic failed: this process cannot decode the event"


def test_a_dead_event_that_cannot_be_decoded_holds_its_line(store: Harness):
    """Without the key it is not published, its note says so, and the events behind it wait; others are as before."""
    reader, (event, _, other) = dying(store, Order.KEY, "a", "a", "b")
    reader.turn(other.id, diverted=(reader.job(event, failed()), reader.job(other, failed())))
    store.now += timedelta(hours=1)
    claims = sorted(store.claimed(2, tasks=["pay.log"]).claims, key=lambda each: each.id)
    store.do(encode(claims[0].id))
    store.settle((claims[0], FATAL), (claims[1], FATAL))
    dead, passed = (store.do(jobs.get(each.id)) for each in claims)

    assert [other.id] == [each.id for each in letters(store)]
    assert (State.DEAD, None) == (dead.state, dead.skipped_at)
    assert dead.note.endswith(UNPUBLISHED)
    assert ("published to the topic failed", passed.finished_at) == (passed.note.partition(", ")[2], passed.skipped_at)
    assert [event.id] == [each.event_id for each in reader.status.deliveries]
    assert () == store.do(feed.free(reader.record, ["key:a"]))


def test_an_event_that_is_skipped_without_the_key_says_that_it_is_not_published(store: Harness):
    """The operator has decided: the events behind it pass."""
    reader, (event,) = dying(store)
    reader.turn(event.id, diverted=(reader.job(event, failed()),))
    (held,) = reader.status.deliveries
    store.do(encode(held.id))
    store.do(subscriptions.skip("pay", "log", actor="amy", now=store.now))
    job = store.do(jobs.get(held.id))

    assert [] == letters(store)
    assert (State.DEAD, f"skipped by amy{UNPUBLISHED}", True) == (job.state, job.note, job.is_skipped)
    assert ("key:a",) == store.do(feed.free(reader.record, ["key:a"]))


def test_letters_of_a_key_are_in_order(store: Harness):
    """The dead events of a key are published in the order in which they died, under their key."""
    reader, events_ = dying(store, Order.KEY, "a", "a", "a")
    reader.turn(events_[-1].id, diverted=tuple(reader.job(each, FATAL) for each in events_))

    assert [0, 1, 2] == [each.event for each in letters(store)]


def test_a_dead_letter_can_die_into_a_further_topic(store: Harness):
    """The letter of a letter has the first one as its event."""
    reader, (event,) = dying(store)
    reader.turn(event.id, diverted=(reader.job(event, FATAL),))
    second = Reader(store, topic="failed", dead_topic="worse")
    (letter,) = second.read()
    second.turn(letter.id, diverted=(second.job(letter, FATAL),))
    (worse,) = letters(store, "worse")

    assert ("failed", "log", letter.id, "DeadLetter") == (worse.topic, worse.subscription, worse.id, worse.type)
    assert ("pay", event.id) == (worse.event["topic"], worse.event["id"])


def test_a_circle_of_dead_events_is_refused_across_deployments(store: Harness):
    """Code that closes a circle with subscriptions of other code cannot be declared, and changes nothing."""
    Reader(store, dead_topic="failed")
    with pytest.raises(TaskDefinitionError, match="in a circle, from the topic 'failed' to 'pay' to 'failed'"):
        Reader(store, topic="failed", dead_topic="pay")
    with pytest.raises(TaskDefinitionError, match="from the topic 'own' to 'own'"):
        Reader(store, topic="own", dead_topic="own")

    assert ["pay.log"] == [each.subscription.task for each in store.do(lag.status(now=store.now))]


def test_a_declaration_changes_where_dead_events_go(store: Harness):
    """The last declaration counts for the next death."""
    reader, (event, other) = dying(store, Order.KEY, "a", "b")
    reader.turn(event.id, diverted=(reader.job(event, FATAL),))
    store.do(subscriptions.declare([msgspec.structs.replace(reader.definition, dead_topic=None)], now=store.now))
    reader.turn(other.id, diverted=(reader.job(other, FATAL),))

    assert ["a"] == [each.key for each in letters(store)]


def test_the_doctor_says_where_dead_events_go(store: Harness):
    """A finding names the topic, and one that nothing reads."""
    reader, (event,) = dying(store)
    reader.turn(event.id, diverted=(reader.job(event, FATAL),))

    def texts() -> list[str]:
        found = store.do(doctor.examine(store.now))
        return [each.text for each in doctor.diagnose(found, (), "1") if each.check == "dead"]

    assert "dead events of pay.log are published to the topic 'failed', which no subscription reads" == texts()[0]
    letters(store)
    (text,) = texts()
    assert text.endswith("; their events were published to the topic 'failed', unless their notes say otherwise")
