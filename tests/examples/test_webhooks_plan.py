"""The receiver's misbehaviour is a pure function of seed and event."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from plan import Act, Plan, plan_for

IDS = [f"evt_{number:04}" for number in range(1, 301)]
PLANS = [plan_for(7, event_id) for event_id in IDS]
FOLDER = Path(__file__).parents[2] / "examples" / "webhooks"


@given(st.integers(), st.text())
def test_the_same_arguments_give_the_same_plan(seed, event_id):
    """Plans depend on their seed and their event alone."""
    assert plan_for(seed, event_id) == plan_for(seed, event_id)


def test_a_plan_is_the_same_in_another_process():
    """Hash randomisation, which differs between processes, does not change a plan."""
    code = "from plan import plan_for; print([plan_for(7, f'evt_{n:04}') for n in range(1, 301)] )"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=FOLDER,
        env={"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(PLANS) == run.stdout.strip()


def test_another_seed_gives_other_plans():
    """Another seed changes the plan of most events."""
    differing = sum(plan_for(8, event_id) != plan for event_id, plan in zip(IDS, PLANS, strict=True))
    assert differing > 150


def test_the_default_plan_contains_every_fault():
    """Every act happens to some of the 300 events, at the default seed."""
    acts = {plan.act(request) for plan in PLANS for request in range(1, 8)}
    assert set(Act) == acts


def test_the_default_plan_has_events_that_never_recover_and_events_with_410():
    """Of the 300 events some always end in 500, some in 410, and the others are accepted."""
    endings = Counter(plan.ending for plan in PLANS)
    assert {Act.ACCEPT, Act.ERROR, Act.GONE} == set(endings)
    assert min(endings[Act.ERROR], endings[Act.GONE]) >= 5
    assert endings[Act.ACCEPT] >= 270


@given(st.integers(), st.text())
def test_faults_end_within_the_retries_of_the_delivery(seed, event_id):
    """Events have at most three troubles before their ending, so six retries always reach the ending."""
    assert len(plan_for(seed, event_id).troubles) <= 3


def test_requests_get_the_faults_in_order_and_then_the_ending():
    """Requests get the acts in order, and all later ones the ending."""
    plan = Plan((Act.BUSY, Act.SLOW), Act.ACCEPT)
    assert [Act.BUSY, Act.SLOW, Act.ACCEPT, Act.ACCEPT] == [plan.act(request) for request in (1, 2, 3, 99)]
