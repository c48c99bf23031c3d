"""``redrive workers``: show the workers, what they serve, and how busy they are."""

from __future__ import annotations

from datetime import datetime

import typer

from redrive.cli.loading import AsJson, Target, load_existing
from redrive.cli.screen import Grid, print_document, say
from redrive.engine.commands import command
from redrive.engine.explain import span
from redrive.engine.records import WorkerRecord
from redrive.stores.operations import clock

workers = typer.Typer(help="Look at workers.", no_args_is_help=True)


@workers.callback()
def _group() -> None:
    """Look at workers."""


@workers.command("list")
def list_(app: Target, *, json: AsJson = False) -> None:
    """List the workers that have not shut down: what they serve, their slots, and when each was last heard from."""
    loaded = load_existing(app)
    found = loaded.workers.select()
    now = loaded.store.run(clock.present(loaded.now()))
    if json:
        for each in found:
            plain = {name: getattr(each, name) for name in each.__struct_fields__}
            print_document(plain | {"alive": each.expires_at > now})
        return
    if not found:
        say(f"no worker runs: {command('worker', app)} starts one")
        return
    table = Grid("id", "worker", "state", "slots", "queues", "tasks", "heartbeat", "version", wide=("state", "queues"))
    for each in found:
        slots = f"{each.running}/{each.concurrency}"
        queues = _queues(each)
        tasks = "all" if each.tasks is None else str(len(each.tasks))
        heard = f"{span(now - each.heartbeat_at)} ago"
        table.add(str(each.id), each.name, _state(each, now), slots, queues, tasks, heard, each.version or "-")
    table.show()


def _queues(worker: WorkerRecord) -> str:
    if worker.excluded:
        return f"all but {', '.join(worker.excluded)}"
    return "all" if worker.queues is None else ", ".join(worker.queues)


def _state(worker: WorkerRecord, now: datetime) -> str:
    if worker.expires_at <= now:
        return "dead"
    return "alive" if worker.trouble is None else f"in trouble: {worker.trouble}"
