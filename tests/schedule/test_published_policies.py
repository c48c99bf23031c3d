"""Dry runs of every refresh policy in the README, the documentation and the examples."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redrive.schedule import RefreshPolicy
from redrive.schedule.dry_run import AttemptEnd, DryRun, SimulatedAnswer, dry_run

ROOT = Path(__file__).parents[2]
FILES = sorted(
    {
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "benchmarks").rglob("*.py"),
    }
)
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPANS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
LIMIT = re.compile(r"give up (?:only )?after (?:a|an|one|(\d+)) (hour|day|week)s?\b", re.IGNORECASE)
LISTED = re.compile(r"^\W*On the \w+ failure, retry\b", re.IGNORECASE | re.MULTILINE)
T0 = datetime(2026, 1, 5, 8, tzinfo=UTC)
MOST = 2000


def texts_of(path: Path) -> Iterator[str]:
    """Return the texts that a file passes to ``RefreshPolicy.parse`` and to ``refresh``, and constants of policies."""
    text = path.read_text(encoding="utf-8")
    sources = [text] if path.suffix == ".py" else [each[1] for each in FENCE.finditer(text)]
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and node.args and _reads_a_policy(node.func):
                yield from _constants(node.args[0])
            elif isinstance(node, ast.Assign) and any(
                isinstance(each, ast.Name) and each.id == "POLICY" for each in node.targets
            ):
                yield from _constants(node.value)


def _reads_a_policy(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute):
        return False
    of = function.value.id if isinstance(function.value, ast.Name) else ""
    return (of, function.attr) in {("RefreshPolicy", "parse"), ("app", "refresh")}


def _constants(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


FOUND = [
    pytest.param(text, id=f"{path.relative_to(ROOT)}:{number}")
    for path in FILES
    for number, text in enumerate(dict.fromkeys(texts_of(path)))
]


def played(policy: RefreshPolicy, ending: AttemptEnd) -> DryRun:
    """Return the dry run of a policy with attempts that all fail."""
    return dry_run(policy, itertools.repeat(SimulatedAnswer(ending), MOST), start=T0)


def test_policies_are_found():
    """Policies are found in the README, in the how-to pages and in the examples."""
    names = [str(each.id).rpartition(":")[0] for each in FOUND]

    assert {"README.md", "docs/how-to/keep-data-fresh.md", "docs/how-to/keep-data-fresh-managed.md"} <= set(names)
    assert {"examples/big_tables/plan.py", "docs/reference/schedule.md"} <= set(names)
    assert 6 <= names.count("docs/how-to/keep-data-fresh.md")


@pytest.mark.parametrize("ending", [AttemptEnd.FAILURE, AttemptEnd.TIMEOUT])
@pytest.mark.parametrize("text", FOUND)
def test_a_published_policy_ends_as_documented(text: str, ending: AttemptEnd):
    """Policies with a limit in time end with it, and others with the last listed retry."""
    policy = RefreshPolicy.parse(text)
    seen = played(policy, ending)
    assert seen.state.disabled_until_update, f"it has not ended after {MOST} failures"
    limit = LIMIT.search(text)
    took = seen.attempts[-1].ended - seen.attempts[0].began
    if limit is None:
        listed = len(policy.delays)
        if LISTED.search(text):
            assert len(LISTED.findall(text)) == listed
        assert f"Cannot refresh after {listed + 1} attempt(s)" == seen.state.disabled_reason
        assert listed + 1 == len(seen.attempts)
        return
    span = int(limit[1] or 1) * SPANS[limit[2].lower()]
    assert "No successful refresh for too long" == seen.state.disabled_reason
    assert span / 2 < took <= span + policy.timeout, "it has gone on until its limit"


def test_the_policy_of_the_readme_retries_for_a_week():
    """Two planned refreshes a day, with two listed retries each."""
    (text,) = texts_of(ROOT / "README.md")

    assert 7 * 2 * 3 == len(played(RefreshPolicy.parse(text), AttemptEnd.FAILURE).attempts)


def test_a_daily_refresh_without_retries_continues_for_a_week():
    """Without retries there is one attempt a day, at 9 AM, for at most a week."""
    policy = RefreshPolicy.parse("Refresh every day at 9 AM; Give up after one week without success")
    seen = played(policy, AttemptEnd.FAILURE)

    assert [T0 + timedelta(days=day, hours=1) for day in range(7)] == [each.began for each in seen.attempts]
    assert "No successful refresh for too long" == seen.state.disabled_reason
