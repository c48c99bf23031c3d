"""Workers as text."""

from __future__ import annotations

from redrive.cli.screen import Grid, say
from redrive.engine.commands import command
from redrive.engine.explain import span
from redrive.operate.workers import WorkerLine, WorkerList


def workers(view: WorkerList, app: str) -> None:
    """Print the workers that have not shut down."""
    if not view.items:
        say(f"no worker runs: {command('worker', app)} starts one")
        return
    table = Grid("id", "worker", "state", "slots", "queues", "tasks", "heartbeat", "version", wide=("state", "queues"))
    for each in view.items:
        slots = f"{each.busy}/{each.slots}"
        tasks = "all" if each.tasks is None else str(each.tasks)
        heard = f"{span(view.at - each.heard_at)} ago"
        table.add(each.id, each.name, _state(each), slots, _queues(each), tasks, heard, each.version or "-")
    table.show()


def _queues(worker: WorkerLine) -> str:
    if worker.excluded:
        return f"all but {', '.join(worker.excluded)}"
    return "all" if worker.queues is None else ", ".join(worker.queues)


def _state(worker: WorkerLine) -> str:
    if not worker.alive:
        return "dead"
    return "alive" if worker.trouble is None else f"in trouble: {worker.trouble}"
