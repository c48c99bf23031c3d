"""The audit log: each change with its actor, its time and its details."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.records import NEWEST, AuditEntry
from redrive.engine.secrets import decoded
from redrive.operate.exchange import Newest, Page, Refusal, Request, Site
from redrive.operate.shown import redacted
from redrive.stores.operations import audit

SHOWN: Final = 100

#: Entries on the page of the thing that they are about.
LATEST: Final = 5

#: The kinds of things that a change is about.
KINDS: Final = ("queue", "schedule", "job", "group", "machine", "topic")


_DONE: Final[Mapping[str, str]] = {"pause": "paused", "resume": "resumed", "trigger": "started"}


class AuditQuery(Newest, frozen=True, gc=False):
    """The parameters of the audit log.

    Attributes:
        about: one thing that was changed, such as ``queue:mail``, ``schedule:nightly``, ``job:17``, ``group:1-0``,
            ``machine:payment/card-1`` or ``topic:orders/mail``. The job of a run stands for the run.
    """

    about: str | None = None


class AuditLine(msgspec.Struct, frozen=True, gc=False):
    """An action of an operator."""

    id: str
    at: datetime
    actor: str
    action: str
    details: Any

    @property
    def words(self) -> str:
        """What was done to the one thing that the entry is about, such as ``paused``."""
        if self.action == audit.QUEUE and isinstance(self.details, dict):
            changes = {name: value for name, value in self.details.items() if name not in {"queue", "paused_at"}}
            verbs = {"none": ["resumed"], "": []}.get(self.details.get("paused_at", ""), ["paused"])
            words = [*verbs, *(f"{_word(name)} {_limit(value)}" for name, value in changes.items())]
            return ", ".join(words) or "unchanged"
        return _DONE.get(self.action, _word(self.action))


class AuditList(msgspec.Struct, frozen=True, gc=False):
    """A page of the audit log, newest first.

    Attributes:
        before: the parameter ``before`` of the next page; None on the last page.
        about: the thing that the entries are about; None for all.
    """

    items: tuple[AuditLine, ...]
    before: str | None
    about: str | None


def audit_list(_: Site, request: Request) -> Procedure[Page]:
    """List the actions of operators."""
    before = request.number("before", NEWEST, most=NEWEST)
    limit = request.limit(SHOWN)
    about = request.text("about")
    if about is not None and about.partition(":")[0] not in KINDS:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"about={about[:40]!r} is not one of {', '.join(f'{k}:' for k in KINDS)}")
    found: tuple[AuditEntry, ...] = yield audit.audit(before_id=before, about=about, limit=limit + 1)
    items = tuple(map(line, found[:limit]))
    data = AuditList(items, items[-1].id if len(found) > limit else None, about)
    return Page("Audit", data, next={"before": data.before})


def _word(name: str) -> str:
    return name.replace("_", " ")


def _limit(value: object) -> str:
    return "no limit" if value == "none" else str(value)


def latest(about: str, limit: int = LATEST) -> Procedure[tuple[AuditLine, ...]]:
    """Return what was last done to one thing."""
    found: tuple[AuditEntry, ...] = yield audit.audit(about=about, limit=limit)
    return tuple(map(line, found))


def line(entry: AuditEntry) -> AuditLine:
    """Return an entry as a line of a list."""
    details = redacted(decoded(entry.details.encode()))
    return AuditLine(str(entry.id), entry.at, entry.actor, entry.action, details)
