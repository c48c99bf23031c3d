"""One item of a refresh: its cycle, what happens next if it goes on failing, and actions on it."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Any, Final, Literal
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from redrive.app.protocol import Procedure
from redrive.app.recurring.refreshes import checked_key
from redrive.engine.items import TrackedItem
from redrive.engine.origin import Kind
from redrive.errors import IllegalMove
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import Form, Moved, Page, Request, Site, path_to
from redrive.operate.schedule_view import ScheduleView, demand_triggered, standing, view
from redrive.operate.shown import Shown
from redrive.schedule import RefreshPolicy, RefreshState, refresh
from redrive.schedule.dry_run import AttemptEnd, DryRun, SimulatedAnswer, dry_run
from redrive.schedule.failing import TOO_LONG
from redrive.stores.operations import clock
from redrive.stores.operations.refresh import items

#: Attempts to come that are shown, and those among which its end is searched.
AHEAD: Final = 20
FAR: Final = 200

#: Planned refreshes that are shown.
NEXT: Final = 5


class ItemQuery(msgspec.Struct, frozen=True, gc=False):
    """The parameters of an item.

    Attributes:
        key: of the item.
    """

    key: str


class ItemAction(Form, frozen=True, gc=False):
    """An action on one item.

    Attributes:
        key: of the item.
        action: trigger starts it now; update also enables one that was given up.
        state: the action is refused (409) if the item is in another one.
    """

    key: str
    action: Literal["trigger", "update", "pause", "resume"]
    state: str | None = None


class AttemptAhead(msgspec.Struct, frozen=True, gc=False):
    """An attempt to come, if all before it time out.

    Attributes:
        number: in its cycle, from 1.
        planned: True if it starts at a planned refresh, False for a retry between them.
    """

    number: int
    planned: bool
    starts_at: datetime
    ends_at: datetime


class ItemPage(msgspec.Struct, frozen=True, gc=False):
    """An item of a refresh.

    Attributes:
        at: when it was read, by the clock of the database.
        standing: fresh, running, failing, given up or completed.
        own: True if it has a policy of its own.
        policy: the sentences of its policy.
        attempt: the number of the attempt in the present cycle, from 0.
        failed: the attempts since the last success.
        started_at: the start of the latest attempt.
        failing_since: the start of the first attempt since the last success.
        succeeded_at: the end of the last attempt that succeeded, if the policy counts from it.
        refresh_at: when the next attempt starts.
        deadline_at: when the running attempt counts as failed.
        planned_at: the next planned refresh.
        planned: the next planned refreshes.
        ahead: the attempts to come, if each times out.
        gives_up_at: when it will be given up then; None if it never is, or not within 200 attempts.
        customer: the text for its owner: why it was given up, or would be.
        announced: what is done when it is given up, as the policy names it.
        due_at: when the running attempt was due.
        completed: True if no refresh is planned any more.
        reason: why it was given up, as a text for its owner.
        job: the job of the running attempt.
        payload: the arguments, without secret values; None if they are hidden.
        picture: planned and retried attempts to come, as an SVG element; empty if there are none.
        actions: what may be done with it.
    """

    at: datetime
    refresh: str
    key: str
    standing: str
    paused: bool
    own: bool
    policy: tuple[str, ...]
    tracked_at: datetime
    attempt: int
    failed: int
    started_at: datetime | None
    failing_since: datetime | None
    succeeded_at: datetime | None
    refresh_at: datetime | None
    deadline_at: datetime | None
    planned_at: datetime | None
    planned: tuple[datetime, ...]
    ahead: tuple[AttemptAhead, ...]
    gives_up_at: datetime | None
    customer: str | None
    announced: tuple[str, ...]
    due_at: datetime | None
    completed: bool
    reason: str | None
    job: str | None
    payload: Any
    picture: str
    actions: tuple[str, ...]

    @property
    def drawing(self) -> Picture:
        """The picture, for a template."""
        return Picture(self.picture)


def item(site: Site, request: Request) -> Procedure[Page]:
    """Show one item."""
    name, key = request.places["name"], checked_key(request.query.get("key", ""))
    seen: ScheduleView = yield from view(site.app, name)
    found: TrackedItem = yield items.get(name, key)
    at: datetime = yield clock.present(site.app.now())
    policy = seen.policy(found)
    played = None if policy is None else failing(policy, found.state, at)
    gives_up_at, why = (None, None) if policy is None else end_of(policy, found.state, at)
    planned = () if policy is None or policy.schedule is None else itertools.islice(policy.schedule.since(at), NEXT)
    data = ItemPage(
        at=at,
        refresh=name,
        key=key,
        standing=standing(found),
        paused=found.paused,
        own=found.own is not None,
        policy=() if policy is None else tuple(str(policy).splitlines()),
        tracked_at=found.tracked_at,
        attempt=found.attempt_no,
        failed=found.attempts_since_success,
        started_at=found.started_at,
        failing_since=found.failing_since,
        succeeded_at=found.succeeded_at,
        refresh_at=found.refresh_at,
        deadline_at=found.deadline_at,
        planned_at=found.planned_at,
        planned=tuple(planned),
        ahead=() if played is None else tuple(
            AttemptAhead(each.number, each.is_planned, each.began, each.ended) for each in played.attempts
        ),
        gives_up_at=gives_up_at,
        customer=found.disabled_reason or why,
        announced=() if policy is None else tuple(
            " ".join(filter(None, (each.name, each.to, each.text))) for each in policy.on_give_up
        ),
        due_at=found.due_at,
        completed=found.completed,
        reason=found.disabled_reason,
        job=None if found.job_id is None else str(found.job_id),
        payload=Shown.of(site.payloads, found.payload).payload,
        picture="" if played is None or policy is None else _picture(f"{name}/{key}", policy, played),
        actions=_actions(found),
    )  # fmt: skip
    return Page(f"{data.standing}: {name}/{key}", data)


def failing(policy: RefreshPolicy, state: RefreshState, at: datetime, most: int = AHEAD) -> DryRun:
    """Simulate the attempts to come of an item if each times out, the running one included."""
    if state.attempt_uid is not None and state.deadline_at is not None:
        state = refresh.sweep(policy, state, now=max(at, state.deadline_at)).state
    state = replace(state, paused=False)
    return dry_run(policy, itertools.repeat(SimulatedAnswer(AttemptEnd.TIMEOUT), most), start=at, state=state)


def end_of(policy: RefreshPolicy, state: RefreshState, at: datetime) -> tuple[datetime | None, str | None]:
    """Return when and why an item will be given up if each attempt times out; None twice if it never is."""
    played = failing(policy, state, at, FAR)
    last = played.attempts[-1].ended if played.attempts else state.deadline_at or at
    if state.disabled_until_update or played.state.failing_since is None:
        return None, None
    if played.state.disabled_until_update and played.state.disabled_reason != TOO_LONG:
        return last, played.state.disabled_reason
    # An item that waits is given up by a sweep, and a running attempt is not interrupted.
    end = refresh.limit_at(policy, played.state)
    if end is None:
        return None, None
    return (max(end, last) if played.state.disabled_until_update else end), TOO_LONG


def _picture(title: str, policy: RefreshPolicy, played: DryRun) -> str:
    # Each command loads the table of views, and most need no drawings.
    from redrive.plan import gantt
    from redrive.schedule.english.read import Understood

    if not played.attempts:
        return ""
    return gantt.as_element(
        gantt.Chart(f"{title}, if each attempt times out", Understood(policy, None, is_task=False), played)
    )


def _actions(found: TrackedItem) -> tuple[str, ...]:
    pausing = "resume" if found.paused else "pause"
    return ("update", pausing) if found.disabled_until_update else ("trigger", "update", pausing)


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Trigger, update, pause or resume one item, if its state is that which the page showed."""
    name = request.places["name"]
    # A form names it in its address, where each character can be escaped.
    key = checked_key(request.query.get("key") or request.form.get("key", ""))
    if (yield from view(site.app, name)).kind is Kind.CRON:
        raise IllegalMove(f"the schedule {name!r} is a cron: it has no keys")
    found: TrackedItem = yield items.get(name, key)
    request.demand_state(f"{name}/{key}", standing(found))
    action = request.action(_actions(found), f"{name}/{key} is {standing(found)}")
    on = site.app.refreshes
    carry_out, did = {
        "trigger": (on.triggering, "is started now"),
        "update": (on.updating, "is enabled, and starts now"),
        "pause": (on.pausing, "is paused"),
        "resume": (on.resuming, "is resumed"),
    }[action]
    moved: items.MoveResult = yield carry_out(name, key, request.actor)
    demand_triggered(found, moved)
    return Moved(f"{path_to('schedules', name)}/item?{urlencode({'key': key})}", f"{name}/{key} {did}")
