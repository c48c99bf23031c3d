"""Refreshes with real jobs and a dry run agree: the same starts, at the same instants, and the same end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import App, Context, Pending, RefreshPolicy
from redrive.schedule.dry_run import AttemptEnd, SimulatedAnswer, dry_run
from redrive.testing import VirtualClock, drain

BEGIN = datetime(2026, 3, 27, 22, 10, tzinfo=UTC)
"""Two days before a night in which Kyiv's clocks jump."""

SENTENCES = (
    ("", "Refresh every 2 hours", "Refresh every 30 minutes", "Refresh every day at 2:30 AM and 4 PM in Europe/Kyiv"),
    ("Allow 10 minutes", "Allow 1 hour"),
    (
        "",
        "On the first failure, retry immediately; on the second failure, retry after 20 minutes",
        "Retry after 3 hours",
    ),
    (
        "",
        "Make retries even when they overlap with scheduled refreshes",
        "Count attempts anew at each scheduled refresh",
    ),
    ("", "Give up after 5 hours without success", "Give up after 2 days without success"),
)


@st.composite
def policies(draw: st.DrawFn) -> RefreshPolicy:
    """Policies that differ in their schedules, timeouts, delays and strategies."""
    sentences = [draw(st.sampled_from(choice)) for choice in SENTENCES]
    return RefreshPolicy.parse("\n".join(filter(None, sentences)))


answers = st.builds(
    SimulatedAnswer, st.sampled_from(AttemptEnd), st.integers(0, 70).map(lambda minutes: timedelta(minutes=minutes))
)


def lived(policy: RefreshPolicy, script: list[SimulatedAnswer]) -> tuple[list[tuple[datetime, int]], object]:
    """Run real jobs until the script is used up; return the starts, one more at most, and the final state."""
    clock = VirtualClock(BEGIN)
    app = App("memory://", clock=clock)
    starts: list[tuple[datetime, int]] = []

    @app.refresh(policy)
    def table(context: Context) -> Pending | None:
        """End as the script requires."""
        starts.append((clock.now(), table.get("k").attempt_no))
        if len(starts) > len(script):
            table.untrack("k")
            return None
        answer = script[len(starts) - 1]
        if answer.ending is AttemptEnd.TIMEOUT or answer.after >= policy.timeout:
            return Pending("30d")
        clock.advance(answer.after)
        if answer.ending is AttemptEnd.FAILURE:
            raise ValueError(context.key)
        return None

    table.keeping(at_once=policy.schedule is None).track("k")
    drain(app, within="90d")
    left = table.tracked()
    assert () == app.database.verify()
    app.close()
    return starts, left[0].state if left else None


@settings(max_examples=60)  # each is up to ten jobs
@given(policies(), st.lists(answers, min_size=1, max_size=9))
def test_real_jobs_follow_the_recorded_moves(policy: RefreshPolicy, script: list[SimulatedAnswer]):
    """As many attempts start, at the same instants, with the same numbers, and end for the same reason."""
    played = dry_run(policy, script, start=BEGIN)
    starts, state = lived(policy, script)
    end = played.state
    count = len(played.attempts)

    assert [(each.began, each.number) for each in played.attempts] == starts[:count]
    over_at = None if None in (policy.give_up_after, end.failing_since) else end.failing_since + policy.give_up_after
    if end.refresh_at is not None and (over_at is None or end.refresh_at < over_at):
        assert [(end.refresh_at, end.attempt_no + 1)] == starts[count:]
    else:
        assert [] == starts[count:]
        assert end.disabled_reason in {state.disabled_reason, None}
        assert state.disabled_until_update or state.refresh_at is None
