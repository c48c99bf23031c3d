"""What needs a person, one row for each kind: what it is, since when, where to look, and the command that helps.

The findings are those of `redrive.stores.operations.doctor.diagnose`, which has one for each queue, worker or run. A
reader of the overview has to choose among causes: dead jobs of eight queues are one row that leads to their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

import msgspec

from redrive.engine.records import Count, Diagnosis, Severity
from redrive.operate.charts.axes import took
from redrive.operate.errors import GroupLine
from redrive.operate.exchange import path_to
from redrive.stores.operations.doctor import Vitals
from redrive.stores.operations.queues import Depth, DepthState, counted

# Names that a row lists.
_NAMED: Final = 3


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
    found: Vitals, diagnoses: Sequence[Diagnosis], groups: Sequence[GroupLine], *, more: bool
) -> tuple[Need, ...]:
    """Return what needs a person, problems first.

    Args:
        found: the state of the database and its workers.
        diagnoses: of this state.
        groups: the error groups with dead jobs, the latest failure first.
        more: True if there are more of them.
    """
    by_kind: dict[str, list[Diagnosis]] = {}
    for each in diagnoses:
        if each.severity is not Severity.OK:
            by_kind.setdefault(each.check, []).append(each)
    rows = [need for kind, each in by_kind.items() for need in _KINDS.get(kind, _plain)(found, each)]
    rows = [_with_causes(each, groups, more=more) if each.check == "dead" else each for each in rows]
    return tuple(sorted(rows, key=lambda each: (each.severity is not Severity.PROBLEM, _ORDER.get(each.check, _LAST))))


def _dead(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    queues = found.jobs(DepthState.DEAD)
    number = counted(found.depths)[DepthState.DEAD]
    title = f"{_jobs(number)} died{'' if len(queues) == 1 else f' in {len(queues)} queues'}"
    path = f"/jobs?{urlencode({'q': 'state:dead caught:no'})}"
    skipped = counted(found.depths)[DepthState.SKIPPED]
    # The page of the row lists these too.
    more = f"; {skipped} more {'was' if skipped == Count(1) else 'were'} skipped" if skipped.value else ""
    text = f"in {_list(queues)}{more}"
    yield Need("dead", Severity.PROBLEM, title, text, None, path, "Review jobs", _advice(diagnoses))


def _with_causes(need: Need, groups: Sequence[GroupLine], *, more: bool) -> Need:
    """Return the row of dead jobs with their error groups, if these are known."""
    if not groups:
        return need
    newest, largest = groups[0].last_at, max(groups, key=lambda each: each.dead.value)
    kind = largest.type.rpartition(".")[2] or largest.reason or "errors beyond the limit of groups"
    name = f"{kind} in {largest.task}" if largest.task else kind
    if len(groups) == 1 and not more:
        title, text, action = f"{need.title}: {name}", need.text, "Review error"
        path = path_to("errors", largest.id)
    else:
        number = f"{len(groups)}{'+' if more else ''} causes"
        title, text, action, path = need.title, f"{number}, most of them {name}", "Review causes", "/errors?dead=1"
    return msgspec.structs.replace(need, title=title, text=text, action=action, path=path, newest=newest)


def _queues(found: Vitals, diagnoses: Sequence[Diagnosis]) -> Iterator[Need]:
    """Yield a row for queues without a worker, one for paused queues, and one for those at their rate."""
    unserved, stopped = found.unserved if found.alive else {}, found.stopped
    if unserved:
        advice = tuple(each.advice or "" for each in diagnoses[: len(unserved)])
        title = f"{_subject(unserved)} {'has' if len(unserved) == 1 else 'have'} no live worker"
        yield Need(
            "queues",
            Severity.PROBLEM,
            title,
            _waits(unserved, found),
            _oldest(unserved),
            "/workers",
            "See workers",
            advice,
        )
    if stopped:
        first = len(unserved)
        advice = tuple(each.advice or "" for each in diagnoses[first : first + len(stopped)])
        title = f"{_subject(stopped)} {'is' if len(stopped) == 1 else 'are'} paused"
        name = next(iter(stopped))
        path = path_to("queues", name) if len(stopped) == 1 else "/queues"
        since = min(found.paused[each] for each in stopped)
        action = "Open queue" if len(stopped) == 1 else "See queues"
        yield Need("queues", Severity.PROBLEM, title, _waits(stopped, found), since, path, action, advice)
    notes = [each for each in diagnoses if each.severity is Severity.NOTE]
    yield from _plain(found, notes)


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
    path, action = _PLACES.get(first.check, ("/health", "See checks"))
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


def _list(names: dict[str, Depth]) -> str:
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
    "dead": _dead,
    "queues": _queues,
    "workers": _workers,
}

_PLACES: Final = {
    "workers": ("/workers", "See workers"),
    "leases": ("/workers", "See workers"),
    "queues": ("/queues", "See queues"),
    "oldest": ("/queues", "See queues"),
    "tasks": ("/tasks", "See tasks"),
    "held": (f"/runs?{urlencode({'hold': 'held'})}", "See runs"),
    "unreadable": (f"/jobs?{urlencode({'q': 'hold:bad_payload'})}", "See jobs"),
    "undos": ("/runs", "See runs"),
    "machines": ("/machines", "See machines"),
    "operations": ("/operations", "See operations"),
}

# Kinds in the order of their rows; others follow.
_ORDER: Final = {
    name: number for number, name in enumerate(("settings", "workers", "dead", "queues", "oldest", "tasks"))
}
_LAST: Final = len(_ORDER)
