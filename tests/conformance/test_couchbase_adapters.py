"""The adapters of ``couchbase.json`` read a case completely: what they do not understand they refuse by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance.adapters.couchbase_strategies import strategy_of
from tests.conformance.adapters.couchbase_trial import step_of
from tests.conformance.adapters.couchbase_words import Reading, error_name
from tests.conformance.adapters.vocabulary import UnknownWord
from tests.conformance.plan import OWN_CASES, adapter_for, load_plan

PLAN = load_plan(OWN_CASES)
FIRST = {
    case.group: case
    for case in reversed(PLAN.tables())
    if case.file == "couchbase" and case.group != "python_clients" and isinstance(case.data["input"], dict)
}
"""One case of each group of the file that has an adapter here."""


def refused(case, **changes):
    """Run a case with other data; its adapter must refuse it."""
    data = {**case.data, **changes}
    with pytest.raises(UnknownWord, match="unheard_of"):
        adapter_for(PLAN, case)(replace(case, data=data))


@pytest.mark.parametrize("group", FIRST)
def test_an_unknown_field_of_the_input_is_refused_by_its_name(group):
    """Unknown fields of the input are not overlooked: they are an error that names them."""
    case = FIRST[group]
    refused(case, input={**case.data["input"], "unheard_of": 1})


@pytest.mark.parametrize("group", FIRST)
def test_an_unknown_outcome_is_refused_by_its_name(group):
    """Unknown outcomes are an error that names them."""
    expected = FIRST[group].data["expected"]
    more = {"unheard_of": 1}
    refused(FIRST[group], expected={**expected, **more} if isinstance(expected, dict) else [{**expected[0], **more}])


@pytest.mark.parametrize("group", FIRST)
def test_an_unknown_field_of_the_case_is_refused_by_its_name(group):
    """Fields beside input and expected are refused too."""
    refused(FIRST[group], unheard_of=1)


def test_a_field_that_is_not_used_is_refused_by_its_name():
    """Known fields that mean nothing beside the others of a case are refused like unknown ones."""
    data = Reading({"a": 1, "b": 2, "note": "for people"}, ("a", "b"))
    assert 1 == data["a"]
    with pytest.raises(UnknownWord, match="fields b are not used together with a"):
        data.finish()


def test_a_missing_field_is_refused_by_its_name():
    """Missing fields are refused, without a KeyError."""
    with pytest.raises(UnknownWord, match="no field a, beside b"):
        Reading({"b": 2}, ("a", "b"))["a"]


@pytest.mark.parametrize("refuse", [strategy_of, error_name, lambda word: step_of(word, "get")], ids=range(3))
@pytest.mark.parametrize("word", ["unheard_of", ["unheard_of"]], ids=repr)
def test_an_unknown_value_is_refused_by_its_name(refuse, word):
    """Unknown words for a strategy, an error or a response are refused and named, whatever their type."""
    with pytest.raises(UnknownWord, match="unheard_of"):
        refuse(word)
