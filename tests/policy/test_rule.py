"""Tests of `redrive.policy.fields`."""

from __future__ import annotations

import pytest

from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Rule


def test_a_rule_has_a_name():
    """Rules are named by their position and their failures."""
    assert "rule 2 (TIMEOUT, OSError, httpx.ReadTimeout)" == Rule(("TIMEOUT", OSError, "httpx.ReadTimeout")).name(2)


def test_a_rule_keeps_what_it_is_given():
    """Rules keep names, backoff and attempts; the latter two may be left to the policy."""
    rule = Rule(OSError, backoff=Backoff.constant(1), attempts=5)

    assert (("builtins.OSError",), Backoff.constant(1), 5) == (rule.on, rule.backoff, rule.attempts)
    assert (None, None) == (Rule(OSError).backoff, Rule(OSError).attempts)


def test_a_rule_takes_no_classifier():
    """Classifiers are refused in a rule, with the alternative."""
    with pytest.raises(PolicyValueError, match="let the policy's classifier return a reason"):
        Rule(lambda error: True)


def test_a_rule_is_checked():
    """Rules refuse an invalid backoff, and less than one attempt."""
    with pytest.raises(PolicyValueError, match="backoff='5s' is not a Backoff"):
        Rule(OSError, backoff="5s")
    with pytest.raises(PolicyValueError, match="Rule.attempts=0"):
        Rule(OSError, attempts=0)
