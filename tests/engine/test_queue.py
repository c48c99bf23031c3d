"""What is set for a queue, and whom it serves."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from redrive.engine.queue import Due, PartitionUse, QueueChange, QueueSettings, Rate, keys, serve
from redrive.errors import ConfigurationError

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    """Return a span in seconds."""
    return timedelta(seconds=count)


# ---------------------------------------------------------------------------------------------------- rates


@pytest.mark.parametrize(
    ("text", "count", "span"),
    [
        ("5/1.8s", 5, 1.8),
        ("100/1m", 100, 60),
        ("10/s", 10, 1),
        ("3 / 500ms", 3, 0.5),
        ("7/1h30m", 7, 5400),
        ("1/0.25s", 1, 0.25),
    ],
)
def test_a_rate_is_starts_in_a_span(text: str, count: int, span: float):
    """Rates are a whole number, a slash, and a span, which may have decimals in seconds."""
    assert Rate(count, seconds(span)) == Rate.parse(text)


@pytest.mark.parametrize("text", ["5/1.8s", "100/1m", "10/1s", "3/500ms", "7/1h30m", "1/1.25s"])
def test_a_rate_is_written_as_it_is_read(text: str):
    """Parsing a formatted rate returns an equal one."""
    assert text == str(Rate.parse(text))


@pytest.mark.parametrize(
    "text", ["", "5", "5/", "/s", "x/1s", "5/1.8m", "0/1s", "-1/1s", "5/0s", "1.5/s", "5/fortnight"]
)
def test_an_invalid_rate_text_is_refused(text: str):
    """Other texts are refused with a message that shows an example of a rate."""
    with pytest.raises(ConfigurationError, match="is not a rate"):
        Rate.parse(text)


# ---------------------------------------------------------------------------------------------------- changes


def test_an_empty_change_changes_nothing():
    """Settings that are not given stay."""
    settings = QueueSettings("q", NOW, 1, 2, 3, seconds(4), ordered=True, aging_for=seconds(5), turn="t")

    assert settings == QueueChange().applied(settings, NOW)


def test_a_change_sets_what_it_names():
    """Each setting can be changed by itself."""
    change = QueueChange(
        paused=True, concurrency=1, per_partition=2, rate=Rate(3, seconds(4)), ordered=True, aging_for=seconds(5)
    )
    after = change.applied(QueueSettings("q"), NOW)

    assert QueueSettings("q", NOW, 1, 2, 3, seconds(4), ordered=True, aging_for=seconds(5)) == after
    assert (Rate(3, seconds(4)), True) == (after.rate, after.limited)


def test_none_removes_a_limit():
    """Setting a limit to None removes it; a pause can be ended likewise."""
    settings = QueueSettings("q", NOW, 1, 2, 3, seconds(4), aging_for=seconds(5))
    change = QueueChange(paused=False, concurrency=None, per_partition=None, rate=None, aging_for=None)
    after = change.applied(settings, NOW)

    assert QueueSettings("q") == after
    assert (None, False) == (after.rate, after.limited)


@pytest.mark.parametrize(
    "change", [{"concurrency": 0}, {"per_partition": 0}, {"concurrency": -1}, {"aging_for": timedelta(0)}]
)
def test_a_limit_under_which_nothing_runs_is_refused(change):
    """Limits must be positive; pause a queue to stop it."""
    with pytest.raises(ConfigurationError, match="must be positive"):
        QueueChange(**change)


def test_omitted_settings_differ_from_none():
    """Settings that are not given differ from settings that are removed."""
    assert UNSET is QueueChange().concurrency
    assert QueueChange() != QueueChange(concurrency=None)


# ---------------------------------------------------------------------------------------------------- serving


def due(number: int, partition: str | None = None, priority: int = 0, since: float = 0, head: int | None = None) -> Due:
    """Return a job that has been due for this many seconds."""
    return Due(number, partition, priority, NOW - seconds(since), head)


def served(jobs: list[Due], settings: QueueSettings = QueueSettings("q"), **options) -> list[int]:  # noqa: B008 - frozen
    """Return the ids of the served jobs."""
    given = {"room": 99, "used": PartitionUse(), "turn": ""} | options
    return [job.id for job in serve(jobs, settings, NOW, **given)]


def test_without_partitions_the_order_is_priority_due_time_id():
    """Jobs without a partition are served as in every queue."""
    jobs = [due(1, priority=1), due(2), due(3, since=5), due(4, priority=-1), due(5)]

    assert [4, 3, 2, 5, 1] == served(jobs)


def test_partitions_take_turns():
    """Each partition gets one place before one gets a second, those without one being a partition of their own."""
    jobs = [due(1, "a"), due(2, "a"), due(3, "b"), due(4), due(5, "a"), due(6)]

    assert [1, 3, 4, 2, 6, 5] == served(jobs)


@pytest.mark.parametrize(("turn", "order"), [("", [1, 2, 3]), ("a", [2, 3, 1]), ("b", [3, 1, 2]), ("c", [1, 2, 3])])
def test_a_turn_begins_after_the_partition_served_last(turn: str, order: list[int]):
    """Turns begin with the partition that follows the one served last."""
    assert order == served([due(1, "a"), due(2, "b"), due(3, "c")], turn=turn)


def test_a_partition_gets_no_more_than_its_limit_allows():
    """Running attempts count for the limit of a partition; jobs without a partition are not limited by it."""
    jobs = [due(1, "a"), due(2, "a"), due(3, "a"), due(4, "b"), due(5), due(6), due(7)]

    assert [1, 4, 5, 6, 7] == served(jobs, QueueSettings("q", per_partition=2), used=PartitionUse({"a": 1, "b": 0}))
    assert [5, 6, 7] == served(jobs, QueueSettings("q", per_partition=2), used=PartitionUse({"a": 5, "b": 2}))


def test_only_heads_of_an_ordered_queue_are_served():
    """Of each line the first is served and no other; jobs without a partition stand in no line."""
    jobs = [due(2, "a", head=1), due(3, "b", head=3), due(4, "b", head=3), due(5)]

    assert [3, 5] == served(jobs, QueueSettings("q", ordered=True))


def test_aging_raises_the_priority_by_one_for_each_span():
    """Jobs gain one priority for each full span that they have been due."""
    jobs = [
        due(1, priority=0),
        due(2, priority=2, since=119),
        due(3, priority=2, since=120),
        due(4, priority=5, since=600),
    ]

    assert [4, 3, 1, 2] == served(jobs, QueueSettings("q", aging_for=seconds(60)))


@pytest.mark.parametrize(
    ("held", "begun", "expected"),
    [
        ({}, {}, [1, 4, 2, 5, 6]),
        ({"a": 1}, {}, [4, 1, 5, 6]),
        ({}, {"a": 1}, [4, 1, 5, 6]),
        ({"a": 1}, {"a": 2, "b": 9}, [6]),
        ({"a": 7}, {}, [4, 5, 6]),
    ],
)
def test_partitions_are_served_within_their_limits(held: dict[str, int], begun: dict[str, int], expected: list[int]):
    """The stricter one of the two limits of a partition counts; jobs without a partition have neither."""
    jobs = [due(1, "a"), due(2, "a"), due(3, "a"), due(4, "b"), due(5, "b"), due(6)]
    settings = QueueSettings("q", per_partition=2, partition_rate_count=2, partition_rate_for=seconds(1))

    assert sorted(expected) == sorted(served(jobs, settings, used=PartitionUse(held, begun)))


def test_without_due_jobs_none_is_served():
    """Of no jobs none is served."""
    assert [] == served([])


JOBS = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c"]), st.integers(0, 2), st.integers(0, 300)), max_size=30
).map(lambda rows: [due(number, *row) for number, row in enumerate(rows, 1)])


@given(JOBS, st.integers(1, 12), st.sampled_from(["", "a", "b", "z"]), st.none() | st.integers(1, 3))
def test_serving_is_fair_and_exact(jobs: list[Due], room: int, turn: str, most: int | None):
    """No job is served twice, no limit is exceeded, no usable slot stays free, and turns differ by one at most."""
    settings = QueueSettings("q", per_partition=most)
    chosen = serve(jobs, settings, NOW, room=room, used=PartitionUse(), turn=turn)
    waiting = Counter(job.partition for job in jobs)
    got = Counter(job.partition for job in chosen)
    able = {name: min(size, most or size) if name else size for name, size in waiting.items()}

    assert len(set(chosen)) == len(chosen) == min(room, sum(able.values()))
    assert all(got[name] <= able[name] for name in waiting)
    hungry = [got[name] for name in waiting if got[name] < able[name]]
    assert not hungry or max(got.values()) - min(hungry) <= 1


@given(JOBS, st.none() | st.integers(1, 100))
def test_keys_of_served_jobs_ascend(jobs: list[Due], aging: int | None):
    """Keys of served jobs ascend strictly, so the queue keeps its order among other queues."""
    settings = QueueSettings("q", aging_for=None if aging is None else seconds(aging))
    made = keys(serve(jobs, settings, NOW, room=99, used=PartitionUse(), turn="b"), settings, NOW)

    assert sorted(set(made)) == made
