"""One subscription: its cursor, its lag, and the events that hold others; the effect of a move; and actions on it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from http import HTTPStatus
from typing import Annotated, Final, Literal

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.lifecycle import State
from redrive.engine.records import Count
from redrive.engine.topics import DeliveryRecord, Position, task_name
from redrive.operate import history
from redrive.operate import topic_words as words
from redrive.operate.charts import plots
from redrive.operate.charts.axes import Axis, took
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import (
    LARGEST_ID,
    Form,
    Id,
    Moved,
    Page,
    Refusal,
    Request,
    Site,
    instant,
    path_to,
    whole_number,
)
from redrive.operate.history import SPANS, BuildStart, Span
from redrive.operate.topics import (
    SHOWN,
    DeliveryLine,
    SubscriptionLine,
    count,
    delivery_line,
    held_by,
    shown_of,
    subscription_line,
)
from redrive.stores.operations import counters, jobs
from redrive.stores.operations.admin import BulkResult
from redrive.stores.operations.topics import lag, subscriptions
from redrive.stores.operations.topics.lag import SubscriptionStatus
from redrive.stores.operations.topics.subscriptions import MovePreview

#: Dead events that one redrive starts again.
MOST: Final = 1000


class MoveQuery(msgspec.Struct, frozen=True, gc=False):
    """The move that is previewed.

    Attributes:
        to: the position: ``beginning``, ``end``, the id of an event, or an instant with an offset.
    """

    to: str


class SubscriptionAction(Form, frozen=True, gc=False):
    """An action on a subscription.

    Attributes:
        paused: the action is refused (409) if the subscription is not paused (``no``), or is (``yes``).
        epoch: it is refused if the subscription has another epoch: each move changes it.
        to: the position of a move: ``beginning``, ``end``, the id of an event, or an instant with an offset.
        event: the event that a skip drops; without it the first one that holds others.
        rate: of a redrive: how many events are due within how long, such as ``100/s``.
        limit: of a redrive: the most events, by default 1,000.
    """

    action: Literal["pause", "resume", "move", "skip", "redrive"]
    paused: Literal["yes", "no"] | None = None
    epoch: str | None = None
    to: str | None = None
    event: Id | None = None
    rate: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


class ShardLine(msgspec.Struct, frozen=True, gc=False):
    """A shard with its cursor.

    Attributes:
        at_id: in a window, the event up to which all are done; None at the end of its window.
        feeder: the job that delivers its events.
        feeder_state: None if the job was deleted.
        waits: why it cannot go on.
    """

    shard: int
    at_id: str | None
    feeder: str
    feeder_state: State | None
    waits: str | None

    @property
    def feeding(self) -> str:
        """What the feeder does."""
        return words.feeder(self.feeder_state)


class MovePage(msgspec.Struct, frozen=True, gc=False):
    """The effect that a move would have.

    Attributes:
        to: the position.
        skipped: unread events that would not be delivered.
        repeated: events that would be delivered again.
        cancelled: failed events with deliveries that would be cancelled.
        epoch: grows with each move.
    """

    topic: str
    name: str
    to: str
    skipped: Count
    repeated: Count
    cancelled: Count
    epoch: int


class LagMoment(msgspec.Struct, frozen=True, gc=False):
    """A part of the time that a chart shows.

    Attributes:
        at: its beginning.
        lag: the largest number of events that were not finished; None if it was not noted.
        oldest_seconds: the longest time since which the first of these was published; None if it was not noted.
    """

    at: datetime
    lag: Count | None
    oldest_seconds: float | None


class PastLags(msgspec.Struct, frozen=True, gc=False):
    """The lag of a subscription over time, which a worker notes once a minute.

    Attributes:
        width_seconds: the width of a part.
        builds: that workers began to run within the span, the first one first.
    """

    span: Span
    width_seconds: float
    moments: tuple[LagMoment, ...]
    builds: tuple[BuildStart, ...]

    def lag(self, zone: tzinfo) -> Picture:
        """Draw the number of events that were not finished."""
        values = [None if each.lag is None else each.lag.value for each in self.moments]
        most = max((each for each in values if each is not None), default=0)
        sentence = f"Events that were not finished, in the last {self.span}: at most {most:,}"
        return plots.area(self._axis(zone), "due", values, sentence)

    def oldest(self, zone: tzinfo) -> Picture:
        """Draw the time since which the first of these was published."""
        values = [each.oldest_seconds for each in self.moments]
        longest = max((each for each in values if each is not None), default=0.0)
        sentence = f"Age of the first event that was not finished, in the last {self.span}: at most {took(longest)}"
        return plots.area(self._axis(zone), "waiting", values, sentence, scale=plots.spans(longest))

    def times(self, zone: tzinfo) -> tuple[str, ...]:
        """Return when each part begins, in words."""
        return self._axis(zone).names

    def _axis(self, zone: tzinfo) -> Axis:
        return history.axis_of([each.at for each in self.moments], self.width_seconds, self.builds, zone)


class SubscriptionPage(msgspec.Struct, frozen=True, gc=False):
    """A subscription.

    Attributes:
        at: when it was read, by the clock of the database.
        past: its lag over time.
        types: of events that it takes; None for all.
        after_dead: the effect of a dead event on those behind it: ``continue`` or ``hold``, or the topic to which it is
            published, such as ``topic:failed``.
        behind: events that were deleted before it had read them.
        dead: the latest dead events, at most 20.
        epoch: grows with each move.
        actions: what may be done with it.
        remedies: the commands that let it go on, if it is paused or held.
    """

    at: datetime
    subscription: SubscriptionLine
    past: PastLags
    types: tuple[str, ...] | None
    after_dead: str
    behind: int
    shards: tuple[ShardLine, ...]
    dead: tuple[DeliveryLine, ...]
    epoch: int
    actions: tuple[str, ...]
    remedies: tuple[str, ...]


def subscription(site: Site, request: Request) -> Procedure[Page]:
    """Show one subscription."""
    topic, name = _place(request)
    span = request.choice("span", Span) or Span.HOUR
    past: counters.PastLags = yield counters.past_lags(task_name(topic, name), *SPANS[span], now=site.app.now())
    status = yield from _status(topic, name, past.now)
    dead = status.dead[:SHOWN]
    failed = (*held_by(status), *dead)
    shown = shown_of(site, failed, (yield jobs.documents({each.id: None for each in failed})))
    known, feeders = status.subscription, {job.id: job.state for job in status.feeders}
    data = SubscriptionPage(
        at=status.at,
        subscription=subscription_line(status, shown),
        past=_past(span, past),
        types=known.types,
        after_dead=known.after_dead,
        behind=known.behind,
        shards=tuple(
            ShardLine(
                each.shard,
                None if each.until is None else str(each.at_id),
                str(each.job_id),
                feeders.get(each.job_id),
                each.stuck_why,
            )
            for each in status.shards
        ),
        dead=tuple(delivery_line(each, shown) for each in dead),
        epoch=_epoch(status),
        actions=_actions(status),
        remedies=words.remedies(status, site.reference),
    )
    return Page(f"({data.subscription.lag} behind) {known.task}", data)


def _past(span: Span, found: counters.PastLags) -> PastLags:
    whole, width = SPANS[span]
    starts = (found.since + width * number for number in range(whole // width))
    builds = tuple(BuildStart(*each) for each in found.builds)
    return PastLags(span, width.total_seconds(), tuple(_moment(each, found) for each in starts), builds)


def _moment(at: datetime, found: counters.PastLags) -> LagMoment:
    if at not in found.lags:
        return LagMoment(at, None, None)
    lag, age = found.lags[at]
    return LagMoment(at, count(lag), 0.0 if age is None else age.total_seconds())


def preview_move(_: Site, request: Request) -> Procedure[Page]:
    """Show the effect of a move before it is made."""
    topic, name = _place(request)
    to = request.text("to") or ""
    found: MovePreview = yield subscriptions.preview(topic, name, _position(to))
    skipped, repeated, cancelled = (count(each) for each in (found.skipped, found.repeated, found.cancelled))
    return Page("Move?", MovePage(topic, name, to, skipped, repeated, cancelled, found.epoch))


def _place(request: Request) -> tuple[str, str]:
    return request.places["topic"], request.places["subscription"]


def _status(topic: str, name: str, now: datetime | None) -> Procedure[SubscriptionStatus]:
    found: tuple[SubscriptionStatus, ...] = yield lag.status(topic, name, now=now)
    if not found:
        raise subscriptions.unknown(topic, name)
    return found[0]


def _epoch(status: SubscriptionStatus) -> int:
    return max((each.epoch for each in status.shards), default=0)


def _position(text: str) -> Position:
    """Return the position that a text names; raise `Refusal`."""
    if text in ("beginning", "end"):
        return text
    found = whole_number(text, least=1, most=LARGEST_ID) or instant(text)
    if found is None:
        detail = f"{text[:60]!r} is no position: write beginning, end, the id of an event, or an instant with an offset"
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{detail}, such as 2026-03-01T06:00+00:00")
    return found


def _actions(status: SubscriptionStatus) -> tuple[str, ...]:
    """Return what may be done with a subscription."""
    pause = "pause" if status.subscription.paused_at is None else "resume"
    skip = ("skip",) if status.held_by else ()
    return (pause, "move", *skip, *(("redrive",) if status.lag.dead else ()))


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Pause, resume or move a subscription, skip an event, or redrive dead ones, if it is as the page showed it."""
    topic, name = _place(request)
    status = yield from _status(topic, name, site.app.now())
    _check_seen(status, request.form)
    action = request.action(_actions(status), status.subscription.task)
    handle, actor, now = site.app.topics.subscription(topic, name), request.actor, site.app.now()
    match action:
        case "pause":
            yield subscriptions.pause(topic, name, actor=actor, now=now)
            did = "paused"
        case "resume":
            yield subscriptions.resume(topic, name, actor=actor, now=now)
            did = "goes on"
        case "move":
            to = request.form.get("to", "").strip()
            ended = yield subscriptions.move(topic, name, _position(to), actor=actor, now=now)
            did = f"moved to {to}; {ended} pending deliveries are cancelled"
        case "skip":
            event = request.member("event", "the id of an event")
            held: DeliveryRecord = yield subscriptions.skip(topic, name, event, actor=actor, now=now)
            did = f"event {held.event_id} is dead, and the events behind it follow"
        case _:
            limit, rate = request.member("limit", "a number of events", least=1) or MOST, request.form.get("rate", "")
            did = _redriven((yield from handle.redriving(limit, rate.strip() or None, actor)), limit)
    return Moved(path_to("topics", topic, name), f"{status.subscription.task}: {did}")


def _check_seen(status: SubscriptionStatus, form: Mapping[str, str]) -> None:
    """Refuse a form of a page that showed another pause or another cursor."""
    now = {"paused": "no" if status.subscription.paused_at is None else "yes", "epoch": str(_epoch(status))}
    if any(name in form and form[name] != value for name, value in now.items()):
        detail = f"{status.subscription.task} was moved, paused or resumed meanwhile: look at it again"
        raise Refusal(HTTPStatus.CONFLICT, detail)


def _redriven(done: BulkResult, limit: int) -> str:
    kept = f"; {len(done.kept)} stay, the first because {done.kept[0][1]}" if done.kept else ""
    more = "; more may be dead: repeat it for the next ones" if len(done.ids) + len(done.kept) >= limit else ""
    return f"{len(done.ids)} dead events redriven{kept}{more}"
