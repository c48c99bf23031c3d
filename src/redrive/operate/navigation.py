"""The entries of the navigation, in groups, and the number beside each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.records import Count, Severity
from redrive.operate.exchange import Site
from redrive.operate.table import Row
from redrive.operate.vitals import vitals
from redrive.stores.operations import doctor
from redrive.stores.operations.doctor import Vitals
from redrive.stores.operations.queues import DepthState, counted
from redrive.version import __version__

_GROUPS: Final = {
    "": ("Overview",),
    "Work": ("Jobs", "Errors", "Runs", "Schedules", "Machines", "Topics"),
    "Capacity": ("Queues", "Workers", "Tasks"),
    "Tools": ("Playground", "Operations", "Checks", "Audit", "Dev"),
}

# The pages that are not named like their icon.
_ICONS: Final = {"Errors": "warn", "Checks": "health"}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry of the navigation."""

    name: str
    path: str
    icon: str


class Beside(msgspec.Struct, frozen=True, gc=False):
    """The number beside an entry.

    Attributes:
        bad: True if it needs a person.
    """

    text: str
    bad: bool = False


def groups(routes: Sequence[Row]) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    """Return the groups of the navigation with the entries that the routes have."""
    paths: dict[str, str] = {}
    for route in routes:
        paths.setdefault(route.section, route.path)
    for group, names in _GROUPS.items():
        yield group, tuple(Entry(each, paths[each], _ICONS.get(each, each.lower())) for each in names if each in paths)


def beside(site: Site) -> Procedure[Mapping[str, Beside]]:
    """Return the numbers beside the entries, from figures that all viewers share for 10 seconds."""
    found = yield from vitals(site)
    return {name: each for name, each in _numbers(site, found) if each is not None}


def _numbers(site: Site, found: Vitals) -> Iterator[tuple[str, Beside | None]]:
    waiting, workers = found.jobs(DepthState.DUE), found.alive
    names = {each.queue for each in found.depths} | {each.name for each in found.settings}
    yield "Jobs", _number(counted(found.depths, None)[DepthState.DEAD], bad=True)
    yield "Machines", _number(sum(each.number for each in found.failed), bad=True)
    yield "Queues", _number(len(names), bad=bool(found.unserved or found.stopped))
    yield "Workers", _number(len(workers), bad=bool(waiting) and not workers)
    yield "Operations", _number(len(found.operations))
    checks = doctor.diagnose(found, site.app.served(), __version__, app=site.reference)
    yield "Checks", _number(sum(each.severity is Severity.PROBLEM for each in checks), bad=True)


def _number(number: int | Count, *, bad: bool = False) -> Beside | None:
    value = number if isinstance(number, int) else number.value
    return Beside(f"{value:,}" if isinstance(number, int) else str(number), bad) if value else None
