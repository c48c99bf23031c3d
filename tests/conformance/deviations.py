"""Cases that redrive answers otherwise on purpose: ``deviations.toml``, read and checked.

An entry names a case by its key, or by its fingerprint where the key would be clumsy, and gives the reason. A table
case that deviates must fail, by another answer and not by an adapter that cannot read it: if it passes one day, the
run fails until the entry is gone. A told case that deviates is told all the same; its test states what redrive does
instead.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.conformance.groups import ListingError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.conformance.loading import Case

__all__ = ["Deviations", "load_deviations"]


@dataclass(frozen=True)
class Deviations:
    """The reasons, by key or fingerprint."""

    reasons: dict[str, str]

    def reason_for(self, case: Case) -> str | None:
        """Why this case is answered otherwise; none if it is not."""
        return self.reasons.get(case.key) or self.reasons.get(case.fingerprint)

    def problems(self, cases: Iterable[Case]) -> list[str]:
        """Entries that name no case, a sentence each."""
        known = {name for case in cases for name in (case.key, case.fingerprint)}
        return [f"deviations.toml names {name!r}, which does not exist" for name in self.reasons if name not in known]


def load_deviations(path: Path) -> Deviations:
    """Read ``deviations.toml``.

    Args:
        path: the file.

    Returns:
        The deviations.

    Raises:
        ListingError: an entry lacks its case or reason, has more than that, or stands there twice.
    """
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8")).get("deviation", [])
    reasons: dict[str, str] = {}
    for entry in entries:
        if set(entry) != {"case", "reason"} or not all(entry.values()):
            raise ListingError(f"a deviation has a case and a reason, and nothing else: {entry}")
        if entry["case"] in reasons:
            raise ListingError(f"{entry['case']!r} deviates twice")
        reasons[entry["case"]] = entry["reason"]
    return Deviations(reasons)
