"""Sums of ended attempts, depths of queues by minute, and error groups."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from redrive.engine.counters import (
    BUCKETS,
    EPOCH,
    HOUR,
    KEPT_FOR,
    MINUTE,
    OTHER,
    ROLLED,
    ErrorLine,
    MinuteSums,
    Tally,
    TallyRows,
)
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Outcome, Succeeded
from redrive.engine.records import Filter
from redrive.errors import ConfigurationError
from redrive.stores.operations import admin, audit, counters, queues, retention, workers
from redrive.stores.operations.queues import DepthState
from tests.stores.helpers import FATAL, T0, Harness, failed, new, seconds
from tests.stores.topics import Reader, publish

TEN = timedelta(minutes=10)


def sums(at: datetime, worker: int, succeeded: int, *, queue: str = "default", task: str = "send") -> MinuteSums:
    """Return the sums of a minute."""
    took = [0] * (len(BUCKETS) + 1)
    took[3] = succeeded
    return MinuteSums(at, worker, queue, task, succeeded, 1, 0, 0, 0, 0, took)


def write(store: Harness, *rows: MinuteSums) -> None:
    """Write sums of minutes."""
    store.do(counters.write_counters(TallyRows(rows, (), ())))


def read(store: Harness, span: timedelta = HOUR, width: timedelta = MINUTE, queue: str | None = None) -> list[tuple]:
    """Return the successes and retries of each span."""
    found = store.do(counters.throughput(span, width, queue=queue, now=store.now))
    return [(each.at, each.queue, each.task, each.succeeded, each.retried) for each in found.sums]


def groups(store: Harness, **where: object) -> list[counters.ErrorGroup]:
    """Return error groups."""
    return list(store.do(counters.groups(now=store.now, **where)))


def fail(store: Harness, *outcomes: Outcome, task: str = "send", tally: Tally | None = None) -> Tally:
    """End an attempt of a new job with each outcome, count it, and write what was counted."""
    tally = tally or Tally()
    for outcome in outcomes:
        tally.add([store.end(store.take(new(task, retry="5 1h")), outcome)], store.me)
    store.do(counters.write_counters(tally.rows()))
    return tally


def test_an_empty_store_has_no_sums(store: Harness):
    """Without ended attempts there are no spans, no depths and no groups."""
    store.do(counters.note_depths(now=store.now))
    found = store.do(counters.throughput(HOUR, MINUTE, now=store.now))

    assert ((), {}, (), store.now) == (found.sums, found.took, found.depths, found.now)
    assert T0 - timedelta(minutes=59) == found.since
    assert [] == groups(store)


def test_sums_of_workers_are_added_up(store: Harness):
    """Rows of all workers within a span become one, by queue and task; a repeated write counts nothing twice."""
    write(store, sums(T0, 1, 2), sums(T0, 2, 3), sums(T0, 1, 1, queue="mail"), sums(T0 - HOUR, 1, 9))
    write(store, sums(T0, 1, 4), sums(T0 - MINUTE, 1, 5))
    took = store.do(counters.throughput(HOUR, MINUTE, now=store.now)).took

    assert [
        (T0 - MINUTE, "default", "send", 5, 1),
        (T0, "default", "send", 7, 2),
        (T0, "mail", "send", 1, 1),
    ] == read(store)
    assert [(T0, "mail", "send", 1, 1)] == read(store, queue="mail")
    assert [
        (T0 - HOUR, "default", "send", 14, 2),
        (T0, "default", "send", 7, 2),
        (T0, "mail", "send", 1, 1),
    ] == read(store, HOUR * 8, HOUR)
    assert {("default", "send"): 12, ("mail", "send"): 1} == {names: counts[3] for names, counts in took.items()}


def test_histograms_are_by_task_and_by_span(store: Harness):
    """The times that attempts took are added up by task and by span, and retries by the number of the attempt."""
    write(store, sums(T0, 1, 2), sums(T0, 2, 3, task="mail"), sums(T0 - MINUTE, 1, 5), sums(T0, 1, 7, queue="other"))
    late = sums(T0, 3, 1)
    late.tries = [4, 0, 0, 0, 0, 1]
    write(store, late)
    found = store.do(counters.throughput(HOUR, MINUTE, now=store.now))
    own = store.do(counters.throughput(HOUR, MINUTE, queue="other", now=store.now))

    assert {T0: 13, T0 - MINUTE: 5} == {at: took[3] for at, took in found.took_in.items()}
    assert 8 == found.took["default", "send"][3]
    assert [4, 0, 0, 0, 0, 1] == found.tries
    assert ({T0: 7}, [0] * 6) == ({at: took[3] for at, took in own.took_in.items()}, own.tries)


def test_old_sums_are_rolled_up(store: Harness):
    """After two hours rows of ten minutes become one, after eight days those of an hour; no attempt is lost."""
    write(store, *(sums(T0 + MINUTE * minute, worker, 1) for minute in range(65) for worker in (1, 2)))
    before = sum(row[3] for row in read(store, HOUR * 8, HOUR))
    store.now += HOUR * 3

    after: datetime | None = EPOCH
    spans = []
    while (after := store.do(counters.roll_up(0, after, now=store.now))) is not None:
        spans.append(after)
    assert [T0 + TEN * number for number in range(1, 7)] == spans
    assert before == sum(row[3] for row in read(store, HOUR * 8, HOUR))
    assert 20 == read(store, HOUR * 8, TEN)[0][3]
    assert None is store.do(counters.roll_up(1, EPOCH, now=store.now))

    store.now += timedelta(days=8)
    assert T0 + HOUR == store.do(counters.roll_up(1, EPOCH, now=store.now))
    assert [(T0, "default", "send", 120, 120)] == read(store, timedelta(days=9), HOUR)[:1]


def test_both_sides_of_a_change_are_added_up(store: Harness):
    """Rows of known workers are on their side, others on that of their time, and those in between on none."""
    late = T0 + MINUTE * 30
    write(store, *(sums(at, worker, number) for at, worker, number in [
        (T0, 1, 1), (late, 1, 10), (T0, 2, 100), (late, 2, 1000), (T0, 3, 10_000),
        (T0, ROLLED, 2), (T0 + TEN, ROLLED, 20), (late, ROLLED, 200), (T0 - TEN, 1, 5), (late + TEN, 2, 5),
    ]))  # fmt: skip
    write(store, sums(late, 2, 7, task="print"))
    sides = counters.Sides(T0, late, T0 + TEN, T0 + MINUTE * 20, [1], [2], [3])

    assert [("print", True, 7, 1), ("send", False, 13, 3), ("send", True, 1300, 3)] == sorted(
        (each.task, each.is_after, each.succeeded, each.retried) for each in store.do(counters.compared(sides))
    )


def test_the_lag_of_a_subscription_is_noted_once_a_minute(store: Harness):
    """The worker that notes the depths notes the lags too, also of a subscription without deliveries."""
    reader = Reader(store)
    publish(store, 1, 2)
    store.wait(30)
    store.do(counters.note_depths(now=store.now))
    publish(store, 3)
    store.do(counters.note_depths(now=store.now))
    store.wait(60)
    store.do(counters.note_depths(now=store.now))
    store.do(workers.register("w", concurrency=1, lease_for=seconds(9), build="1.0", now=store.now))
    noted = store.do(counters.past_lags("pay.log", HOUR, MINUTE, now=store.now))
    wide = store.do(counters.past_lags("pay.log", HOUR, TEN, now=store.now))

    assert {T0: (2, seconds(30)), T0 + MINUTE: (3, seconds(90))} == noted.lags
    assert (T0 + MINUTE * 2 - HOUR, (("1.0", store.now),), store.now) == (noted.since, noted.builds, noted.now)
    assert ({T0: (3, seconds(90))}, T0 + TEN - HOUR) == (wide.lags, wide.since)
    assert {} == store.do(counters.past_lags("pay.other", HOUR, MINUTE, now=store.now)).lags
    assert {} == store.do(counters.past_lags("pay.log", HOUR, MINUTE)).lags
    assert reader.status.lag.events == 3


def test_a_subscription_that_has_read_all_has_no_lag(store: Harness):
    """It is noted as zero, which is no gap of the chart."""
    Reader(store)
    store.do(counters.note_depths(now=store.now))

    assert {T0: (0, None)} == store.do(counters.past_lags("pay.log", HOUR, MINUTE, now=store.now)).lags


def test_two_roll_ups_of_a_span_count_nothing_twice(shared: Harness):
    """Workers that roll up the same span at once write the same sums."""
    write(shared, *(sums(T0 + MINUTE * minute, worker, 1) for minute in range(10) for worker in (1, 2)))
    shared.now += HOUR * 3
    shared.at_once([counters.roll_up(0, EPOCH, now=shared.now) for _ in range(2)])

    assert [(T0, "default", "send", 20, 20)] == read(shared, HOUR * 8, TEN)


def test_depths_are_noted_once_a_minute(store: Harness):
    """The first worker of a minute writes the depths of the queues; the time until the next minute is returned."""
    store.enqueue(new(), new(), new(queue="mail", delay=60))
    store.dead()
    store.wait(20)
    first = store.do(counters.note_depths(now=store.now))
    store.enqueue(new())
    second = store.do(counters.note_depths(now=store.now))
    store.wait(60)
    store.do(counters.note_depths(now=store.now))
    found = store.do(counters.throughput(HOUR, MINUTE, now=store.now)).depths

    assert (seconds(40), seconds(40)) == (first.left, second.left)
    assert ({"default": 2}, ()) == (
        {each.queue: each.jobs for each in first.depths if each.standing is DepthState.DUE},
        second.depths,
    )
    assert [
        (T0, "default", 2, seconds(20)),
        (T0, "mail", 0, None),
        (T0 + MINUTE, "default", 3, seconds(80)),
        (T0 + MINUTE, "mail", 1, seconds(20)),
    ] == [(each.at, each.queue, each.due, each.oldest_for) for each in found]
    assert [3, 1] == [each.due for each in store.do(counters.throughput(HOUR * 8, HOUR, now=store.now)).depths]


def test_noted_depths_may_be_capped(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """Noted due jobs say whether there may have been more, and delayed jobs of another task do not hide them."""
    monkeypatch.setattr(queues, "MOST", 3)
    store.enqueue(*[new("a_reminder", delay=60)] * 4, *[new("send")] * 2)
    store.do(counters.note_depths(now=store.now))
    store.wait(60)
    store.do(counters.note_depths(now=store.now))
    past = counters.throughput(HOUR, MINUTE, now=store.now)
    whole = counters.throughput(HOUR, HOUR, now=store.now)

    assert [(2, False), (5, True)] == [(each.due, each.due_capped) for each in store.do(past).depths]
    assert [(5, True)] == [(each.due, each.due_capped) for each in store.do(whole).depths]


def test_old_counts_are_deleted(store: Harness):
    """Old depths become fewer; sums and groups go after ninety days, but for groups with dead jobs."""
    store.put()
    for _ in range(3):
        store.do(counters.note_depths(now=store.now))
        store.wait(60)
    write(store, sums(T0, ROLLED, 1))
    store.claim()
    fail(store, FATAL, failed("boom"))
    store.now += HOUR * 3
    store.do(counters.forget_counters(now=store.now))
    assert [T0] == [each.at for each in store.do(counters.throughput(HOUR * 8, MINUTE, now=store.now)).depths]

    store.now = T0 + KEPT_FOR + MINUTE * 5
    store.do(counters.forget_counters(now=store.now))
    found = store.do(counters.throughput(KEPT_FOR * 2, timedelta(days=1), now=store.now))
    assert ((), ()) == (found.sums, found.depths)
    assert [("no such user", 1, 0)] == [(each.title, each.dead, each.failures) for each in groups(store)]
    store.redrive(Filter(state=State.DEAD))
    store.do(counters.forget_counters(now=store.now))
    assert [] == groups(store)


def test_a_thousand_failures_of_four_kinds_are_four_groups(store: Harness):
    """Groups have the number of their dead jobs and their failures by hour, the latest failure first."""
    kinds = [
        lambda n: failed(f"order {n} has no card", permanent="no"),
        lambda n: failed(f"timed out after {n}.5 s", permanent="no"),
        lambda n: failed(f"order {n} has no card", reason="TIMEOUT", permanent="no"),
        lambda n: failed(f"https://api.example/{n} is away"),
    ]
    tally, claims = Tally(), []
    store.enqueue(*[new()] * 1000)
    claims = store.claim(1000)
    endings = [(claim, kinds[claim.id % 4](claim.id)) for claim in claims]
    tally.add(store.settle(*endings).moved, store.me)
    store.do(counters.write_counters(tally.rows()))
    found = groups(store)

    assert {
        ("order <n> has no card", "ERROR", 250, 250, 250),
        ("timed out after <n> s", "ERROR", 250, 250, 250),
        ("order <n> has no card", "TIMEOUT", 250, 250, 250),
        ("<url> is away", "ERROR", 0, 250, 0),
    } == {(each.title, each.reason, each.dead, each.failures, each.deaths) for each in found}
    assert {each.fingerprint for each in found} == {job.fingerprint for job in store.jobs()}

    first = next(each for each in found if each.title.startswith("timed"))
    dead = Filter(state=State.DEAD, caught=False, group=first.fingerprint, limit=1000)
    wanted = [claim.id for claim in claims if claim.id % 4 == 1]
    assert wanted[::-1] == [job.id for job in store.do(admin.page(dead, budget=10)).jobs]
    assert tuple(wanted) == store.redrive(dead).ids
    assert 0 == groups(store, fingerprint=first.fingerprint)[0].dead


def test_groups_are_paged_and_filtered(store: Harness):
    """Groups are listed by their last failure, of one task or only those with dead jobs."""
    tally = fail(store, failed("one"))
    store.wait(60)
    fail(store, FATAL, task="read", tally=tally)
    store.wait(60)
    fail(store, failed("three"), tally=tally)
    first, second, third = groups(store)

    assert ["three", "no such user", "one"] == [each.title for each in (first, second, third)]
    assert [second, third] == groups(store, before=(first.last_at, first.fingerprint))
    assert [first] == groups(store, limit=1)
    assert [second] == groups(store, task="read") == groups(store, dead=True)
    assert [third] == groups(store, fingerprint=third.fingerprint)
    assert [] == groups(store, fingerprint="1-0")


def test_groups_of_a_span_are_ordered_by_their_failures(store: Harness):
    """A span begins with the hour in which it begins, and only what failed within it is counted."""
    fail(store, FATAL, task="old")
    fail(store, FATAL, task="read")
    store.wait(2 * 3600)
    fail(store, failed("boom"), failed("boom"))
    fail(store, FATAL, task="read")
    found = store.do(counters.failed_within(HOUR, now=store.now))

    def titles(span: timedelta, **where: Any) -> list[tuple[str, str, int, int]]:
        """Return the groups with their failures, and those after which a job gave up."""
        within = store.do(counters.failed_within(span, now=store.now, **where))
        return [(each.group.task, each.group.title, each.failures, each.deaths) for each in within.groups]

    assert T0 + HOUR == found.since
    assert [("send", "boom", 2, 0), ("read", "no such user", 1, 1)] == titles(HOUR)
    assert [("old", 1), ("read", 2), ("send", 2)] == sorted((each[0], each[2]) for each in titles(HOUR * 8))
    assert [("send", "boom", 2, 0)] == titles(HOUR, limit=1)
    assert [("read", "no such user", 1, 1)] == titles(HOUR, dead=True) == titles(HOUR, task="read")
    assert [] == titles(HOUR, task="nothing")


def test_a_group_has_a_name(store: Harness):
    """Names are the class and the title; the failures beyond the limit of groups have neither."""
    lines = [
        ErrorLine("1-1", "send", "ERROR", "builtins.ValueError", "boom", "", T0, T0, 1),
        ErrorLine(OTHER, "", "", "", "", "", T0, T0, 1),
    ]
    store.do(counters.write_counters(TallyRows((), (), tuple(lines))))

    assert ["errors beyond the limit of groups", "ValueError: boom"] == [each.name for each in groups(store)]


def test_the_last_failure_of_all_workers_counts(store: Harness):
    """Workers write what they have seen in any order; the first and the last failure of all stay."""
    slow, late = Tally(), store.end(store.take(new(retry="5 1h")), failed())
    slow.add([late], 99)
    store.wait(60)
    fail(store, failed())
    store.do(counters.write_counters(slow.rows()))
    (found,) = groups(store)

    assert (T0, store.now, 2, 2) == (found.first_at, found.last_at, found.failures, len(store.jobs()))
    assert late.job_id != found.last_job_id


def test_a_job_leaves_its_group_when_it_succeeds(store: Harness):
    """The group of a job is that of its last failure; a job that has succeeded has none."""
    number = store.put(new(retry="5 1s"))
    seen = []
    for message in ("one", "two"):
        moved = store.end(store.claim()[0], failed(message))
        assert moved.seen is not None
        seen.append(moved.seen.fingerprint)
        assert seen[-1] == store.job(number).fingerprint
        store.wait(5)
    store.end(store.claim()[0], Succeeded())

    assert (2, None) == (len({*seen}), store.job(number).fingerprint)


def test_large_groups_are_read_in_parts(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """Groups with more jobs than are read at once are listed and redriven as a whole."""
    monkeypatch.setattr(admin, "FEW", 3)
    made = [store.dead() for _ in range(5)]
    where = Filter(state=State.DEAD, caught=False, group=store.job(made[0]).fingerprint, limit=2)

    page = store.do(admin.page(where, budget=10))
    assert (made[:2:-1], None) == ([job.id for job in page.jobs], page.searched_to)
    other = store.do(admin.page(Filter(**where.conditions, task="read"), budget=10))
    assert ((), made[2]) == (other.jobs, other.searched_to)
    assert made[:2] == [*store.redrive(where).ids]
    assert made[2:4] == [*store.redrive(where).ids]


def test_failed_attempts_of_refreshes_are_in_no_group(store: Harness):
    """Refreshes are retried by their schedule, so that no operator redrives their attempts."""
    from msgspec.structs import replace

    origin = "refresh:table/key"
    number = store.put(replace(new(), origin=origin))
    moved = store.end(store.claim()[0], FATAL)

    assert (origin, True, None) == (store.job(number).origin, moved.seen is not None, store.job(number).fingerprint)


def test_an_emptied_store_has_no_sums(store: Harness):
    """Everything that was counted is deleted with the jobs."""
    fail(store, FATAL)
    store.put()
    store.do(counters.note_depths(now=store.now))
    store.do(retention.empty())
    found = store.do(counters.throughput(HOUR, MINUTE, now=store.now))

    assert ((), (), []) == (found.sums, found.depths, groups(store))


def test_a_group_is_muted_for_a_span(store: Harness):
    """Muted groups are left out where only others are asked for, until the span has passed; the change is audited."""
    fail(store, failed("no bank"))
    (group,) = groups(store)
    muted = store.do(counters.mute(group.fingerprint, span=HOUR, actor="ann", now=store.now))
    (line,) = groups(store)

    assert muted
    assert (store.now, store.now + HOUR, True) == (line.muted_at, line.muted_until, line.is_muted(store.now))
    assert [] == groups(store, unmuted=True)
    fail(store, failed("no bank"))
    assert [] == groups(store, unmuted=True)
    store.wait(3600)
    assert [group.fingerprint] == [each.fingerprint for each in groups(store, unmuted=True)]
    assert not groups(store)[0].is_muted(store.now)
    (entry,) = store.do(audit.audit())
    assert ("ann", "mute", group.fingerprint) == (entry.actor, entry.action, json.loads(entry.details)["group"])


def test_a_group_is_muted_until_it_fails_again(store: Harness):
    """Without a span a group is muted until its next failure, or until that is taken back."""
    tally = fail(store, failed("no bank"))
    (group,) = groups(store)
    store.do(counters.mute(group.fingerprint, now=store.now))

    assert [] == groups(store, unmuted=True)
    assert groups(store)[0].is_muted(store.now)
    store.wait(1)
    fail(store, failed("no bank"), tally=tally)
    assert [False] == [each.is_muted(store.now) for each in groups(store, unmuted=True)]
    store.do(counters.mute(group.fingerprint, now=store.now))
    assert store.do(counters.unmute(group.fingerprint, actor="bob", now=store.now))
    assert (None, False) == (groups(store, unmuted=True)[0].muted_at, groups(store)[0].is_muted(store.now))
    assert ["unmute", "mute", "mute"] == [each.action for each in store.do(audit.audit())]


def test_only_groups_that_exist_are_muted(store: Harness):
    """Muting a group that does not exist, or for no time, changes nothing and writes no entry of the audit log."""
    with pytest.raises(ConfigurationError, match="longer than 0s"):
        store.do(counters.mute("1-0", span=seconds(0), now=store.now))
    assert [False, False] == [store.do(each("1-0", now=store.now)) for each in (counters.mute, counters.unmute)]
    assert () == store.do(audit.audit())
