"""Tests of `redrive.policy.policy`: the value and its figures."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

import redrive
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Jitter, Policy, Rule
from redrive.policy.backoff_kinds import Exponential

SECOND = timedelta(seconds=1)


def test_the_defaults():
    """Policies without arguments have the documented defaults."""
    policy = Policy()

    assert (None, 3, None, False) == (policy.on, policy.attempts, policy.deadline, policy.deadline_given)
    assert (Backoff.exponential("100ms", "5s"), Jitter.full) == (policy.backoff, policy.jitter)
    assert ("obey", "give_up", "outer", "all") == (policy.hints, policy.over_deadline, policy.nested, policy.groups)
    assert (None, None, ()) == (policy.idempotent, policy.catch, policy.rules)


def test_equal_policies_are_equal():
    """Policies with the same values in other forms are equal, and so are their hashes."""
    a = Policy(on=(OSError, "TIMEOUT"), deadline=60, jitter="full", rules=[Rule(KeyError, attempts=2)])
    b = Policy(on=["TIMEOUT", "builtins.OSError"], deadline="1m", rules=(Rule("KeyError", attempts=2),))

    assert a == b
    assert hash(a) == hash(b)


def test_a_deadline_that_was_given_is_another_policy():
    """Explicit ``deadline=None`` differs from a deadline that is left to the place."""
    assert Policy(deadline=None) != Policy()


@pytest.mark.parametrize("bounded", [{"deadline": "1h"}, {"catch": "recover"}])
def test_unlimited_attempts_need_a_bound(bounded: dict[str, str]):
    """Without a limit of attempts, another field must bound the call."""
    assert Policy(attempts=None, **bounded).attempts is None
    with pytest.raises(PolicyValueError, match="attempts=None retries without end"):
        Policy(attempts=None)


def test_a_mode_of_the_deadline_needs_a_deadline():
    """`over_deadline` is refused without a deadline."""
    with pytest.raises(PolicyValueError, match="over_deadline='defer' needs a deadline"):
        Policy(deadline=None, over_deadline="defer")
    assert "defer" == Policy(over_deadline="defer").over_deadline


# --- places


def test_in_process_has_its_defaults():
    """In process a call takes at most 45 s and is not idempotent by default."""
    policy = Policy(on=OSError).in_process()

    assert (45 * SECOND, False) == (policy.deadline, policy.idempotent)
    assert policy is policy.in_process()
    assert (None, True) == (
        Policy(on=OSError, deadline=None, idempotent=True).in_process().deadline,
        Policy(on=OSError, idempotent=True).in_process().idempotent,
    )


def test_in_process_must_name_the_retried_failures():
    """In process a policy must name the failures; results alone are enough, and then no exception is retried."""
    with pytest.raises(PolicyValueError, match="name the failures that may be retried"):
        Policy().in_process()
    assert () == Policy(on_result=bool).in_process().on


def test_durable_has_its_defaults():
    """Durable jobs are idempotent by default and have no deadline of their own."""
    policy = Policy().durable()

    assert (None, True, None) == (policy.deadline, policy.idempotent, policy.on)
    assert policy is policy.durable()
    assert Policy(idempotent=False) == Policy(idempotent=False).durable()


# --- forms


def test_a_directive_is_parsed():
    """Directives give a policy of retries, without jitter and without a deadline in any place."""
    policy = Policy.parse("10 5s 1m catch recover")

    assert Policy(attempts=11, deadline=None, backoff=Exponential(5, 60), jitter="none", catch="recover") == policy
    assert policy == Policy.parse("10 5s 1m catch recover", strict=True)


@pytest.mark.parametrize("strict", [False, True])
def test_a_directive_is_text(strict: bool):
    """Values that are not text are refused as directives."""
    with pytest.raises(PolicyValueError, match="a directive is text, not 5"):
        Policy.parse(5, strict=strict)


def test_the_representation_is_short():
    """Representations show only the differences from the defaults."""
    assert "Policy()" == repr(Policy())
    assert "Policy(attempts=5, deadline=None)" == repr(Policy(attempts=5, deadline=None))


# --- figures


def test_retries_are_attempts_less_one():
    """Retries are attempts less one, and unlimited with them."""
    assert (2, None) == (Policy().retries, Policy(attempts=None, deadline=9).retries)


def test_delays_are_nominal():
    """Delays are asked for by number, or for all retries; only an end of the backoff shortens them."""
    policy = Policy(attempts=4, backoff=Backoff.exponential(1))

    assert [1, 2, 4] == policy.delays()
    assert [1, 2, 4, 8, 16] == policy.delays(5)
    assert [1] == policy.with_(backoff=Backoff.constant(1).take(1)).delays(5)
    with pytest.raises(PolicyValueError, match="give the number of delays"):
        policy.with_(attempts=None, deadline=9).delays()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy.parse("2 1s catch x"), 4),
        (Policy.parse("5 1s"), 32),
        (Policy.parse("0 1s catch x"), 1),
        (Policy.parse("10 5s 1m"), 60),
        (Policy(attempts=None, catch="x", backoff=Backoff.exponential(1, 60)), 60),
        (Policy(backoff=Backoff.constant(0)), 1),
        (Policy(backoff=Backoff.listed([1, 7], end="stop")), 7),
        (Policy(backoff=Backoff.constant(7).take(0)), 1),
    ],
    ids=str,
)
def test_the_delay_of_a_catch_follows_the_last_retry(policy: Policy, expected: float):
    """Failed catch tasks are repeated at the delay that would follow the last retry, never without a delay."""
    assert expected * SECOND == policy.catch_delay


# --- limits


def test_take_and_up_to_only_narrow():
    """Taking retries and bounding the time narrow a policy and never widen it."""
    policy = Policy(attempts=5, deadline="1m")

    assert [3, 5, 1] == [policy.take(n).attempts for n in (2, 9, 0)]
    assert [30 * SECOND, 60 * SECOND] == [policy.up_to(total).deadline for total in ("30s", "2m")]
    assert 3 == Policy(attempts=None, deadline=9).take(2).attempts
    assert 9 * SECOND == Policy().up_to(9).deadline


@pytest.mark.parametrize("n", [-1, 2.5, True, "2"])
def test_take_requires_a_whole_number(n: object):
    """Numbers of retries are whole, and zero or more."""
    with pytest.raises(PolicyValueError, match="the number of retries is a whole number"):
        Policy().take(n)


def test_up_to_requires_a_duration():
    """Invalid durations of a limit are refused by the field's name."""
    with pytest.raises(PolicyValueError, match="up_to: -1 is not a duration"):
        Policy().up_to(-1)


def test_cap_reaches_the_rules():
    """Caps apply to the backoff of the policy and of its rules."""
    policy = Policy(attempts=9, rules=[Rule(KeyError, backoff=Backoff.constant(60)), Rule(OSError)]).cap("2s")

    assert 2 == max(policy.delays())
    assert [2.0] == policy.rules[0].backoff.delays(1)
    assert policy.rules[1].backoff is None


def test_the_import_is_light():
    """Importing policies loads neither an event loop nor what only the durable half needs."""
    code = "import sys, redrive.policy; print(*sys.modules)"
    environment = {"PYTHONPATH": str(next(iter(redrive.__path__)).removesuffix("redrive"))}
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert set() == {"asyncio", "msgspec", "dataclasses", "inspect", "logging"} & set(loaded.stdout.split())
