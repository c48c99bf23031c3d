"""The audit log: each change with its actor, its time and its details."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.records import NEWEST, AuditEntry
from redrive.engine.secrets import decoded
from redrive.operate.exchange import Page, Request, Site
from redrive.operate.shown import redacted
from redrive.stores.operations import audit

SHOWN: Final = 100


class AuditLine(msgspec.Struct, frozen=True, gc=False):
    """An action of an operator."""

    id: str
    at: datetime
    actor: str
    action: str
    details: Any


class AuditList(msgspec.Struct, frozen=True, gc=False):
    """A page of the audit log, newest first.

    Attributes:
        before: the parameter ``before`` of the next page; None on the last page.
    """

    items: tuple[AuditLine, ...]
    before: str | None


def audit_list(_: Site, request: Request) -> Procedure[Page]:
    """List the actions of operators."""
    before = request.number("before", NEWEST, most=NEWEST)
    limit = request.limit(SHOWN)
    found: tuple[AuditEntry, ...] = yield audit.audit(before_id=before, limit=limit + 1)
    items = tuple(_line(each) for each in found[:limit])
    data = AuditList(items, items[-1].id if len(found) > limit else None)
    return Page("Audit", data, next={"before": data.before})


def _line(entry: AuditEntry) -> AuditLine:
    details = redacted(decoded(entry.details.encode()))
    return AuditLine(str(entry.id), entry.at, entry.actor, entry.action, details)
