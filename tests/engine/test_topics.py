"""Windows of subscriptions: which events may be delivered, in which order, and what a crash repeats."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from redrive.engine.lifecycle import State
from redrive.engine.origin import Kind, Origin, is_feeder, of_feeder, of_topic, read_origin
from redrive.engine.topics import (
    Dead,
    DeliveryRecord,
    Order,
    Shard,
    SubscriptionRecord,
    TopicEvent,
    Window,
    circle,
    delivered_event,
    feeder_name,
    line_of,
    slot_of,
    task_name,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def event(number: int, key: str | None = None, *, wanted: bool = True) -> TopicEvent:
    """Return an event."""
    return TopicEvent(number, key, "Payment", 1, T0, b"{}" if wanted else None)


def shard(**changes: object) -> Shard:
    """Return a shard without an open window."""
    marks = {"seen": "5", "until": None, "final": None, "stuck_id": None, "stuck_why": None}
    position = {"at_id": 0, "done_id": 0, "unfinished": [], "ahead_id": 0}
    return Shard("payments", "processing", 0, 1, 0, 0, **{**marks, **position, **changes})


def ids(events: tuple[TopicEvent, ...]) -> list[int]:
    """Return the ids of events."""
    return [each.id for each in events]


def test_strict_order_delivers_one_event_at_a_time():
    """Strict order delivers the next event when the one before has ended."""
    window = Window(Order.STRICT, at_once=5)
    window.add([event(1), event(2)])
    first = window.next()

    assert ([1], (), 1) == (ids(first), window.next(), window.running)
    window.stopped(first)
    window.finish([1])
    assert ([2], 1) == (ids(window.next()), window.at_id)


def test_a_failed_event_holds_its_subscription():
    """Strict order delivers nothing behind a failed event until its job has ended."""
    window = Window(Order.STRICT)
    window.add([event(1), event(2)])
    first = window.next()
    window.stopped(first, failed=first)
    window.finish([1])

    assert ((), (), 1) == (window.next(), window.behind(), window.at_id)
    window.release(["other", "strict"])
    assert [2] == ids(window.next())


def test_a_held_subscription_delivers_nothing_of_the_next_window():
    """Strict order holds the events that are added while a failed one waits."""
    window = Window(Order.STRICT, held=["strict"])
    window.add([event(7)])

    assert ((), 1, 1) == (window.next(), window.waiting, window.unfinished)


def test_order_by_key_diverts_the_events_behind_a_failed_one():
    """Order by key makes jobs of the events behind a failed one, and delivers those of other keys."""
    window = Window(Order.KEY)
    window.add([event(1, "a"), event(2, "a"), event(3, "b")])
    first, other = window.next(), window.next()
    window.stopped(first, failed=first)
    window.add([event(4, "a")])

    assert ([1], [3], [2, 4]) == (ids(first), ids(other), ids(window.behind()))
    assert () == window.behind()


def test_a_released_key_is_delivered_again():
    """Order by key delivers the events of a key that is no longer held."""
    window = Window(Order.KEY, held=["key:a"])
    window.release(["key:a"])
    window.add([event(1, "a"), event(2, None)])

    assert [[1], [2]] == [ids(window.next()), ids(window.next())]


def test_no_order_holds_no_event():
    """Without an order a failed event holds no other one."""
    window = Window(Order.NONE, at_once=2)
    window.add([event(1, "a"), event(2, "a"), event(3, "a")])
    first, second = window.next(), window.next()
    window.stopped(first, failed=first)

    assert ([1], [2], [3], set()) == (ids(first), ids(second), ids(window.next()), window.held)


def test_a_batch_takes_several_events():
    """Deliver up to as many events as the batch has, in the order of their ids."""
    window = Window(Order.KEY, batch=3)
    window.add([event(1, "a"), event(2, "b"), event(3, "a"), event(4, "b")])

    assert [1, 2, 3] == ids(window.next())


def test_the_events_of_a_failed_batch_are_delivered_alone():
    """Deliver the events of a batch that raised one by one, and then batches again."""
    window = Window(Order.STRICT, batch=3)
    window.add([event(number) for number in range(1, 7)])
    window.retry(window.next())
    alone = []
    for _ in range(3):
        alone.append(ids(found := window.next()))
        window.stopped(found)
        window.finish(ids(found))

    assert ([[1], [2], [3]], [4, 5, 6]) == (alone, ids(window.next()))


def test_events_to_be_delivered_alone_end_a_batch():
    """Deliver no other event together with one that is delivered alone."""
    window = Window(Order.NONE, at_once=3, batch=2)
    window.add([event(1), event(2)])
    first = window.next()
    window.add([event(3)])
    window.retry(first)

    assert [[3], [1], [2]] == [ids(window.next()), ids(window.next()), ids(window.next())]
    assert 0 == window.waiting


def test_unwanted_and_finished_events_are_passed():
    """Pass events that the subscription does not take, and those that are done already."""
    window = Window(Order.STRICT)
    window.add([event(1, wanted=False), event(2), event(3)], done=[2])

    assert (2, [3], 1) == (window.at_id, ids(window.next()), window.unfinished)


def test_the_position_stays_below_an_unfinished_event():
    """Move the position only over events below which all are finished."""
    window = Window(Order.NONE)
    window.add([event(1), event(2), event(3)])
    window.finish([2, 3])

    assert (0, 1, 2) == (window.at_id, window.unfinished, window.ended)
    window.finish([1, 2])
    assert (3, 0, 3) == (window.at_id, window.unfinished, window.ended)


def test_events_behind_an_unfinished_one_are_kept_as_done():
    """Return the last event that is done beyond the position with those before it that are not; begin again there."""
    window = Window(Order.NONE)
    window.add([event(1), event(2), event(3), event(4, wanted=False), event(5), event(6), event(7)], done=[6])
    window.finish([2, 5])
    done_id, unfinished = window.beyond()
    again = Window(Order.NONE, done_id=done_id, unfinished=unfinished)
    unread = again.beyond()
    again.add([event(1), event(2)])
    some = again.beyond()
    # Event 3 was deleted by force.
    again.add([event(4, wanted=False), event(5), event(6), event(7)])

    assert ((6, [1, 3]), (6, [1, 3]), (6, [1, 3])) == ((done_id, unfinished), unread, some)
    assert ((6, [1]), [[1], [7]]) == (again.beyond(), [ids(again.next()), ids(again.next())])
    again.finish([1])
    assert (6, (0, [])) == (again.at_id, again.beyond())


def test_a_shard_opens_and_closes_windows():
    """Open a window up to the edge of the topic, and count it as seen when it is closed."""
    opened = shard().opened("9")

    assert ("9", "5", None) == (opened.until, opened.seen, opened.closed().until)
    assert ("9", False) == (opened.closed().seen, opened.closed().ended)


def test_a_shard_ends_at_its_last_mark():
    """Open the last window up to the mark at which the shard ends."""
    last = shard(final="7").opened("9")

    assert ("7", True, False) == (last.until, last.closed().ended, last.ended)


def test_names_and_lines_of_a_subscription():
    """Name the task, the feeders and the lines after the topic, the subscription and the key."""
    record = SubscriptionRecord("a", "b", Order.KEY, Dead.HOLD, None, 1, T0, None, 0, None)
    delivery = DeliveryRecord(1, of_topic("a", "b", 812), "key:k", State.READY, None, 1, T0, None, None)

    assert ("a.b", "a.b", "a.b.feeder", 812) == (
        record.task,
        task_name("a", "b"),
        feeder_name("a", "b"),
        delivery.event_id,
    )
    assert ["strict", "key:k", "event:1"] == [line_of(each, event(1, "k")) for each in Order]
    assert ("event:1", None) == (line_of(Order.KEY, event(1)), slot_of(None))
    assert 0 <= slot_of("k") == slot_of("k") < 2**31


@pytest.mark.parametrize("text", [None, "cron:a/b@1", "topic:a/b#7", "topic:a"])
def test_other_origins_are_no_feeders(text: str | None):
    """Recognize feeders by their origins."""
    assert (False, True) == (is_feeder(text), is_feeder(of_feeder("a", "b", 0)))


def test_the_origin_of_a_delivery_has_its_event():
    """Read the subscription and the event of a delivery, and none of a feeder."""
    assert ("b", 7) == delivered_event(Origin(Kind.TOPIC, "a", "b#7"))
    assert None is delivered_event(read_origin(of_feeder("a", "b", 0)))


class SubscriptionModel(RuleBasedStateMachine):
    """A subscription with handlers that fail, jobs that end late, and a feeder that crashes at any point."""

    def __init__(self) -> None:
        super().__init__()
        self.order, self.batch = Order.KEY, 1
        self.topic: list[TopicEvent] = []
        self.pruned: set[int] = set()
        self.read_id = 0
        self.written, self.beyond = 0, (0, [])
        self.finished: set[int] = set()
        self.kept: set[int] = set()
        self.jobs: dict[str, list[int]] = {}
        self.delivered: list[int] = []
        self.effects: dict[int, int] = {}
        self.running: list[tuple[TopicEvent, ...]] = []
        self.diverted: list[TopicEvent] = []
        self.crashes = 0
        self.window = Window(self.order)

    @rule(order=st.sampled_from(Order), batch=st.sampled_from([1, 3]))
    @precondition(lambda self: not self.topic)
    def choose(self, order: Order, batch: int) -> None:
        """Choose the order and the size of batches."""
        self.order, self.batch = order, batch
        self.window = Window(order, batch=batch, at_once=3)

    @rule(keys=st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=5), wanted=st.booleans())
    def publish(self, keys: list[str | None], *, wanted: bool) -> None:
        """Publish events, the last of which the subscription may not take."""
        for key in keys:
            self.topic.append(event(len(self.topic) + 1, key, wanted=wanted or key is not keys[-1]))

    @rule(count=st.integers(1, 8))
    def read(self, count: int) -> None:
        """Read the next events that still exist."""
        found = [each for each in self.topic[self.read_id :] if each.id not in self.pruned][:count]
        if found:
            self.read_id = found[-1].id
            self.window.add(found)
            self.behind()

    @rule(data=st.data())
    @precondition(lambda self: self.read_id < len(self.topic))
    def prune(self, data: st.DataObject) -> None:
        """Delete an event that the feeder has not read, as forced retention does."""
        self.pruned.add(data.draw(st.integers(self.read_id + 1, len(self.topic))))

    def behind(self) -> None:
        """Make jobs of the events behind a failed one of their key."""
        found = self.window.behind()
        self.divert(found)

    def divert(self, found: tuple[TopicEvent, ...]) -> None:
        """Have events written as jobs with the position."""
        self.diverted += found
        self.finish(ids(found))

    def finish(self, numbers: list[int]) -> None:
        """Finish events, none of which was written as done before."""
        assert set() == self.kept.intersection(numbers)
        self.finished.update(numbers)
        self.window.finish(numbers)

    @rule()
    def start(self) -> None:
        """Start a delivery."""
        found = self.window.next()
        if found:
            self.running.append(found)

    @rule(data=st.data(), fails=st.booleans())
    @precondition(lambda self: self.running)
    def end(self, data: st.DataObject, *, fails: bool) -> None:
        """End one of the deliveries."""
        found = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if fails and len(found) > 1:
            self.window.retry(found)
            return
        if fails:
            self.window.stopped(found, failed=found)
            self.divert(found)
        else:
            for each in found:
                self.effect(each.id)
            self.window.stopped(found)
            self.finish(ids(found))
        self.behind()

    def effect(self, number: int) -> None:
        """Count the effect of an event."""
        self.delivered.append(number)
        self.effects[number] = self.effects.get(number, 0) + 1

    @rule()
    def flush(self) -> None:
        """Write the position, what is done beyond it, and the jobs in one transaction."""
        self.written, self.beyond = self.window.at_id, self.window.beyond()
        self.kept |= self.finished
        for each in self.diverted:
            self.jobs.setdefault(line_of(self.order, each), []).append(each.id)
        self.diverted.clear()

    @rule(data=st.data())
    @precondition(lambda self: any(self.jobs.values()))
    def job_ends(self, data: st.DataObject) -> None:
        """End the first job of a line."""
        line = data.draw(st.sampled_from(sorted(name for name, waiting in self.jobs.items() if waiting)))
        self.effect(self.jobs[line].pop(0))

    @rule()
    def ask(self) -> None:
        """Release the lines without jobs, of which nothing waits to be written."""
        unwritten = {line_of(self.order, each) for each in self.diverted}
        self.window.release([line for line in self.window.held if not self.jobs.get(line) and line not in unwritten])

    @rule()
    def crash(self) -> None:
        """Begin again at the written position, with the lines that have jobs."""
        self.crashes += 1
        held = [line for line, waiting in self.jobs.items() if waiting and self.order is not Order.NONE]
        done_id, unfinished = self.beyond
        self.window = Window(
            self.order,
            batch=self.batch,
            at_once=3,
            at_id=self.written,
            done_id=done_id,
            unfinished=unfinished,
            held=held,
        )
        self.running.clear()
        self.diverted.clear()
        self.finished.clear()
        self.read_id = self.written

    @invariant()
    def none_is_lost(self) -> None:
        """Each event is delivered, has a job, or is not written as done."""
        waiting = {number for line in self.jobs.values() for number in line}
        done_id, unfinished = self.beyond
        for each in self.topic[: max(self.written, done_id)]:
            is_open = each.id > self.written and each.id in unfinished
            if each.payload is not None and each.id not in self.pruned and not is_open:
                assert each.id in self.effects or each.id in waiting

    @invariant()
    def none_is_done_twice_after_it_was_written(self) -> None:
        """An event that was written as done is neither delivered again nor made a job again."""
        made = [number for line in self.jobs.values() for number in line]
        assert len(set(made)) == len(made)
        assert set() == self.kept.intersection(number for each in self.running for number in ids(each))

    @invariant()
    def order_is_kept(self) -> None:
        """Without a crash the events of a line take effect in order, each once."""
        if self.crashes or self.order is Order.NONE:
            return
        for line in {line_of(self.order, each) for each in self.topic}:
            seen = [number for number in self.delivered if line_of(self.order, self.topic[number - 1]) == line]
            assert sorted(set(seen)) == seen


TestSubscription = SubscriptionModel.TestCase
TestSubscription.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.booleans()), max_size=20), st.sampled_from(Order))
def test_every_event_is_started_once(given_: list[tuple[str | None, bool]], order: Order):
    """Start each wanted event once if none fails."""
    window = Window(order, batch=2)
    window.add([event(number, key, wanted=wanted) for number, (key, wanted) in enumerate(given_, 1)])
    started: list[int] = []
    while found := window.next():
        started += ids(found)
        window.stopped(found)
        window.finish(ids(found))

    assert [number for number, (_, wanted) in enumerate(given_, 1) if wanted] == sorted(started)
    assert len(given_) == window.at_id


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ([], ()),
        ([("a", "b"), ("b", "c"), ("a", "c"), ("d", "b"), ("b", "e"), ("e", "c")], ()),
        ([("a", "a")], ("a", "a")),
        ([("a", "b"), ("b", "c"), ("c", "b")], ("b", "c", "b")),
        ([("z", "a"), ("b", "z"), ("a", "b"), ("a", "c")], ("a", "b", "z", "a")),
    ],
)
def test_a_circle_of_topics_is_found(letters: list[tuple[str, str]], expected: tuple[str, ...]):
    """Dead events that come back to their topic have the way there as a result."""
    assert expected == circle(letters)
