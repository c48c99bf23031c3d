"""One subscription: its cursor, its lag, and the events that hold others; the effect of a move; and actions on it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final, Literal

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.lifecycle import State
from redrive.engine.records import Count
from redrive.engine.topics import DeliveryRecord, Position
from redrive.operate import topic_words as words
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
from redrive.stores.operations import jobs
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


class SubscriptionPage(msgspec.Struct, frozen=True, gc=False):
    """A subscription.

    Attributes:
        at: when it was read, by the clock of the database.
        types: of events that it takes; None for all.
        after_dead: the effect of a dead event on those behind it: ``continue`` or ``hold``.
        behind: events that were deleted before it had read them.
        dead: the latest dead events, at most 20.
        epoch: grows with each move.
        actions: what may be done with it.
        remedies: the commands that let it go on, if it is paused or held.
    """

    at: datetime
    subscription: SubscriptionLine
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
    status = yield from _status(site, topic, name)
    dead = status.dead[:SHOWN]
    failed = (*held_by(status), *dead)
    shown = shown_of(site, failed, (yield jobs.documents({each.id: None for each in failed})))
    known, feeders = status.subscription, {job.id: job.state for job in status.feeders}
    data = SubscriptionPage(
        at=status.at,
        subscription=subscription_line(status, shown),
        types=known.types,
        after_dead=known.dead.value,
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


def preview_move(_: Site, request: Request) -> Procedure[Page]:
    """Show the effect of a move before it is made."""
    topic, name = _place(request)
    to = request.text("to") or ""
    found: MovePreview = yield subscriptions.preview(topic, name, _position(to))
    skipped, repeated, cancelled = (count(each) for each in (found.skipped, found.repeated, found.cancelled))
    return Page("Move?", MovePage(topic, name, to, skipped, repeated, cancelled, found.epoch))


def _place(request: Request) -> tuple[str, str]:
    return request.places["topic"], request.places["subscription"]


def _status(site: Site, topic: str, name: str) -> Procedure[SubscriptionStatus]:
    found: tuple[SubscriptionStatus, ...] = yield lag.status(topic, name, now=site.app.now())
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
    status = yield from _status(site, topic, name)
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
