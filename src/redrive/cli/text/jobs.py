"""Jobs as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from redrive.cli.screen import Grid, say, say_lines, say_unread, utc
from redrive.engine.explain import span
from redrive.engine.lifecycle import State
from redrive.engine.records import Hold
from redrive.operate.audit import AuditList
from redrive.operate.job import AttemptLine, JobPage
from redrive.operate.jobs import JobLine, JobList

# Characters of an error in a list.
ERROR_TEXT = 200

# Ids from which on an entry of the audit log shows them as ranges, and the ranges that it shows.
MANY = 4
RANGES = 20

# Attempts of a job that are shown.
SHOWN = 20


def jobs(view: JobList) -> None:
    """Print a list of jobs."""
    table = Grid("id", "task", "queue", "state", "attempts", "why", wide=("why",))
    for each in view.items:
        table.add(each.id, each.task, each.queue, each.state, str(each.attempts), _why(each))
    table.show()


def rest(view: JobList, word: str | None, *, by_due: bool) -> None:
    """Print to standard error how the list goes on, if it does, and that a value without a name was not found."""
    if word is not None and not view.items:
        say(f"no job has the value {word!r}; a condition is written with its name, such as state:dead", err=True)
    if view.searched_to is not None:
        say_unread(view.searched_to, by_index=view.by_index)
    elif view.before is not None and by_due:
        say("... more follow; --limit shows more", err=True)
    elif view.before is not None:
        say(f"... --before {view.before} shows older jobs, --limit more at once", err=True)


def _why(job: JobLine) -> str:
    """Return why a job is not running, with its last error if that is not part of it."""
    if not job.error or job.error in job.why or job.state is State.DEAD:
        return job.why
    error = job.error if len(job.error) <= ERROR_TEXT else f"{job.error[:ERROR_TEXT]}..."
    return f"{job.why}; last error: {error}"


def job(view: JobPage) -> None:
    """Print one job: why it is not running, its arguments, and its attempts."""
    job = view.job
    say(f"  {job.task} on {job.queue}, priority {view.priority}", head=f"job {job.id}")
    say(job.why if job.why.startswith(job.state) else f"{job.state}: {job.why}")
    remedy(view.remedy, view.hold or job.reason)
    last = next((each for each in reversed(view.attempts) if each.reason), None)
    if last is not None and job.state is not State.SUCCEEDED:
        say(f"last error: {_error(last)}")
    expires = f", expires {utc(view.expires_at)}" if view.expires_at is not None else ""
    due = "" if view.scheduled_at is None else f", due {utc(view.scheduled_at)}"
    say(f"enqueued {utc(job.enqueued_at)}{due}{expires}")
    if view.tags:
        say(f"tags: {', '.join(view.tags)}")
    if view.parent is not None:
        say(f"catches job {view.parent}")
    say(f"policy: {view.policy}")
    say(f"payload: {'-' if view.payload is None else as_json(view.payload)}")
    if job.state is State.SUCCEEDED:
        say(f"result: {as_json(view.result)}")
    if view.token is not None:
        say(f"token: {view.token}")
    if view.progress_at is not None:
        say(f"progress, {span(view.at - view.progress_at)} ago: {as_json(view.progress)}")
    _attempts(view)


# What has to be done before a job is executed again, by the reason of its end.
_BEFORE = {
    "LOST_IN_FLIGHT": ", after you have found that it had no effect",
    "PROGRAMMING_ERROR": ", after the code is corrected",
    "BAD_PAYLOAD": ", after code that reads its arguments is deployed",
    Hold.BAD_PAYLOAD: ", after code that reads its arguments is deployed",
}


def remedy(command: str | None, reason: str | None) -> None:
    """Print the command that clears what keeps a job from running; a job in doubt may have taken effect."""
    if command is not None:
        say(f"to clear it{_BEFORE.get(reason or '', '')}: {command}")


def as_json(value: Any) -> str:  # noqa: ANN401 - JSON
    """Write a value of a job."""
    return msgspec.json.encode(value).decode()


def _attempts(view: JobPage) -> None:
    """Print the latest attempts, and the traceback of the last one that has any; --json has all of them."""
    attempts = view.attempts
    if len(attempts) > SHOWN:
        say(f"... the latest {SHOWN} of {len(attempts) + view.left_out} attempts; --json has all")
    for each in attempts[-SHOWN:]:
        _attempt(each)
    last = next((each for each in reversed(attempts) if each.traceback), None)
    if last is not None:
        say(f"traceback of attempt {last.number}:")
        say_lines("\n".join(f"  {line}" for line in (last.traceback or "").rstrip("\n").split("\n")))


def _attempt(each: AttemptLine) -> None:
    """Print an attempt: when it ran, its error, and what was decided."""
    took = span(timedelta(seconds=each.took_seconds))
    say(f"  {each.outcome} after {took}, started {utc(each.started_at)}", head=f"attempt {each.number}")
    if each.reason:
        stage = f", {each.stage}" if each.stage else ""
        say(f"  {each.reason}{stage}: {_error(each)}")
    if each.verdict:
        say(f"  then: {each.verdict}")


def _error(each: AttemptLine) -> str:
    """Return the class and the text of an error."""
    kind = (each.error_type or "").removeprefix("builtins.")
    return ": ".join(part for part in (kind, each.error) if part) or "-"


def audit(view: AuditList) -> None:
    """Print the actions of operators."""
    for each in view.items:
        say(f"  {each.actor}  {each.action}  {as_json(_with_ranges(each.details))}", head=utc(each.at))


def _with_ranges(details: Any) -> Any:  # noqa: ANN401 - JSON
    """Return details with the ids of jobs as text, such as ``17, 20-4016 (3,998 jobs)``; --json has each of them."""
    ids = details.get("ids") if isinstance(details, dict) else None
    if not isinstance(ids, list) or len(ids) < MANY or not all(isinstance(each, int) for each in ids):
        return details
    parts = ranges(ids)
    shown = ", ".join(parts[:RANGES]) + (", ..." if len(parts) > RANGES else "")
    return {**details, "ids": f"{shown} ({len(ids):,} jobs)"}


def ranges(ids: Sequence[int]) -> list[str]:
    """Return numbers as ranges: those that follow each other are one."""
    found: list[list[int]] = []
    for each in sorted(set(ids)):
        if found and found[-1][1] == each - 1:
            found[-1][1] = each
        else:
            found.append([each, each])
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]
