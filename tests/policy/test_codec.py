"""Tests of `redrive.policy.codec`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Jitter, Policy, Rule
from redrive.policy.codec import backoff_from_dict, backoff_to_dict
from tests.policy.strategies import backoffs, policies

FULL = Policy(
    on=(OSError, "TIMEOUT"),
    attempts=5,
    deadline="1m",
    attempt_timeout=2.5,
    backoff=Backoff.constant(1).take(2) >> Backoff.exponential("5s", "1m"),
    jitter=Jitter.plus(0.25),
    rules=[Rule("TIMEOUT", backoff=Backoff.listed([0, "1m"]), attempts=2), Rule(KeyError)],
    catch="recover",
    budget="shared",
)
WRITTEN = {
    "version": 1,
    "on": ["TIMEOUT", "builtins.OSError"],
    "attempts": 5,
    "deadline": "1m",
    "attempt_timeout": "2s500ms",
    "backoff": {
        "kind": "then",
        "left": {"kind": "take", "of": {"kind": "constant", "value": "1s"}, "n": 2},
        "right": {"kind": "exponential", "initial": "5s", "maximum": "1m", "factor": 2.0},
    },
    "jitter": {"plus": 0.25},
    "rules": [
        {"on": ["TIMEOUT"], "backoff": {"kind": "listed", "values": ["0s", "1m"], "end": "repeat"}, "attempts": 2},
        {"on": ["builtins.KeyError"], "backoff": None, "attempts": None},
    ],
    "catch": "recover",
    "hints": "obey",
    "max_hint": "default",
    "over_deadline": "give_up",
    "nested": "outer",
    "groups": "all",
    "idempotent": None,
    "budget": "shared",
    "breaker": None,
    "hedge": None,
}


def changed(path: str, value: Any) -> Any:
    """Return the written policy with one place changed."""
    data = json.loads(json.dumps(WRITTEN))
    *way, last = path.split(".")
    place = data
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    place[int(last) if last.isdigit() else last] = value
    return data


def test_a_policy_is_written_whole():
    """Policies are written with all their fields, so that later defaults do not change them."""
    assert WRITTEN == FULL.to_dict()
    assert FULL == Policy.from_dict(WRITTEN)


@given(policies())
def test_policies_survive_json(policy: Policy):
    """Policies that are written as JSON and read are equal to the original."""
    assert policy == Policy.from_dict(json.loads(json.dumps(policy.to_dict())))


@given(policies(), policies())
def test_combined_policies_survive_json(a: Policy, b: Policy):
    """Combinations of policies that are written as JSON and read are equal to the original."""
    for policy in (a & b, a | (b >> a)):
        assert policy == Policy.from_dict(json.loads(json.dumps(policy.to_dict())))


@given(backoffs)
def test_backoffs_survive_json(backoff: Backoff):
    """Each schedule survives JSON by itself, to the last bit."""
    assert backoff == backoff_from_dict(json.loads(json.dumps(backoff_to_dict(backoff))))


@pytest.mark.parametrize(
    "backoff",
    [
        Backoff.decorrelated(1, 20),
        Backoff.decorrelated(1, 20).envelope,
        Backoff.named("decay", initial=5.0, rate=0.5),
        Backoff.constant(1).up_to("1h", end="past"),
        Backoff.linear(1, 1).give_up_over(9),
        Backoff.exponential(1e-100, 1e300),
    ],
    ids=repr,
)
def test_rare_backoffs_survive_json_too(backoff: Backoff):
    """So do the schedules that the other tests do not make."""
    assert backoff == backoff_from_dict(json.loads(json.dumps(backoff_to_dict(backoff))))


def test_an_open_deadline_stays_open():
    """Deadlines that are left to the place are written as ``default``."""
    assert "default" == Policy().to_dict()["deadline"]
    assert Policy.from_dict(Policy().to_dict()) != Policy(deadline=None)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(on=callable), "on: a classifier is a function and cannot be stored"),
        (Policy(on_result=bool), "on_result: a predicate is a function"),
        (Policy(breaker=object()), "breaker: an object cannot be stored; register it under a key"),
        (Policy(backoff=type("Own", (Backoff,), {})()), "backoff: Own has no kind of its own"),
        (Policy() & Policy(hedge=object()), "hedge: an object cannot be stored"),
    ],
)
def test_functions_and_objects_cannot_be_written(policy: Policy, message: str):
    """Functions and objects in a policy are refused when it is written, with the field."""
    with pytest.raises(PolicyValueError) as refused:
        policy.to_dict()

    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("key", list(WRITTEN))
def test_no_key_may_be_missing(key: str):
    """Each key is required."""
    with pytest.raises(PolicyValueError, match=f"^policy: the key '{key}' is missing$"):
        Policy.from_dict({name: value for name, value in WRITTEN.items() if name != key})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", 2, "policy.version: 2 is not 1"),
        ("version", True, "policy.version: True is not 1"),
        ("retries", 5, "policy: there is no key 'retries'; there are version, on, attempts"),
        ("on", "OSError", "policy.on: 'OSError' is not a list"),
        ("on", [5], "policy.on: 5 is not a name"),
        ("on", [], "policy: on is empty"),
        ("attempts", "3", "policy: attempts='3'"),
        ("attempts", None, None),
        ("deadline", [], "policy: deadline: [] is not a duration"),
        ("attempt_timeout", "5", "policy: attempt_timeout: the number 5 has no unit"),
        ("backoff", None, "policy.backoff: None is not a mapping"),
        ("backoff", {}, "policy.backoff: the key 'kind' is missing"),
        ("backoff", {"kind": "sine"}, "policy.backoff.kind: 'sine' is not one of and, cap, constant"),
        ("backoff.left.of", {"kind": "constant"}, "policy.backoff.left.of: the key 'value' is missing"),
        ("backoff.left.n", "2", "policy.backoff.left: take('2')"),
        ("backoff.right.factor", 0, "policy.backoff.right: factor=0"),
        ("backoff.right.step", 0, "policy.backoff.right: there is no key 'step'"),
        ("jitter", 5, "policy.jitter: 5 is neither the name of a jitter"),
        ("jitter", "much", "policy.jitter: there is no jitter 'much'"),
        ("jitter", {"plus": "x"}, "policy.jitter: 'x' is no fraction"),
        ("jitter", {"minus": 1}, "policy.jitter: the key 'plus' is missing"),
        ("rules", {}, "policy.rules: {} is not a list"),
        ("rules.1", 5, "policy.rules[1]: 5 is not a mapping"),
        ("rules.0.on", None, "policy.rules[0].on: None is not a list"),
        ("rules.0.attempts", 0, "policy.rules[0]: Rule.attempts=0"),
        ("rules.0.backoff.values", 5, "policy.rules[0].backoff.values: 5 is not a list"),
        ("rules.0.backoff.values", [-1], "policy.rules[0].backoff: -1 is not a duration"),
        ("hints", [], "policy: hints=[]"),
        ("idempotent", 1, "policy: idempotent=1"),
        ("budget", 5, "policy.budget: 5 is not a key"),
    ],
)
def test_wrong_values_are_named(path: str, value: Any, message: str | None):
    """Wrong values are refused with their path."""
    if message is None:
        assert Policy.from_dict(changed(path, value)).attempts is None
        return
    with pytest.raises(PolicyValueError) as refused:
        Policy.from_dict(changed(path, value))

    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "policy: [] is not a mapping"),
        ({}, "policy: the key 'version' is missing"),
        ({"version": 1, "op": "^", "of": []}, "policy.op: '^' is not one of &, |, >>"),
        ({"version": 1, "op": "&", "of": [WRITTEN]}, "policy.of: an operator joins two policies, not 1"),
        ({"version": 1, "op": "&", "of": [WRITTEN, 5]}, "policy.of[1]: 5 is not a mapping"),
        ({"version": 1, "op": "&"}, "policy: the key 'of' is missing"),
        ({"version": 1, "op": "&", "of": {}}, "policy.of: {} is not a list"),
    ],
)
def test_invalid_data_is_refused(data: Any, message: str):
    """Data that is not a policy is refused with the path of the fault."""
    with pytest.raises(PolicyValueError) as refused:
        Policy.from_dict(data)

    assert str(refused.value).startswith(message)


def test_options_of_a_named_backoff_are_a_mapping():
    """Options of a named function must be a mapping of numbers."""
    written = {"kind": "named", "name": "fibonacci", "options": {"base": 2}}

    assert Backoff.named("fibonacci", base=2) == backoff_from_dict(written)
    with pytest.raises(PolicyValueError, match="backoff.options: 5 is not a mapping"):
        backoff_from_dict(written | {"options": 5})
    with pytest.raises(PolicyValueError, match="backoff: no backoff function 'sine' is registered"):
        backoff_from_dict(written | {"name": "sine"})
