"""What needs a person, one row for each kind: what it is, since when, where to look, and the command that helps.

The findings are those of `redrive.stores.operations.doctor.diagnose`, which has one for each queue, worker or run. A
reader of the overview has to choose among causes: dead jobs of eight queues are one row that leads to their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

import msgspec

from redrive.engine.lifecycle import State
from redrive.engine.records import Count, Diagnosis, Filter, Hold, Severity
from redrive.operate.charts.axes import took
from redrive.operate.errors import GroupLine
from redrive.operate.exchange import path_to
from redrive.operate.filters import write
from redrive.stores.operations import doctor
from redrive.stores.operations.doctor import READ, Vitals
from redrive.stores.operations.queues import Depth, DepthState, counted

# Names that a row lists.
_NAMED: Final = 3

# Jobs that a filter names by their ids.
_MOST: Final = 50

#: The filter of the jobs that died and need a person.
DEAD: Final = write(Filter(state=State.DEAD, caught=False, skipped=False))

# The page with a row for each finding, and its button.
_CHECKS: Final = ("/health", "See checks")


class Need(msgspec.Struct, frozen=True, gc=False):
    """A kind of what needs a person.

    Attributes:
        check: the part, in one word, as `redrive doctor` names it.
        severity: problem or note.
        title: what is true, as a sentence without a full stop.
        text: its scale and its reasons; may be empty.
        since: when it began; None if that is not known.
        newest: when it happened last; None if that is not known.
        path: the page to look at, below the place of the dashboard.
        action: what that page is for, as the label of a button.
        advice: the commands that help, one for each finding.
    """

    check: str
    severity: Severity
    title: str
    text: str
    since: datetime | None
    path: str
    action: str
    advice: tuple[str, ...]
    newest: datetime | None = None


def needs(
    found: Vitals, diagnoses: Sequence[Diagnosis], groups: Sequence[GroupLine], tasks: Collection[str], *, more: bool
) -> tuple[Need, ...]:
    """Return what needs a person, problems first.

    Args:
        found: the state of the database and its workers.
        diagnoses: of this state.
        groups: the error groups with dead jobs, the latest failure first.
        tasks: the names under which the code can run jobs.
        more: True if there are more of them.
    """
    by_kind: dict[str, list[Diagnosis]] = {}
    for each in diagnoses:
        if each.severity is not Severity.OK:
            by_kind.setdefault(each.check, []).append(each)
    unknown = by_kind.pop("tasks", [])
    rows = [need for kind, each in by_kind.items() for need in _KINDS.get(kind, _plain)(found, each)]
    if unknown:
        rows.append(_tasks(found, unknown, min(doctor.lacking(found, tasks))))
    dead = counted(found.depths)[DepthState.DEAD]
    rows = [_with_causes(each, dead, groups, more=more) if each.check == "dead" else each for each in rows]
    return tuple(sorted(rows, key=lambda each: (each.severity is not Severity.PROBLEM, _ORDER.get(each.check, _LAST))))


def _dead(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    queues = found.jobs(DepthState.DEAD)
    number = counted(found.depths)[DepthState.DEAD]
    title = f"{_jobs(number)} died{'' if len(queues) == 1 else f' in {len(queues)} queues'}"
    yield Need(
        "dead", Severity.PROBLEM, title, f"in {_list(queues)}", None, _search(DEAD), "Review jobs", _advice(diagnoses)
    )


def _with_causes(need: Need, dead: Count, groups: Sequence[GroupLine], *, more: bool) -> Need:
    """Return the row of dead jobs with their error groups, if these are known."""
    if not groups:
        return need
    newest, largest = groups[0].last_at, max(groups, key=lambda each: each.dead.value)
    kind = largest.type.rpartition(".")[2] or largest.reason or "errors beyond the limit of groups"
    name = f"{kind} in {largest.task}" if largest.task else kind
    # Muted groups are left out here, and some jobs have no error.
    is_whole = more or sum((each.dead for each in groups), Count(0)).value == dead.value
    if len(groups) == 1 and not more:
        title, text, action = f"{need.title}: {name}", need.text, "Review error"
        path = path_to("errors", largest.id)
    else:
        number = f"{len(groups)}{'+' if more else ''} causes"
        title, text, action, path = need.title, f"{number}, most of them {name}", "Review causes", "/errors?dead=1"
    if not is_whole:
        action, path = need.action, need.path
        title, text = need.title, text if len(groups) > 1 else f"{need.text}, most of them {name}"
    return msgspec.structs.replace(need, title=title, text=text, action=action, path=path, newest=newest)


def _queues(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    """Yield a row for queues without a worker, one for paused queues, and one for those at their rate."""
    unserved, stopped = found.unserved if found.alive else {}, found.stopped
    if unserved:
        advice = tuple(each.advice or "" for each in diagnoses[: len(unserved)])
        title = f"{_subject(unserved)} {'has' if len(unserved) == 1 else 'have'} no live worker"
        path, action = _queue_place(unserved, "unserved")
        waits, since = _waits(unserved, found), _oldest(unserved)
        yield Need("queues", Severity.PROBLEM, title, waits, since, path, action, advice)
    if stopped:
        first = len(unserved)
        advice = tuple(each.advice or "" for each in diagnoses[first : first + len(stopped)])
        title = f"{_subject(stopped)} {'is' if len(stopped) == 1 else 'are'} paused"
        path, action = _queue_place(stopped, "paused")
        since = min(found.paused[each] for each in stopped)
        yield Need("queues", Severity.PROBLEM, title, _waits(stopped, found), since, path, action, advice)
    notes = [each for each in diagnoses if each.severity is Severity.NOTE]
    yield from _plain(found, notes)


def _queue_place(queues: dict[str, Depth], only: str) -> tuple[str, str]:
    """Return the page that lists these queues, and its button."""
    if len(queues) == 1:
        return path_to("queues", next(iter(queues))), "Open queue"
    return f"/queues?only={only}", "See queues"


def _oldest_job(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    known = [each for each in found.depths if each.oldest_at is not None and each.queue not in found.paused]
    first = min(known, key=lambda each: (each.oldest_at or found.now, each.queue))
    title, path = _capitalized(diagnoses[0].text), path_to("queues", first.queue)
    yield Need("oldest", diagnoses[0].severity, title, "", first.oldest_at, path, "Open queue", _advice(diagnoses))


def _leases(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    living = {worker.id for worker in found.alive}
    gone = [number for number in found.busy if number not in living]
    yield _single(found, diagnoses, _search(f"state:running worker:{gone[0]}"), "See jobs")


def _tasks(found: Vitals, diagnoses: Sequence[Diagnosis], task: str) -> Need:
    return _single(found, diagnoses, _search(write(Filter(state=State.READY, task=task))), "See jobs")


def _catches(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    jobs = [each.id for each in found.catches]
    (row,) = _plain(found, diagnoses)
    path, action = _these(jobs)
    yield msgspec.structs.replace(row, path=path, action=action)


def _undos(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    runs = found.in_effect
    if len(runs) == 1:
        yield _single(found, diagnoses, path_to("runs", runs[0].workflow, runs[0].id), "Open run")
        return
    title = f"{len(runs)} runs have ended with steps that were not undone"
    text = _list([f"{each.workflow}/{each.id}" for each in runs])
    path, action = _these([each.job_id for each in runs])
    yield Need("undos", Severity.PROBLEM, title, text, None, path, action, _advice(diagnoses))


def _held(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    number, workflows = Count(len(found.held), len(found.held) >= READ), sorted({each.workflow for each in found.held})
    query = {"hold": "held"} | ({"workflow": workflows[0]} if len(workflows) == 1 else {})
    title = f"{number} {'run is' if number == Count(1) else 'runs are'} held"
    since = min((each.since for each in found.held if each.since is not None), default=None)
    text = f"{_list(workflows)}: {found.held[0].why or 'no reason'}"
    yield Need(
        "held", Severity.PROBLEM, title, text, since, f"/runs?{urlencode(query)}", "See runs", _advice(diagnoses)
    )


def _unreadable(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    """Yield a row for each reason, since a filter has one."""
    is_cut = sum(each.number for each in found.unreadable) >= READ
    advice = dict(zip(doctor.unreadable_in_order(found), diagnoses, strict=True))
    for hold in sorted({each.hold for each in found.unreadable}):
        mine = [each for each in found.unreadable if each.hold is hold]
        number, tasks = Count(sum(each.number for each in mine), is_cut), sorted({each.task for each in mine})
        what = "policy" if hold is Hold.BAD_POLICY else "arguments"
        title = f"{_jobs(number)} {'waits' if number == Count(1) else 'wait'}: no worker can read the {what}"
        where = write(Filter(hold=hold, task=tasks[0] if len(tasks) == 1 else None))
        since = min((each.since for each in mine if each.since is not None), default=None)
        text = f"{'task' if len(tasks) == 1 else 'tasks'} {_list(tasks)}"
        ways = _advice([advice[each] for each in mine])
        yield Need("unreadable", Severity.PROBLEM, title, text, since, _search(where), "See jobs", ways)


def _machines(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    """Yield a row for failed transitions, and one for states that the code does not have."""
    failed = found.failed
    if failed:
        number = sum(each.number for each in failed)
        many = "1 instance has" if number == 1 else f"{number:,} instances have"
        title = f"{many} a transition that failed for good"
        names, path = [each.machine for each in failed], "/machines"
        if len(failed) == 1:
            path = f"{path_to('machines', names[0])}?status=failed"
        advice = _advice(diagnoses[: len(failed)])
        yield Need("machines", Severity.PROBLEM, title, _list(names), None, path, "See machines", advice)
    yield from _plain(found, diagnoses[len(failed) :])


def _operations(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    first = next(each.id for each in found.operations if each.last_error is not None)
    yield _single(found, diagnoses, path_to("operations", str(first)), "Open operation")


def _single(found: Vitals, diagnoses: Sequence[Diagnosis], path: str, action: str) -> Need:
    """Return a row that leads to the one thing that was found; the checks list several."""
    (row,) = _plain(found, diagnoses)
    if len(diagnoses) > 1:
        path, action = _CHECKS
    return msgspec.structs.replace(row, path=path, action=action)


def _search(where: str) -> str:
    return f"/jobs?{urlencode({'q': where})}"


def _these(jobs: Sequence[int]) -> tuple[str, str]:
    """Return the page that lists jobs, and its button; the checks list too many for a filter."""
    if len(jobs) > _MOST:
        return _CHECKS
    return _search(f"id:{','.join(map(str, jobs))}"), "See jobs"


def _workers(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    if found.alive:
        yield from _plain(found, diagnoses)
        return
    due = found.jobs(DepthState.DUE)
    text = _waits(due, found) if due else "jobs wait until one is started"
    yield Need(
        "workers",
        diagnoses[0].severity,
        "No worker is alive",
        text,
        _oldest(due),
        "/workers",
        "See workers",
        _advice(diagnoses),
    )


def _plain(_: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    """Yield one row for all findings of a kind: the first, and how many more there are."""
    if not diagnoses:
        return
    first = diagnoses[0]
    worst = Severity.PROBLEM if any(each.severity is Severity.PROBLEM for each in diagnoses) else Severity.NOTE
    more = len(diagnoses) - 1
    text = "" if not more else "and one more of this kind" if more == 1 else f"and {more} more of this kind"
    path, action = _PLACES.get(first.check, _CHECKS)
    yield Need(first.check, worst, _capitalized(first.text), text, None, path, action, _advice(diagnoses))


def _advice(diagnoses: Sequence[Diagnosis]) -> tuple[str, ...]:
    return tuple(each.advice for each in diagnoses if each.advice)


def _subject(queues: dict[str, Depth]) -> str:
    return f"Queue {next(iter(queues))}" if len(queues) == 1 else f"{len(queues)} queues"


def _waits(queues: dict[str, Depth], found: Vitals) -> str:
    """Return how many jobs wait in queues, and for how long."""
    number = sum((each.count for each in queues.values()), Count(0))
    oldest = _oldest(queues)
    state = "due" if oldest is not None else "waiting"
    text = f"{number} {state}" + ("" if oldest is None else f", the oldest for {_span(found.now - oldest)}")
    return text if len(queues) == 1 else f"{text}: {_list(queues)}"


def _oldest(queues: dict[str, Depth]) -> datetime | None:
    return min((each.oldest_at for each in queues.values() if each.oldest_at is not None), default=None)


def _list(names: Iterable[str]) -> str:
    known = sorted(names)
    more = len(known) - _NAMED
    return ", ".join(known[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _jobs(number: Count) -> str:
    return "1 job" if number == Count(1) else f"{number} jobs"


def _span(span: timedelta) -> str:
    return took(span.total_seconds())


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


_KINDS: Final[dict[str, Callable[[Vitals, Sequence[Diagnosis]], Iterator[Need]]]] = {
    "catches": _catches,
    "dead": _dead,
    "held": _held,
    "leases": _leases,
    "machines": _machines,
    "oldest": _oldest_job,
    "operations": _operations,
    "queues": _queues,
    "undos": _undos,
    "unreadable": _unreadable,
    "workers": _workers,
}

_PLACES: Final = {"workers": ("/workers", "See workers"), "queues": ("/queues", "See queues")}

# Kinds in the order of their rows; others follow.
_ORDER: Final = {
    name: number for number, name in enumerate(("settings", "workers", "dead", "queues", "oldest", "tasks"))
}
_LAST: Final = len(_ORDER)
