"""Hypothesis strategies for the values of `redrive.policy`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from redrive.policy import Backoff, Decision, Failure, History, Jitter, Policy, Retry, Rule, Stage

START = datetime(2026, 1, 1, tzinfo=UTC)
_ZERO = timedelta(0)

samples = st.floats(0, 1, exclude_max=True)
lengths = st.one_of(st.integers(0, 10**6), st.floats(0, 1e6), st.floats(0, 1e-3))
"""Delays in seconds, of all sizes."""

ranges = st.tuples(lengths, lengths).map(lambda pair: (min(pair), max(pair)))
"""A first delay, and a longest one."""

open_ranges = ranges | lengths.map(lambda first: (first, None))
"""A first delay, and a longest one or None."""

spans = st.timedeltas(timedelta(0), timedelta(days=1000))

plain_backoffs = st.one_of(
    st.builds(Backoff.constant, lengths),
    st.builds(lambda range_, factor: Backoff.exponential(*range_, factor), open_ranges, st.floats(1, 10)),
    st.builds(Backoff.listed, st.lists(lengths, min_size=1, max_size=5), end=st.sampled_from(["repeat", "stop"])),
    st.builds(lambda range_, step: Backoff.linear(range_[0], step, range_[1]), open_ranges, lengths),
    st.builds(lambda base: Backoff.named("fibonacci", base=base), st.floats(0, 10)),
)

backoffs = st.recursive(
    plain_backoffs,
    lambda parts: st.one_of(
        st.builds(lambda a, b: a & b, parts, parts),
        st.builds(lambda a, b: a | b, parts, parts),
        st.builds(lambda a, b: a >> b, parts, parts),
        st.builds(lambda a, b: a + b, parts, parts),
        st.builds(lambda a, n: a.take(n), parts, st.integers(0, 6)),
        st.builds(lambda a, t: a.cap(t), parts, lengths),
        st.builds(lambda a, t: a.floor(t), parts, lengths),
    ),
    max_leaves=4,
)
"""Schedules that draw no delays, composed ones included."""

jitters = st.one_of(
    st.sampled_from([Jitter.none, Jitter.full, Jitter.equal]),
    st.builds(Jitter.plus, st.floats(0, 3)),
    st.builds(Jitter.added, lengths),
)

NAMES = ("builtins.OSError", "builtins.ValueError", "app.Busy", "TIMEOUT", "ERROR")
names = st.sampled_from(NAMES)
bounds = st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=10))


def _some(values: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(values, min_size=1, max_size=3, unique=True)


rules = st.builds(Rule, _some(names), backoff=st.none() | backoffs, attempts=st.none() | st.integers(1, 5))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Policies of all kinds that can be stored, not combined ones."""
    deadline = draw(st.just(...) | bounds)
    return Policy(
        on=draw(st.none() | _some(names)),
        attempts=draw(st.integers(1, 8)),
        deadline=deadline,
        attempt_timeout=draw(bounds),
        backoff=draw(backoffs),
        jitter=draw(jitters),
        rules=draw(st.lists(rules, max_size=3)),
        catch=draw(st.none() | st.sampled_from(["recover", "payments.recover"])),
        hints=draw(st.sampled_from(["obey", "ignore", "ai"])),
        max_hint=draw(bounds),
        over_deadline="give_up" if deadline is None else draw(st.sampled_from(["give_up", "defer", "truncate"])),
        nested=draw(st.sampled_from(["outer", "both"])),
        groups=draw(st.sampled_from(["all", "any", "never"])),
        idempotent=draw(st.none() | st.booleans()),
        budget=draw(st.just(...) | st.none() | st.just("shared")),
    )


_ENDS = ("builtins.Exception",)
_types = st.sampled_from(
    [
        ("builtins.OSError", *_ENDS),
        ("builtins.ConnectionError", "builtins.OSError", *_ENDS),
        ("builtins.ValueError", *_ENDS),
        ("app.Busy", *_ENDS),
        ("builtins.KeyboardInterrupt", "builtins.BaseException"),
    ]
)
plain_failures = st.builds(
    Failure,
    _types,
    st.just("it failed"),
    st.sampled_from(["ERROR", "TIMEOUT", "RETRY_AFTER", "KV_LOCKED"]),
    st.sampled_from(Stage),
    hint=st.none() | spans,
    permanent=st.none() | st.none() | st.just("no such account"),
    candidate=st.none() | st.none() | st.booleans(),
    leaves=st.just(()),
    rejected_by=st.none(),  # failures by exceptions; tests of results give the predicates that reject them
)
failures = plain_failures | st.builds(
    lambda leaves: Failure(("builtins.ExceptionGroup", "builtins.Exception"), "several", leaves=tuple(leaves)),
    st.lists(plain_failures, min_size=1, max_size=3),
)

histories = st.builds(
    History,
    st.integers(1, 10),
    st.just(START),
    st.none() | spans,
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
nows = st.timedeltas(timedelta(0), timedelta(days=20)).map(START.__add__)


def journey(
    policy: Policy,
    failed: Iterable[Failure],
    draws: Iterable[float],
    *,
    now: datetime = START,
    takes: timedelta = _ZERO,
) -> list[Decision]:
    """Return the decisions of a policy for the failures of one call, up to the first that is not a retry.

    Args:
        policy: the policy.
        failed: the failures, in order.
        draws: a sample for each.
        now: the instant of the first failure; the call starts at `START`.
        takes: duration of each later attempt."""
    decisions: list[Decision] = []
    history = History(1, START)
    for failure, sample in zip(failed, draws, strict=False):
        decision = policy.decide(history, failure, now, sample)
        decisions.append(decision)
        if not isinstance(decision, Retry):
            break
        history = policy.advance(history, failure, decision.delay, now=now, sample=sample)
        now += decision.delay + takes
    return decisions
