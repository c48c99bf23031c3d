"""Tests of `redrive.policy.fields`, by way of the constructor of a policy."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from pathlib import Path
from types import EllipsisType
from typing import Any, get_type_hints

import pytest

import redrive
from redrive.errors import PolicyError
from redrive.policy import Backoff, Jitter, Policy, Rule
from redrive.policy.duration import Duration
from redrive.policy.fields import FIELDS


@pytest.mark.parametrize(
    ("field", "given", "kept"),
    [
        ("on", (OSError, "TIMEOUT"), ("TIMEOUT", "builtins.OSError")),
        ("on", len, len),
        ("on", None, None),
        ("deadline", "1m", timedelta(minutes=1)),
        ("deadline", None, None),
        ("attempt_timeout", 2.5, timedelta(seconds=2.5)),
        ("max_hint", 0, timedelta(0)),
        ("jitter", "equal", Jitter.equal),
        ("jitter", Jitter.plus(0.1), Jitter.plus(0.1)),
        ("jitter", None, Jitter.full),
        ("rules", [Rule(OSError)], (Rule(OSError),)),
        ("catch", "payments.recover", "payments.recover"),
        ("hints", "ignore", "ignore"),
        ("nested", "both", "both"),
        ("groups", "never", "never"),
        ("idempotent", False, False),
        ("budget", "shared", "shared"),
    ],
)
def test_fields_are_kept_in_one_form(field: str, given: Any, kept: Any):
    """Each field accepts its convenient forms and keeps one."""
    assert kept == getattr(Policy(**{field: given}), field)


@pytest.mark.parametrize(
    ("field", "given", "message"),
    [
        ("on", (), "on is empty"),
        ("on", 5, "on=5"),
        ("attempts", 0, "attempts=0"),
        ("deadline", 0, "deadline=0 leaves no time at all"),
        ("attempt_timeout", "0s", "attempt_timeout='0s' leaves no time at all"),
        ("deadline", -1, "deadline: -1 is not a duration"),
        ("max_hint", "5", "max_hint: the number 5 has no unit"),
        ("backoff", "5s", "backoff='5s' is not a Backoff"),
        ("jitter", "much", "there is no jitter 'much'"),
        ("jitter", 5, "jitter=5: use none, full, equal, Jitter.plus"),
        ("rules", ["TIMEOUT"], "rules: 'TIMEOUT' is not a Rule"),
        ("catch", "not a name", "catch='not a name'"),
        ("catch", "", "catch=''"),
        ("catch", 5, "catch=5"),
        ("hints", "maybe", "hints='maybe': it can be obey, ignore, ai"),
        ("over_deadline", "stop", "it can be give_up, defer, truncate"),
        ("nested", "inner", "it can be outer, both"),
        ("groups", None, "it can be all, any, never"),
        ("idempotent", "yes", "idempotent='yes': it can be True or False, or None"),
        ("budget", "", "budget='' is empty"),
    ],
)
def test_fields_refuse_invalid_values(field: str, given: Any, message: str):
    """Each field refuses what it cannot mean, and the message names it."""
    with pytest.raises(PolicyError) as refused:
        Policy(**{field: given})

    assert message in str(refused.value)


def test_a_backoff_that_draws_takes_no_jitter():
    """Backoffs that draw have no jitter, and refuse any."""
    drawing = Backoff.decorrelated(1, 20)

    assert Jitter.none == Policy(backoff=drawing).jitter == Policy(backoff=drawing, jitter="none").jitter
    with pytest.raises(PolicyError, match="draws its delays by itself: leave out jitter='full'"):
        Policy(backoff=drawing, jitter="full")


def test_on_may_be_empty_with_a_result_predicate():
    """With a predicate for results, `on` may be empty: then no exception is a candidate."""
    assert () == Policy(on=(), on_result=bool).on


@pytest.mark.parametrize("field", ["budget", "breaker", "hedge"])
def test_resources_may_be_objects(field: str):
    """Shared resources may be objects."""
    resource = object()

    assert resource is getattr(Policy(**{field: resource}), field)


def test_each_field_is_declared_in_one_place():
    """No other module annotates the fields, and the signature of a policy is derived from their declarations."""
    files = Path(redrive.__file__).parent.rglob("*.py")
    modules = [path.name for path in files if re.search(r"(?m)^ +over_deadline\b.*: .*\bstr\b", path.read_text())]
    signature = inspect.signature(Policy).parameters

    assert ["fields.py"] == modules
    assert list(FIELDS) == list(signature) == list(Policy._fields)
    assert [field.default for field in FIELDS.values()] == [each.default for each in signature.values()]
    assert {"KEYWORD_ONLY"} == {each.kind.name for each in signature.values()}


def test_the_signature_has_the_types_of_the_arguments():
    """Annotations of the constructor are those of the arguments, not of the attributes, and can be evaluated."""
    notes = get_type_hints(Policy.__init__)

    assert (Duration | EllipsisType | None, int | None) == (notes["deadline"], notes["attempts"])
    assert set(notes) == {*FIELDS, "return"}


def test_wrong_keywords_are_type_errors_that_name_the_policy():
    """Refuse an unknown keyword, and any positional argument, as functions do."""
    with pytest.raises(TypeError, match=r"^Policy\(\) has no option atempts=: did you mean attempts=\?$"):
        Policy(atempts=3)
    with pytest.raises(TypeError, match=r"^Policy\(\) takes 1 positional argument but 2 were given$"):
        Policy(3)
