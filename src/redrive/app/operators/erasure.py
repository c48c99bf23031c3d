"""Erases all that is stored of one person, batch by batch."""

from __future__ import annotations

from redrive.app.arguments import checked_text
from redrive.app.protocol import AppProtocol, Procedure
from redrive.errors import ConfigurationError
from redrive.stores.operations import erasing as operations
from redrive.stores.operations.erasing import BATCH, Erased, Found

#: The shortest value: a shorter one would be found in texts about something else.
SHORTEST = 3


def erasing(app: AppProtocol, value: str, actor: str, *, dry_run: bool) -> Procedure[Erased]:
    """Erase what is stored under a value; see `redrive.app.operators.database.Database.erase`."""
    if len(checked_text(value, "app.database.erase(): the value")) < SHORTEST:
        raise ConfigurationError(
            f"app.database.erase(): the value {value!r} has less than {SHORTEST} characters, and would be found in "
            "texts about something else; name the field of search=[...], as in customer:7"
        )
    found: Found = yield operations.find(value)
    done = Erased()
    if not dry_run:
        done = yield operations.erase_items(found.items, now=app.now())
        # Attempts of items that were cancelled, and jobs that were enqueued meanwhile.
        found = yield operations.find(value)
    # Those that follow have higher ids, such as the catch job of a dead job, and go first.
    for end in range(len(found.jobs), 0, -BATCH):
        ids = found.jobs[max(end - BATCH, 0) : end]
        done = done.plus((yield operations.erase_jobs(ids, dry_run=dry_run, now=app.now())))
    if dry_run:
        return done.plus(operations.rest_of(found))
    erased: Erased = yield operations.erase_rest(value, found, done, actor=actor, now=app.now())
    return erased
