"""The plan of a run: the cases, the treatment of each, and the adapters that run the tables."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance.deviations import Deviations, load_deviations
from tests.conformance.groups import Listing, Status, load_listing
from tests.conformance.loading import Case, load_folder

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OWN_CASES", "CasePlan", "adapter_for", "load_plan"]

_HERE = Path(__file__).parent
OWN_CASES = _HERE / "cases"
"""The project's own case files."""


@dataclass(frozen=True)
class CasePlan:
    """The cases of a run, with their listing.

    Attributes:
        cases: all cases of the folder.
        listing: the treatment of each group.
        deviations: the cases that redrive answers differently on purpose.
    """

    cases: tuple[Case, ...]
    listing: Listing
    deviations: Deviations

    def tables(self) -> tuple[Case, ...]:
        """Return the cases that an adapter takes."""
        # A group with hand-written tests has no adapter for other cases: another folder may have such cases, and in
        # the project's own they are found by test_listing.py.
        return tuple(case for case in self.cases if self.listing.status_of(case) is Status.TABLE)


def load_plan(folder: Path = OWN_CASES) -> CasePlan:
    """Read the cases of a folder and the project's listings.

    Args:
        folder: where the case files are.

    Returns:
        The plan.

    Raises:
        CaseFileError: a case file cannot be read.
        ListingError: a listing cannot be read.
    """
    return CasePlan(
        load_folder(folder), load_listing(_HERE / "groups.toml"), load_deviations(_HERE / "deviations.toml")
    )


def adapter_for(plan: CasePlan, case: Case) -> Callable[[Case], None]:
    """Find the function that runs a case.

    Args:
        plan: the plan of the run.
        case: a case of a table group.

    Returns:
        The adapter of its group.
    """
    group = plan.listing.group_of(case)
    assert group is not None, case.group_name
    assert group.table is not None, case.group_name
    module_name, _, function_name = group.table.rpartition(".")
    adapter: Callable[[Case], None] = getattr(import_module(module_name), function_name)
    return adapter
