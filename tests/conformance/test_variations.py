"""Cases in the form of the case files that their adapters must understand, and words that they must refuse by name.

``variations/couchbase.json`` has other errors of Python's clients, and ``variations/inprocess.json`` has other numbers,
orders, operators and null fields than the case files. The expected outcomes were computed from the formulas in the
header of ``inprocess.json``, without redrive.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.adapters.vocabulary import UnknownWord, is_refused
from tests.conformance.loading import load_file, load_folder
from tests.conformance.plan import OWN_CASES, adapter_for, load_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.loading import Case

VARIATIONS = load_folder(Path(__file__).parent / "variations")
ADAPTERS = ("budgets", "calls", "hedges", "hints", "inprocess", "protocols", "python_clients")
"""The modules of the adapters that are tested here."""
OBJECTS = (
    "policy", "cond", "of", "state", "expect", "scenario", "acquire", "error_at", "costs", "throttle", "testing",
    "backoff", "input", "expected", "rows", "attempts", "uniform_histogram",
)  # fmt: skip
"""The fields with objects that an adapter reads. The others are data: headers, a gRPC document."""


@pytest.mark.parametrize("case", VARIATIONS, ids=[case.key for case in VARIATIONS])
def test_a_variation_is_understood_and_answered(own_plan, case):
    """Adapters run cases that they were not written for."""
    adapter_for(own_plan, case)(case)


def _one_of_each_group() -> Iterator[Case]:
    plan = load_plan()
    cases = [*load_file(OWN_CASES / "inprocess.json"), *load_file(OWN_CASES / "couchbase.json")]
    seen: dict[tuple[str, frozenset[str]], Case] = {}
    tables = {case.key for case in plan.tables()}
    for case in cases:
        if case.key in tables and adapter_for(plan, case).__module__.rpartition(".")[2] in ADAPTERS:
            seen.setdefault((case.group_name, frozenset(case.data)), case)
    yield from seen.values()


def _with_a_word_more(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a case with an unknown field, at each place where it has an object."""
    yield path or "the case", {**data, "colour": 1}
    for field, value in data.items():
        if field not in OBJECTS:
            continue
        for place, inner in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(inner, dict):
                for name, changed in _with_a_word_more(inner, f"{path}/{field}"):
                    whole = copy.deepcopy(data)
                    if isinstance(value, list):
                        whole[field][place] = changed
                    else:
                        whole[field] = changed
                    yield name, whole


CHANGED = [
    (case, path, data) for case in _one_of_each_group() for path, data in dict(_with_a_word_more(case.data)).items()
]


@pytest.mark.parametrize(
    ("case", "path", "data"), CHANGED, ids=[f"{case.key} {path.replace('/', ' ')}" for case, path, _ in CHANGED]
)
def test_an_unknown_field_is_refused_by_its_name(own_plan, case, path, data):
    """No adapter overlooks a field at any place: it names the unknown one."""
    changed = type(case)(case.file, case.group, case.key, data, case.shared, case.fingerprint)
    with pytest.raises(UnknownWord, match="colour"):
        adapter_for(own_plan, changed)(changed)


def test_an_accepted_policy_is_no_refusal():
    """Cases that expect a refusal fail, and show the policy, where redrive accepts it."""
    with pytest.raises(AssertionError, match=r"expected 'a refusal', given '7'"):
        is_refused("invalid policy", lambda: 7)
    assert not is_refused({"calls": 1}, lambda: 7)
