"""Workers as text."""

from __future__ import annotations

from datetime import timedelta

from redrive.cli.screen import Grid, say, utc
from redrive.cli.text.jobs import jobs
from redrive.engine.commands import command
from redrive.engine.explain import span
from redrive.operate.builds import BuildsPage
from redrive.operate.jobs import JobList
from redrive.operate.workers import WorkerLine, WorkerList, WorkerPage


def workers(view: WorkerList, app: str) -> None:
    """Print the workers that have not shut down."""
    if not view.items:
        say(f"no worker runs: {command('worker', app)} starts one")
        return
    headings = ("id", "worker", "state", "slots", "oldest", "queues", "tasks", "heartbeat", "version", "build")
    table = Grid(*headings, wide=("state", "queues"))
    for each in view.items:
        slots = f"{each.busy}/{each.slots}"
        tasks = "all" if each.tasks is None else str(each.tasks)
        heard = f"{span(view.read_at - each.heard_at)} ago"
        facts = (slots, _oldest(each), _queues(each), tasks, heard, each.version or "-", _build(each))
        table.add(each.id, each.name, _state(each), *facts)
    table.show()


def worker(view: WorkerPage, app: str) -> None:
    """Print one worker with the jobs that it runs."""
    each = view.worker
    say(f"  {each.name}, {_state(each)}", head=f"worker {each.id}")
    for sentence in each.stuck:
        say(sentence)
    say(f"slots: {each.busy} of {each.slots}; queues: {_queues(each)}")
    lag = "not known yet" if each.loop_lag_seconds is None else span(timedelta(seconds=each.loop_lag_seconds))
    say(f"event loop: late by {lag}; oldest attempt: {_oldest(each)}")
    heard = f"{span(view.at - each.heard_at)} ago"
    say(f"started {utc(each.started_at)}, heard {heard}, redrive {each.version or '-'}, build {_build(each)}")
    if view.unstopped:
        say(f"handlers of jobs that have ended: {', '.join(view.unstopped)}")
    if view.running:
        jobs(JobList("", items=view.running))
    say(f"all jobs that it had: {command('jobs list', app, view.q)}")


def builds(view: BuildsPage) -> None:
    """Print what failed before and after the newest build."""
    if view.build is None or view.since is None:
        say("no worker that has a task of this code says which build it runs: give `redrive worker --build`")
        return
    again = "again " if view.is_back else ""
    say(f"build {view.build} runs {again}since {utc(view.since)}, after {view.before or 'code of an unknown build'}")
    for other in view.others:
        number = "1 live worker runs" if other.workers == 1 else f"{other.workers} live workers run"
        say(f"{number} build {other.build}: both run side by side, and attempts count for the build of their worker")
    if view.unclear_until is not None:
        say(f"attempts until {utc(view.unclear_until)} are left out: both builds were running")
    if not view.items:
        say("no attempt has ended that can be compared")
        return
    table = Grid("task", "before", "failed", "after", "failed", "difference")
    for each in view.items:
        before, after = each.before, each.after
        counts = (f"{before.ended:,}", _share(before.failing), f"{after.ended:,}", _share(after.failing))
        table.add(each.task, *counts, "-" if each.difference is None else f"{each.difference:+.1f} points")
    table.show()


def _share(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.1f} %"


def _oldest(worker: WorkerLine) -> str:
    if worker.oldest_job is None or worker.oldest_seconds is None:
        return "-"
    return f"{span(timedelta(seconds=worker.oldest_seconds))} (job {worker.oldest_job})"


def _build(worker: WorkerLine) -> str:
    return f"{worker.build or '-'}{' (old)' if worker.is_old else ''}"


def _queues(worker: WorkerLine) -> str:
    if worker.excluded:
        return f"all but {', '.join(worker.excluded)}"
    return "all" if worker.queues is None else ", ".join(worker.queues)


def _state(worker: WorkerLine) -> str:
    if not worker.alive:
        return "dead"
    if worker.trouble is not None:
        return f"in trouble: {worker.trouble}"
    return "stuck" if worker.stuck else "alive"
