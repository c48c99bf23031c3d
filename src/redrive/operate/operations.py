"""Bulk operations: their preview, their start, their progress, and their end."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from redrive.app.operators.bulk import bulk_options
from redrive.app.protocol import Procedure
from redrive.engine.bulk import BulkAction, BulkOperation, BulkOptions, BulkState, scoped
from redrive.engine.lifecycle import State
from redrive.engine.queue import Rate
from redrive.engine.records import NEWEST, Count, Filter
from redrive.operate.exchange import (
    LARGEST_ID,
    LONGEST,
    MOST_ITEMS,
    Form,
    Id,
    Moved,
    Note,
    Page,
    Refusal,
    Request,
    Site,
    read_instant,
    whole_number,
)
from redrive.operate.filters import parse, write
from redrive.stores.operations import bulk, clock
from redrive.stores.operations.bulk import COUNTED, BulkLine, BulkPreview

#: Operations on a page, and batches of one.
SHOWN: Final = 50

#: The name under which a preview reads; it is the most expensive page, so a process makes one at a time.
PREVIEW: Final = "preview"

#: The number of jobs above which it has to be typed, and the part by which it may differ.
MANY: Final = 1000
TOLERANCE: Final = 0.1


class PreviewQuery(msgspec.Struct, frozen=True, gc=False):
    """The operation that is previewed.

    Attributes:
        q: the filter.
        rate: how many jobs are changed within how long, such as ``100/s``.
        queue: of a redrive: the queue to which the jobs go.
        why: of a cancel: the reason, shown on the jobs.
    """

    action: Literal["redrive", "cancel", "repolicy"]
    q: str
    rate: str | None = None
    queue: str | None = None
    why: str | None = None


class NewOperation(PreviewQuery, Form, frozen=True, gc=False):
    """An action on all jobs that match a filter.

    Attributes:
        q: the filter; it has a condition.
        limit: the most jobs that are changed.
        bound_id: that of the preview: jobs above it are not changed.
        frozen_at: the instant of the preview, its member ``at``.
        confirm: the number of jobs, if the preview asks for it; a start with a limit need not be confirmed.
    """

    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    bound_id: Id | None = None
    frozen_at: str | None = None
    confirm: int | None = None


class KeptLine(msgspec.Struct, frozen=True, gc=False):
    """A job that stays as it is, and why."""

    id: str
    why: str


class Begun(Note, frozen=True, gc=False, omit_defaults=True):
    """An operation that was started or stopped.

    Attributes:
        operation: its id; None if none was started.
        changes: of a start, the jobs that it changes, as far as they were counted.
        kept: of a start, the first job that stays for each reason.
    """

    operation: str | None = None
    changes: int = 0
    kept: tuple[KeptLine, ...] = ()


class OperationAction(Form, frozen=True, gc=False):
    """An action on one operation.

    Attributes:
        action: stop ends it, and undo takes it back.
        state: the action is refused (409) if the operation is in another one.
    """

    action: Literal["stop", "undo"]
    state: BulkState | None = None


class BatchesQuery(msgspec.Struct, frozen=True, gc=False):
    """The parameters of an operation.

    Attributes:
        after: where its batches begin: the member of this name of the page before it.
        limit: of the batches, from 1 to 200.
    """

    after: Id | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_ITEMS)] | None = None


class SampleLine(msgspec.Struct, frozen=True, gc=False):
    """A job that would be changed."""

    id: str
    task: str
    queue: str
    state: State
    attempts: int
    reason: str | None


class NamedCount(msgspec.Struct, frozen=True, gc=False):
    """The number of jobs of a task or of a queue."""

    name: str
    jobs: int


class OperationPreview(msgspec.Struct, frozen=True, gc=False):
    """The effect that an operation would have.

    Attributes:
        at: its instant, the parameter ``frozen_at`` of the start.
        q: the filter.
        bound_id: the newest job then; jobs above it are not changed.
        changes: jobs that would be changed.
        kept: jobs that match but would stay.
        confirm: the number that the start has to name; None if it need not.
        takes_seconds: at the rate; None without a rate.
        reasons: the first job that would stay for each reason.
    """

    at: datetime
    action: BulkAction
    q: str
    rate: str | None
    queue: str | None
    why: str | None
    bound_id: str
    changes: Count
    kept: Count
    confirm: int | None
    takes_seconds: float | None
    by_task: tuple[NamedCount, ...]
    by_queue: tuple[NamedCount, ...]
    reasons: tuple[KeptLine, ...]
    sample: tuple[SampleLine, ...]


class OperationLine(msgspec.Struct, frozen=True, gc=False):
    """An operation.

    Attributes:
        q: its filter.
        undoes: the operation that it takes back.
        undone_by: the operation that takes it back.
        matched: jobs that matched at the preview; None if they were too many to be counted.
        done: jobs that were changed.
        kept: jobs that match but stay as they are.
        left_seconds: until it is done, at its rate; None if it is not known.
        last_error: why the last batch failed.
        actions: what may be done with it.
    """

    id: str
    action: BulkAction
    q: str
    undoes: str | None
    undone_by: str | None
    actor: str
    rate: str | None
    queue: str | None
    why: str | None
    state: BulkState
    bound_id: str
    frozen_at: datetime
    matched: int | None
    done: int
    kept: int
    left_seconds: float | None
    ended_at: datetime | None
    last_error: str | None
    actions: tuple[str, ...]


class BatchLine(msgspec.Struct, frozen=True, gc=False):
    """A line of the audit log about an operation; ``ids`` are the jobs that the batch has changed."""

    at: datetime
    actor: str
    action: str
    ids: tuple[str, ...]
    kept: tuple[KeptLine, ...]


class OperationList(msgspec.Struct, frozen=True, gc=False):
    """A page of operations, newest first.

    Attributes:
        before: the parameter ``before`` of the next page; None on the last page.
    """

    items: tuple[OperationLine, ...]
    before: str | None


class OperationPage(msgspec.Struct, frozen=True, gc=False):
    """An operation.

    Attributes:
        at: when it was read, by the clock of the database.
        batches: lines of the audit log, oldest first.
        after: the parameter ``after`` of the next page of batches; None on the last one.
    """

    at: datetime
    operation: OperationLine
    batches: tuple[BatchLine, ...]
    after: str | None


def operation_list(_: Site, request: Request) -> Procedure[Page]:
    """List bulk operations."""
    before = request.number("before", NEWEST, most=NEWEST)
    limit = request.limit(SHOWN)
    found: tuple[BulkOperation, ...] = yield bulk.select(before_id=before, limit=limit + 1)
    items = tuple(_line(each) for each in found[:limit])
    running = sum(each.state is BulkState.RUNNING for each in items)
    title = f"({running} running) Operations" if running else "Operations"
    data = OperationList(items, items[-1].id if len(found) > limit else None)
    return Page(title, data, next={"before": data.before})


def operation(site: Site, request: Request) -> Procedure[Page]:
    """Show one operation and its batches."""
    number, after = request.id, request.number("after", 0, most=LARGEST_ID)
    found: BulkOperation = yield bulk.get(number)
    limit = request.limit(SHOWN)
    lines: tuple[BulkLine, ...] = yield bulk.lines(number, after_id=after, limit=limit + 1)
    at: datetime = yield clock.present(site.app.now())
    batches = tuple(
        BatchLine(each.at, each.actor, each.action, tuple(map(str, each.ids)), _kept(each.kept))
        for each in lines[:limit]
    )
    data = OperationPage(at, _line(found), batches, str(lines[limit - 1].id) if len(lines) > limit else None)
    return Page(f"{found.state}: operation {number}, {found.action}", data, next={"after": data.after})


def _line(each: BulkOperation) -> OperationLine:
    return OperationLine(
        id=str(each.id),
        action=each.action,
        q=write(each.wanted),
        undoes=None if each.undoes is None else str(each.undoes),
        undone_by=None if each.undone_by is None else str(each.undone_by),
        actor=each.actor,
        rate=each.rate,
        queue=each.options.queue,
        why=each.options.why,
        state=each.state,
        bound_id=str(each.bound_id),
        frozen_at=each.frozen_at,
        matched=each.matched,
        done=each.done,
        kept=each.kept,
        left_seconds=None if each.left_for is None else each.left_for.total_seconds(),
        ended_at=each.ended_at,
        last_error=each.last_error,
        actions=_actions(each),
    )


def _kept(kept: tuple[tuple[int, str], ...]) -> tuple[KeptLine, ...]:
    return tuple(KeptLine(str(number), why) for number, why in kept)


def _actions(each: BulkOperation) -> tuple[str, ...]:
    """Return what may be done with an operation."""
    stop = ("stop",) if each.state is BulkState.RUNNING else ()
    return (*stop, "undo") if each.why_not_undone() is None else stop


# ------------------------------------------------------------------------------------------------- preview and start


class _Wish(msgspec.Struct, frozen=True, gc=False):
    """A bulk operation that a user asks for."""

    action: BulkAction
    q: str
    where: Filter
    options: BulkOptions
    rate: Rate | None


def preview(site: Site, request: Request) -> Procedure[Page]:
    """Show what an operation on all jobs that match a filter would do."""
    wish = _wish(site, request, {name: request.text(name) for name in ("action", "q", "rate", "queue", "why")})
    if site.shared.is_reading(PREVIEW):
        detail = "another preview is counting jobs: try again in a moment"
        raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, detail, {"Retry-After": "1"})
    with site.shared.reading(PREVIEW):
        found = yield from _preview(site, wish, None, None)
    spacing = None if wish.rate is None else wish.rate.spacing.total_seconds()
    data = OperationPreview(
        at=found.at,
        action=wish.action,
        q=wish.q,
        rate=None if wish.rate is None else str(wish.rate),
        queue=wish.options.queue,
        why=wish.options.why,
        bound_id=str(found.bound_id),
        changes=Count(found.changes, capped=not found.is_whole),
        kept=Count(found.kept, capped=not found.is_whole),
        confirm=_confirm(found),
        takes_seconds=None if spacing is None else spacing * found.changes,
        by_task=tuple(NamedCount(*each) for each in found.by_task),
        by_queue=tuple(NamedCount(*each) for each in found.by_queue),
        reasons=_kept(found.reasons),
        sample=tuple(
            SampleLine(str(each.id), each.task, each.queue, each.state, each.attempt, each.reason)
            for each in found.sample
        ),
    )
    return Page(f"({data.changes}) {wish.action}?", data)


def _wish(site: Site, request: Request, given: dict[str, str | None]) -> _Wish:
    """Read the parameters of an operation; raise `Refusal` or `ConfigurationError`."""
    q, rate = given["q"] or "", given["rate"]
    limit = request.member("limit", "a number of jobs", least=1) or NEWEST
    where = replace(parse(q, site.payloads, most=LONGEST if request.via else len(q), now=site.app.now()), limit=limit)
    action, options = bulk_options(
        site.app, given["action"] or "", queue=given["queue"], why=given["why"], task=where.task
    )
    return _Wish(action, write(where), where, options, None if rate is None else Rate.parse(rate))


def _preview(site: Site, wish: _Wish, bound_id: int | None, frozen_at: datetime | None) -> Procedure[BulkPreview]:
    wanted = scoped(wish.action, wish.where)
    found: BulkPreview = yield bulk.preview(
        wish.action, wanted, wish.options, bound_id=bound_id, frozen_at=frozen_at, now=site.app.now()
    )
    return found


def _confirm(found: BulkPreview) -> int | None:
    if not found.is_whole:
        return COUNTED
    return found.changes if found.changes > MANY else None


def check_confirmed(found: BulkPreview, request: Request) -> None:
    """Refuse to change many jobs unless the request repeats their number."""
    expected = _confirm(found)
    typed = whole_number(request.form.get("confirm", "").strip().replace(",", ""), most=LARGEST_ID)
    if expected is not None and (typed is None or abs(typed - expected) > expected * TOLERANCE):
        many = f"{expected:,}" if found.is_whole else f"at least {expected:,}"
        raise Refusal(
            HTTPStatus.CONFLICT, f"this changes {many} jobs: look at the preview, and give confirm={expected}"
        )


def start(site: Site, request: Request) -> Procedure[Moved]:
    """Start an operation on all jobs that match a filter; a repeated request starts nothing twice."""
    form = request.form
    given = {name: form.get(name, "").strip() or None for name in ("action", "q", "rate", "queue", "why")}
    wish, bound = _wish(site, request, given), request.member("bound_id", "the id of a job")
    frozen = form.get("frozen_at")
    found = yield from _preview(site, wish, bound, read_instant("frozen_at", frozen) if frozen else None)
    if wish.where.limit == NEWEST:
        check_confirmed(found, request)
    changes = bool(found.changes) or not found.is_whole
    if not changes and request.via:
        raise Refusal(HTTPStatus.CONFLICT, f"no job can be changed: {found.kept} match, and stay as they are")
    kept = _kept(found.reasons)
    if not changes or request.dry_run:
        note = f"{found.changes} jobs would be changed, and {found.kept} stay as they are"
        return Moved("/operations", note, data=Begun(note, request.dry_run, None, found.changes, kept))
    begun: BulkOperation = yield bulk.start(found, rate=wish.rate, actor=request.actor, now=site.app.now())
    data = Begun(f"operation {begun.id} is {begun.state}", operation=str(begun.id), changes=found.changes, kept=kept)
    return Moved(f"/operations/{begun.id}", data.note, HTTPStatus.ACCEPTED, data)


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Stop or undo an operation, if it is still in the state that the page showed."""
    number = request.id
    found: BulkOperation = yield bulk.get(number)
    request.demand_state(f"operation {number}", found.state)
    why = found.why_not_undone() if request.form.get("action") == "undo" else None
    if request.action(_actions(found), f"operation {number} is {found.state}", more=why or "") == "stop":
        yield bulk.stop(number, actor=request.actor, now=site.app.now())
        data = Begun(f"operation {number} is stopped", operation=str(number))
    else:
        begun: BulkOperation = yield bulk.undo(number, actor=request.actor, now=site.app.now())
        data = Begun(f"operation {begun.id} undoes operation {number}", operation=str(begun.id))
    return Moved(f"/operations/{data.operation}", data.note, data=data)
