"""The erasure of all that is stored of one person."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from redrive.app.protocol import Procedure
from redrive.errors import ConfigurationError, PayloadError
from redrive.operate.exchange import Form, Moved, Refusal, Request, Site


class Erasure(Form, frozen=True, gc=False):
    """An erasure.

    Attributes:
        value: a whole tag, key or id, or ``field:value`` of a field of search=, of 3 characters or more.
        dry_run: change nothing, only report.
    """

    value: str
    dry_run: bool = False


class ErasureReport(msgspec.Struct, frozen=True, gc=False):
    """What was erased; it does not have the value.

    Attributes:
        note: as a sentence.
        counts: the number of rows that were deleted, or of texts that were changed, by kind.
        kept: what was not erased, with the reasons.
        dry_run: True if nothing was changed.
        matched: False if nothing is stored under the value.
    """

    note: str
    counts: dict[str, int]
    kept: tuple[str, ...]
    dry_run: bool
    matched: bool


def erase(site: Site, request: Request) -> Procedure[Moved]:
    """Erase all that is stored under a value."""
    dry_run = request.dry_run or request.form.get("dry_run") == "true"
    app: Any = site.app
    try:
        done = yield from app.database.erasing(request.form["value"], request.actor, dry_run=dry_run)
    except (ConfigurationError, PayloadError) as error:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
    counts = ", ".join(f"{number:,} {kind}" for kind, number in done.counts.items()) or "nothing"
    kept = f"; {len(done.kept)} kept: let them end, and repeat it" if done.kept else ""
    note = f"{counts} {'would be erased' if dry_run else 'erased'}{kept}" if done.matched else _NOTHING
    return Moved("/audit", note, data=ErasureReport(note, dict(done.counts), done.kept, dry_run, done.matched))


_NOTHING = (
    "nothing is stored under this value: it is a whole tag, key, partition or id, as redrive jobs show has them, or a "
    "field of search= with its value, as in customer:7"
)
