"""Rows of a plan: the decisions of `Policy.decide`, computed without waiting."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from redrive.plan.kinds import kinds
from redrive.plan.rows import Band, InTime, PolicyPlan, Row, plan_of
from redrive.policy import Backoff, Failure, History, Jitter, Policy, Retry, Rule

START = datetime(2025, 1, 1, tzinfo=UTC)


def made(policy: Policy, retries: int = 20) -> PolicyPlan:
    """Return a plan, whatever its name."""
    return plan_of(policy, title="a policy", retries=retries)


def seconds(band: Band) -> tuple[float, float, float]:
    """Low, nominal, high."""
    return band.low.total_seconds(), band.nominal.total_seconds(), band.high.total_seconds()


def rows(policy: Policy, retries: int = 20) -> tuple[Row, ...]:
    """Return the rows of the first section."""
    return made(policy, retries).sections[0].rows


def named(policy: Policy) -> dict[str, tuple[str, list[float]]]:
    """Of each section by its name: the detail, and when each retry comes at the latest."""
    return {
        each.name: (each.detail, [row.at.high.total_seconds() for row in each.rows]) for each in made(policy).sections
    }


def steady(**changes: object) -> Policy:
    """Return a policy without jitter or deadline that waits a second each time, with changes."""
    arguments = {"attempts": 4, "deadline": None, "backoff": Backoff.constant(1), "jitter": "none", **changes}
    return Policy(**arguments)


# ------------------------------------------------------------------------------------------------------------- figures


def test_a_directive_is_certain():
    """Without jitter each wait and each moment is one figure."""
    found = rows(Policy.parse("3 1s"))

    assert [(1, 1, 1), (2, 2, 2), (4, 4, 4)] == [seconds(row.wait) for row in found]
    assert [(1, 1, 1), (3, 3, 3), (7, 7, 7)] == [seconds(row.at) for row in found]
    assert all(row.at.certain and row.in_time is InTime.YES for row in found)


@pytest.mark.parametrize(
    ("jitter", "waits"),
    [
        (Jitter.full, [(0, 1, 1), (0, 2, 2)]),
        (Jitter.equal, [(0.5, 1, 1), (1, 2, 2)]),
        (Jitter.plus(0.5), [(1, 1, 1.5), (2, 2, 3)]),
    ],
)
def test_jitter_is_a_band(jitter, waits):
    """From the lowest draw to the highest, with the wait before jitter beside them."""
    found = rows(steady(attempts=3, backoff=Backoff.exponential(1), jitter=jitter))

    assert waits == [seconds(row.wait) for row in found]


def test_a_floor_is_the_lower_end_of_the_band():
    """Jitter does not go below the floor of a backoff, and neither does the band."""
    (row,) = rows(steady(attempts=2, backoff=Backoff.constant(4).floor(3), jitter="full"))

    assert (3, 4, 4) == seconds(row.wait)


def test_a_random_backoff_is_drawn_as_a_band():
    """Each wait is at most three times the longest before it, and at least the shortest."""
    found = rows(steady(backoff=Backoff.decorrelated(1, 20), jitter=None))

    assert [(1, 3, 3), (1, 9, 9), (1, 20, 20)] == [seconds(row.wait) for row in found]
    assert (3, 32, 32) == seconds(found[-1].at)


COMMON = {"on": OSError, "deadline": None}
POLICIES = {
    "directive": Policy.parse("6 1s 10s"),
    "full": Policy(attempts=6, deadline="4s", backoff=Backoff.exponential("500ms")),
    "equal": Policy(attempts=6, deadline="9s", jitter="equal", backoff=Backoff.linear("1s", "500ms")),
    "drawing": Policy(attempts=6, deadline=None, backoff=Backoff.decorrelated("1s", "8s")),
    "truncate": Policy(attempts=6, deadline="4s", over_deadline="truncate", backoff=Backoff.constant("1500ms")),
    "rules": Policy(
        attempts=4,
        deadline="20s",
        rules=(Rule(OSError, attempts=3, backoff=Backoff.constant(2)), Rule("TIMEOUT", backoff=Backoff.listed([1, 5]))),
    ),
    "both": Policy(**COMMON, attempts=5) & Policy(**COMMON, attempts=4, backoff=Backoff.constant(1), jitter="none"),
    "either": Policy(**COMMON, attempts=5) | Policy(**COMMON, backoff=Backoff.constant(1), jitter="none"),
    "then": Policy(**COMMON, attempts=2, jitter="none") >> Policy(**COMMON, backoff=Backoff.constant(9)),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_each_decided_retry_is_within_its_band(policy):
    """For any random sample, each decided retry is in the plan, within its band."""
    samples = (number * 0.618034 % 1 for number in count())  # spread evenly over [0, 1)
    drawn = {section.name: section.rows for section in made(policy).sections}
    for kind in kinds(policy):
        for _ in range(50):
            happened = list(journey(policy, kind.failure, samples))
            assert len(happened) <= len(drawn[kind.name])
            for row, (wait, at) in zip(drawn[kind.name], happened, strict=False):
                assert row.wait.low <= wait <= row.wait.high
                assert row.at.low <= at <= row.at.high
                assert not row.struck


def journey(policy: Policy, failure: Failure, samples: Iterator[float]) -> Iterator[tuple[timedelta, timedelta]]:
    """Return the waits and moments of the retries after consecutive failures; attempts take no time."""
    history, at = History(1, START), timedelta(0)
    while True:
        now, sample = START + at, next(samples)
        decision = policy.decide(history, failure, now, sample)
        if not isinstance(decision, Retry) or decision.rule == "deadline":
            return
        at += decision.delay
        yield decision.delay, at
        history = policy.advance(history, failure, decision.delay, now=now, sample=sample)


# ------------------------------------------------------------------------------------------------------------ deadline


def test_a_retry_past_the_deadline_is_struck_through():
    """Show its wait as if there were no deadline; the call ends before it."""
    plan = made(steady(attempts=5, deadline="5s", backoff=Backoff.exponential(1)))
    (section,) = plan.sections

    assert ["yes", "yes", "no", "no"] == [row.in_time for row in section.rows]
    assert [1, 3, 7, 15] == [row.at.nominal.total_seconds() for row in section.rows]
    assert (3, 3, 3) == seconds(section.ends)


def test_a_wait_that_ends_at_the_deadline_does_not_fit():
    """As in `decide`, which begins no wait that would end there."""
    assert ["yes", "no", "no"] == [row.in_time for row in rows(steady(deadline="2s"))]


def test_jitter_may_decide_about_the_deadline():
    """If the shortest waits fit and the longest do not, the end is open."""
    (section,) = made(steady(deadline="2500ms", jitter="equal")).sections

    assert ["yes", "yes", "maybe"] == [row.in_time for row in section.rows]
    assert section.ends is None


def test_a_deferred_retry_happens():
    """Show a deferred retry after the deadline without striking it."""
    found = rows(steady(deadline="2500ms", over_deadline="defer"))

    assert ["yes", "yes", "deferred"] == [row.in_time for row in found]
    assert not found[-1].struck


def test_a_truncated_wait_ends_at_the_deadline():
    """No call follows it, so its retry is struck; the end is the deadline and not the failure before it."""
    (section,) = made(steady(deadline="2500ms", over_deadline="truncate")).sections

    assert ["yes", "yes", "no"] == [row.in_time for row in section.rows]
    assert (2.5, 2.5, 2.5) == seconds(section.ends)


# ----------------------------------------------------------------------------------------------------------------- end


@pytest.mark.parametrize(
    ("policy", "number", "rest"),
    [
        (steady(), 3, ""),
        (steady(attempts=6), 5, ""),
        (steady(attempts=7), 5, "and so on, up to retry 6"),
        (steady(attempts=None, catch="recover"), 5, "and so on without end"),
        (steady(attempts=None, deadline="1h"), 5, "and so on until the deadline"),
        (steady(attempts=None, deadline="2500ms", over_deadline="defer"), 5, "and so on without end"),
        (steady(attempts=None, deadline="2500ms"), 3, ""),
        (steady(attempts=None, catch="recover", backoff=Backoff.listed([1, 2], end="stop")), 2, ""),
        (Policy.parse("999999999999999999 1s"), 5, "and so on, up to retry 999999999999999999"),
    ],
)
def test_long_policies_are_cut(policy, number, rest):
    """At most as many rows as asked for, and words for the rest; without a limit one struck retry is enough."""
    (section,) = made(policy, retries=5).sections

    assert (number, rest) == (len(section.rows), section.rest)
    assert section.ends is None or not rest


def test_the_catch_comes_last_at_its_interval():
    """FTL's frozen backoff: the delay that would follow the last retry."""
    plan = made(Policy.parse("2 1s catch recover"))

    assert ("recover", timedelta(seconds=4)) == (plan.catch.task, plan.catch.every)
    assert (3, 3, 3) == seconds(plan.sections[0].ends)


def test_a_plan_without_retries_has_a_note():
    """Without retries a catch comes at once."""
    (section,) = made(Policy.parse("0 catch recover")).sections

    assert ("no retry", (), (0, 0, 0)) == (section.detail, section.rows, seconds(section.ends))


def test_a_thousand_waits_of_a_thousand_years_can_be_drawn():
    """Durations saturate, and the sums of as many as can be asked for remain durations."""
    found = rows(Policy.parse("1000 365250d"), retries=1000)

    assert 365_250_000 == found[-1].at.high.days


# --------------------------------------------------------------------------------------------------------------- kinds


def test_each_rule_is_a_section():
    """Each rule has a section with its own schedule and count, after the failures without a rule."""
    policy = steady(
        on=(ConnectionError, TimeoutError, "HTTP_429", "app.Locked"),
        rules=(
            Rule(TimeoutError, attempts=2, backoff=Backoff.constant(10)),
            Rule(("HTTP_429", "app.Locked"), backoff=Backoff.constant(60)),
        ),
    )

    assert {
        "ConnectionError": ("", [1, 2, 3]),
        "rule 1 (TimeoutError)": ("counted apart", [10]),
        "rule 2 (HTTP_429, app.Locked)": ("counted together with the others", [60, 120, 180]),
    } == named(policy)


def test_a_rule_that_is_never_met_is_noted():
    """Earlier rules take the failures of a later one, also by their ancestor classes."""
    policy = steady(rules=(Rule(OSError, attempts=2), Rule(TimeoutError, attempts=9)))

    assert "never met: an earlier rule takes these failures" == named(policy)["rule 2 (TimeoutError)"][0]


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (steady(on=TimeoutError, rules=(Rule(OSError, attempts=2),)), "any other failure"),
        (steady(rules=(Rule(Exception, attempts=2),)), "any other failure"),
    ],
)
def test_rules_may_cover_all_failures(policy, name):
    """If rules cover all failures, no row for other failures is drawn."""
    assert ("never met: the rules take all failures that this policy retries", []) == named(policy)[name]


def test_a_classifier_is_taken_to_accept():
    """In process a function may choose the failures; the plan is about those that it accepts."""
    assert {"any failure": ("", [1, 2, 3])} == named(steady(on=lambda error: True))


def test_the_parts_of_a_combination_may_differ():
    """Failures that only one part retries follow that part; failures with equal plans share a section."""
    policy = steady(on=(OSError, "app.Slow"), attempts=3) | steady(on="app.Locked", backoff=Backoff.constant(5))

    assert {"app.Locked": ("", [5, 10, 15]), "app.Slow, OSError": ("", [1, 2])} == named(policy)


def test_a_combination_may_retry_anything():
    """If a part retries any failure, a section covers the failures that no part names."""
    policy = steady(attempts=2) & steady(rules=(Rule("app.Slow", backoff=Backoff.constant(5)),))

    assert {"any other failure": ("", [1]), "app.Slow": ("", [5])} == named(policy)


def test_limits_of_a_policy_add_no_kind_of_failure():
    """Bounds on all retries and minimums of all waits add neither a kind of failure nor a note about hints."""
    ruled = steady(on=OSError, rules=(Rule("app.Slow", attempts=9),), deadline=None).take(2)
    lifted = steady(on=OSError, attempts=2).at_least(7)

    assert {"OSError": [1, 2], "app.Slow": []} == {name: waits for name, (_, waits) in named(ruled).items()}
    assert {"OSError": ("", [7])} == named(lifted)
    assert not [note for note in (*made(ruled).notes, *made(lifted).notes) if "Hints" in note]
    assert {"any failure": ("", [7])} == named(lifted.right.with_(attempts=2) & lifted.right)


# --------------------------------------------------------------------------------------------------------------- notes


@pytest.mark.parametrize(
    ("policy", "note"),
    [
        (steady(attempt_timeout="5s"), "attempts are drawn as taking no time (each may take up to 5s)."),
        (steady(max_hint="1h"), "A hint (Retry-After) of more than 1h ends the call."),
        (steady(hints="ignore"), "Hints (Retry-After) are ignored, except those that a handler raises."),
        (
            steady(deadline="1m"),
            "The deadline is 1m after the start: a wait that would not end before it is not begun.",
        ),
        (Policy(), "No deadline is named: that means 45s for a call in process, and none for a job."),
        (steady(idempotent=False), "A call whose outcome is unknown (a timeout, a lost connection) is not repeated."),
        (steady(), "is repeated by a job, and in process only with idempotent=True."),
        (steady(budget="the \x1bbank"), "The budget 'the \\u001bbank' can refuse a retry that is drawn here."),
        (steady(breaker="bank"), "The breaker 'bank' can refuse a retry that is drawn here."),
        (steady(rules=(Rule(OSError),)), "Each part is drawn as if all failures were of its kind."),
        (steady(backoff=Backoff.smooth(1)), "drawn for equal random samples"),
    ],
)
def test_parts_that_cannot_be_drawn_are_named(policy, note):
    """Name each part that cannot be drawn in one sentence."""
    assert note in " ".join(made(policy).notes)


def test_the_deadlines_of_a_combination_are_distinguished():
    """Show the deadline of each part, and none for the combination."""
    notes = made(steady(deadline="1m") | steady(deadline="2m")).notes

    assert ["A deadline is 1m", "A deadline is 2m"] == [note[:16] for note in notes if "deadline is" in note]


def test_a_part_without_retries_ends_a_combination():
    """Strike no retry, since none would follow, even if the deadline of the other part ended it first."""
    assert {"any failure": ("no retry", [])} == named(steady(deadline="500ms") & steady(attempts=1))


@pytest.mark.parametrize(
    ("policy", "hinted"), [(steady(), True), (steady(hints="ai"), True), (steady(hints="ignore"), False)]
)
def test_a_hint_may_make_waits_longer(policy, hinted):
    """Unless hints are ignored."""
    assert hinted is made(policy).hinted
