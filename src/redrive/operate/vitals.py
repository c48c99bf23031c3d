"""The state of the database and its workers, which several pages share."""

from __future__ import annotations

from typing import Final

from redrive.app.protocol import Procedure
from redrive.operate.exchange import Site
from redrive.stores.operations import doctor
from redrive.stores.operations.doctor import Vitals

#: The key of what is shared.
VITALS: Final = "vitals"


def vitals(site: Site) -> Procedure[Vitals]:
    """Read the state of the database and its workers, for all viewers."""
    found = yield from site.shared.read(VITALS, _read(site))
    return site.shared.latest(found)


def _read(site: Site) -> Procedure[Vitals]:
    found: Vitals = yield doctor.examine(site.app.now())
    return found
