"""The state of each part of the database and of its workers, also of those in which nothing is wrong."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.app.operators.diagnosis import diagnosis, examined
from redrive.app.protocol import Procedure
from redrive.engine.records import Diagnosis, Severity
from redrive.operate.exchange import Page, Request, Site


class Health(msgspec.Struct, frozen=True, gc=False):
    """What `redrive doctor` examines.

    Attributes:
        read_at: when workers, jobs and instances were read; all viewers share it for 10 seconds.
        ok: whether no finding is a problem.
        findings: one or more for each part.
    """

    read_at: datetime
    ok: bool
    findings: tuple[Diagnosis, ...]


def health(site: Site, _: Request) -> Procedure[Page]:
    """Examine the database, its schema and clock, and the workers."""
    # Not from the figures that all pages share: what does not fit the machines is counted over all their instances.
    found = site.shared.latest((yield from site.shared.read("health", examined(site.app))))
    findings = yield from diagnosis(site.app, site.reference, found)
    problems = sum(each.severity is Severity.PROBLEM for each in findings)
    return Page("Health", Health(found.now, not problems, findings))
