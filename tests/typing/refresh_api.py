"""Type tests of refreshes: what is tracked has the arguments of the function, checked as a call of it would be.

mypy and pyright read this file; nothing runs it. A line that ends in an ignore must stay a mistake.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_type

import redrive
from redrive.app.recurring.refresh import TrackOptions
from redrive.engine.items import TrackedItem
from redrive.schedule import (
    Action,
    CronExpression,
    FunctionStrategy,
    Gap,
    GiveUpSince,
    RecurrenceRule,
    RefreshPolicy,
    RefreshState,
    Schedule,
    Strategy,
)
from redrive.stores.operations.refresh.items import Counts, MoveResult

app = redrive.App("memory://")

# Lists and tuples, texts and values; the fields keep one type.
rule = RecurrenceRule.parse("FREQ=DAILY")
assert_type(Schedule(rules=[rule, "FREQ=WEEKLY"]).rules, tuple[RecurrenceRule, ...])
assert_type(Schedule(rules=(rule,), gap="skip").gap, Gap)
assert_type(Schedule(crons=["0 3 * * *"], tz="UTC").crons, tuple[CronExpression, ...])
assert_type(
    Schedule(times=[datetime(2026, 1, 1)], except_times=(datetime(2026, 1, 2),)).except_times,  # noqa: DTZ001
    frozenset[datetime],
)
Schedule(rules=rule)  # type: ignore[arg-type]
Schedule(rule=[rule])  # type: ignore[call-arg]
Schedule(crons=[7])  # type: ignore[list-item]

policy = RefreshPolicy(
    schedule="DTSTART:20260101T000000\nRRULE:FREQ=DAILY",
    timeout="1 hour",
    delays=[0, "PT5M", timedelta(minutes=10)],
    strategy="whichever_first",
    on_exhausted="give_up",
    give_up_after="7d",
    give_up_since="last_success",
    on_give_up=[Action("disable")],
)
assert_type(policy.delays, tuple[timedelta, ...])
assert_type(policy.strategy, Strategy | FunctionStrategy)
assert_type(policy.give_up_after, timedelta | None)
assert_type(policy.give_up_since, GiveUpSince)


def by_night(retry_at: datetime, planned_at: datetime, failures: int) -> Strategy:
    """Choose a strategy for a retry."""
    return Strategy.ALIGN if failures > 1 and retry_at.hour < planned_at.hour else Strategy.UNTIL_SUCCESS


Strategy.register("by night", by_night)
RefreshPolicy(strategy=by_night, give_up_after=1, give_up_since=GiveUpSince.LAST_SUCCESS)
RefreshPolicy(strategy=lambda retry_at, planned_at, failures: "whichever_first")
RefreshPolicy(strategy=lambda failures: "whichever_first")  # type: ignore[arg-type,misc]
RefreshPolicy(strategy=7)  # type: ignore[arg-type]
Strategy.register("seconds", lambda retry_at, planned_at, failures: 7)  # type: ignore[arg-type,return-value]
RefreshPolicy(delays=["5m"], schedule=Schedule(rules=[rule]))
RefreshPolicy(delays=5)  # type: ignore[arg-type]
RefreshPolicy(timeout=None)  # type: ignore[arg-type]


@app.task
def tell(news: redrive.Disabled) -> None:
    """Take the news."""
    assert_type(news.key, str)
    assert_type(news.reason, str)
    assert_type(news.error, str | None)


@app.refresh("Refresh every 2 hours", on_disabled=tell)
def table(url: str, *, columns: int = 3) -> int:
    """Keep parameters and result."""
    return len(url) + columns


@app.refresh(redrive.RefreshPolicy.parse("Refresh every hour"), on_disabled="tell", queue="slow", priority=2)
async def model(name: str) -> str | redrive.Pending:
    """Suspend the attempt in a coroutine."""
    return redrive.Pending("1h") if name else name


@app.refresh("Refresh every hour")
def letter(ctx: redrive.Context, name: str) -> int:
    """Take the context in front, which is not tracked."""
    return ctx.attempt + len(name)


assert_type(letter.track("k", "weather"), bool)
assert_type(letter.keeping(at_once=False).track("k", "weather"), bool)
assert_type(letter.enqueue(name="weather"), redrive.Job[int])
letter.track("k", 7)  # type: ignore[arg-type]
letter.enqueue(7)  # type: ignore[call-overload]

app.refresh()  # type: ignore[call-arg]
app.refresh("Refresh every hour", retry="3 1s")  # type: ignore[call-arg]
app.refresh("Refresh every hour", on_disabled=7)  # type: ignore[arg-type]

assert_type(table("https://example.com", columns=2), int)
assert_type(table.enqueue("https://example.com"), redrive.Job[int])
assert_type(model.enqueue("weather").result(), str)

assert_type(table.track("k", "https://example.com", columns=4), bool)
table.track("k")  # type: ignore[call-arg]
table.track("k", 7)  # type: ignore[arg-type]
table.track("k", "https://example.com", rows=4)  # type: ignore[call-arg]
table.track(7, "https://example.com")  # type: ignore[arg-type]
assert_type(table.track_many([("k", "https://example.com")]), frozenset[str])

keeping = table.keeping(policy="Refresh every hour", at_once=False, using=object())
assert_type(keeping.track("k", "https://example.com"), bool)
keeping.track("k", 7)  # type: ignore[arg-type]
table.keeping("Refresh every hour")  # type: ignore[call-arg]
kept: TrackOptions[...] = keeping

assert_type(table.untrack("k", using=object()), bool)
assert_type(table.update("k", at_once=False), MoveResult)
assert_type(table.trigger("k", actor="anna").job_id, int | None)
table.update("k", False)  # type: ignore[call-arg]
assert_type(table.get("k"), TrackedItem)
assert_type(table.get("k").state, RefreshState)
assert_type(table.tracked(after="k", limit=7, troubled=True), tuple[TrackedItem, ...])
assert_type(app.refreshes.counts(), tuple[Counts, ...])


async def coroutines() -> None:
    """Call the asynchronous forms, which have the same result types."""
    assert_type(await model.atrack("k", "weather"), bool)
    await model.atrack("k", 7)  # type: ignore[arg-type]
    assert_type(await model.keeping(at_once=False).atrack_many([("k", "weather")]), frozenset[str])
    assert_type(await model.aupdate("k"), MoveResult)
    assert_type(await model.atracked(), tuple[TrackedItem, ...])
    assert_type(await model("weather"), str)
