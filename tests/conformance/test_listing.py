"""The listings are complete: every case is run, tested by hand, or waiting, and only existing cases are named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.deviations import MISSING
from tests.conformance.groups import Status
from tests.conformance.markers import scan_tree
from tests.conformance.plan import adapter_for

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def marked(pytestconfig):
    """Return the case markers of the whole test tree."""
    return scan_tree(TESTS, patterns=pytestconfig.getini("python_files"))


def _keys(plan, status):
    return {case.key for case in plan.cases if plan.listing.status_of(case) is status}


def test_every_case_is_listed_once_and_no_other_entry_exists(own_plan):
    """groups.toml places every case once, and names no other."""
    assert [] == own_plan.listing.problems(own_plan.cases)


def test_every_deviation_names_a_case(own_plan):
    """deviations.toml names cases that exist."""
    assert [] == own_plan.deviations.problems(own_plan.cases)


def test_no_case_that_waits_deviates(own_plan):
    """Cases that nothing runs yet have no deviation."""
    waiting = [case for case in own_plan.cases if own_plan.listing.status_of(case) is Status.NOT_YET]
    assert [] == [case.key for case in waiting if own_plan.deviations.of(case)]


def test_only_deviations_of_table_cases_have_an_answer(own_plan):
    """Entries of table cases have an answer to compare with; those of other cases have none: their tests assert it."""
    entries = [(own_plan.listing.status_of(case), own_plan.deviations.of(case)) for case in own_plan.cases]
    deviating = [(status, entry) for status, entry in entries if entry]
    assert [] == [entry.reason for status, entry in deviating if (status is Status.TABLE) is (entry.answer is MISSING)]


def test_keys_are_unique(own_plan):
    """Keys name one case each, whatever its file."""
    assert [] == [key for key, count in Counter(case.key for case in own_plan.cases).items() if count > 1]


def test_every_table_has_its_adapter(own_plan):
    """Each adapter that groups.toml names can be imported."""
    assert all(callable(adapter_for(own_plan, case)) for case in own_plan.tables())


def test_case_markers_are_valid(marked):
    """Case markers stand on tests that run, with their ids written out."""
    assert () == marked.problems


def test_every_hand_written_case_has_its_test(own_plan, marked):
    """For each case that is listed as tested by hand, some test carries its marker."""
    assert set() == _keys(own_plan, Status.HAND_WRITTEN) - set(marked.places)


def test_every_marker_names_a_hand_written_case(own_plan, marked):
    """No marker names a case that does not exist or is not listed as tested by hand."""
    assert {} == {key: marked.places[key] for key in set(marked.places) - _keys(own_plan, Status.HAND_WRITTEN)}
