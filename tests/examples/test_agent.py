"""The support agent of the examples, as its README has it: in virtual time, and with a worker that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from redrive.testing import drain, using_app
from tests.web.client import Operator

AGENT = Path(__file__).parents[2] / "examples" / "agent"

PATIENCE = 90
"""Seconds after which a waiting test fails."""

LINES = [
    "model: answer 1",
    "shop: tea-7 was looked up",
    "model: answer 2",
    "bank: 500 cents for tea-7 to ann@example.org",
    "model: answer 3",
    "mail: to ann@example.org: Your 500 cents are on the way.",
    "model: answer 4",
]
QUESTION = "Half of it was broken: order tea-7."
ANSWER = "Order tea-7 is refunded, and ann@example.org has mail."


@pytest.fixture
def support(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the module, with a ledger and a database in a folder of the test."""
    monkeypatch.syspath_prepend(str(AGENT))
    monkeypatch.setenv("SUPPORT_LEDGER", str(tmp_path / "ledger.txt"))
    monkeypatch.setenv("SUPPORT_URL", f"sqlite:///{tmp_path}/support.db")
    monkeypatch.setenv("SUPPORT_PAUSE", "0")
    import support

    yield support
    support.app.close()
    sys.modules.pop("support", None)


def test_the_agent_does_each_thing_once(support: ModuleType):
    """The order is looked up, refunded and answered, in steps of a run."""
    with using_app(support.app):
        run = support.support.start("ann@example.org", QUESTION)
        drain(support.app)

        assert run.result() == ANSWER
        assert len(run.timeline()) == len(LINES)
    assert LINES == support.LEDGER.read_text().splitlines()


def test_the_run_is_a_page_of_the_dashboard(support: ModuleType):
    """The page of the run has a row for each answer of the model and each call of a tool."""
    with using_app(support.app):
        run = support.support.start("ann@example.org", QUESTION)
        drain(support.app)
        page = str(Operator(support.app).read(f"/runs/support/{run.id}"))

    assert "support__model.request" in page
    for tool in ("look_up", "refund", "write"):
        assert f".call_tool:{tool}" in page


@pytest.mark.acceptance
@pytest.mark.slow
@pytest.mark.realtime
def test_the_program_runs_as_the_readme_says(tmp_path: Path):
    """The worker is killed between two tools, and nothing that is recorded is done again."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(AGENT.parents[1] / "src"),
        "SUPPORT_LEDGER": str(tmp_path / "ledger.txt"),
        "SUPPORT_URL": f"sqlite:///{tmp_path}/support.db",
        "SUPPORT_PAUSE": "0.5",
    }
    done = subprocess.run(
        [sys.executable, str(AGENT / "play.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert ANSWER in done.stdout
    lines = (tmp_path / "ledger.txt").read_text().splitlines()
    effects = [line for line in LINES if not line.startswith("model")]
    assert effects == [line for line in lines if not line.startswith("model")]
    assert "support__model.request: ok" in done.stdout
