"""``redrive find``: a search for what a business knows."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.jobs import Limit, read
from redrive.cli.loading import AsJson, Target
from redrive.cli.local import show
from redrive.cli.text import find as text


def find(
    app: Target,
    words: Annotated[list[str], typer.Argument(metavar="VALUE", help="A value, or a filter of jobs.")],
    *,
    before: Annotated[int | None, typer.Option(min=1, help="Only jobs with a smaller id.")] = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """Find jobs, runs, instances, items and events by a value, such as the number of an invoice.

    Jobs are found by key, idempotency key, partition, tag or argument, and by their run; the others by id or key. A
    field that a task declares by search= has an index; without one the newest 20,000 jobs are searched, and the last
    lines say so.
    """
    # Names the place of a mistake.
    read(words, may_stand_alone=True)
    show(app, "find", text.found, json=json, q=" ".join(words), before=before, limit=limit)
