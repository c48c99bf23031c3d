"""Workers of each kept version that run while the present version migrates their database, in real time.

The worker of the present version is that of this checkout. The code of a released version, with its
`tests.upgrades.work`, is taken from its tag, and installed into an environment of its own, under ``build/upgrades``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import redrive
from tests.acceptance.processes import Deployment, WorkerProcess
from tests.upgrades import kept

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

TARGET = "tests.upgrades.work:app"

PERIODIC = ("hourly", "prices", "remind")
"""The beginnings of the names of effects that may take place more than once."""

VERSIONS = [
    # A released version needs a package index.
    pytest.param(each, marks=[] if each == redrive.__version__ else pytest.mark.night)
    for each in kept.versions()
]


def installed(version: str) -> tuple[str, Path]:
    """Return the Python that has a version, and the checkout of that version."""
    if version == redrive.__version__:
        return sys.executable, kept.ROOT
    tag, folder = kept.tag_of(version), kept.ROOT / "build" / "upgrades" / version
    python = folder / "venv" / "bin" / "python"
    if not (folder / "stamp").exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", str(tag)], cwd=kept.ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x"], cwd=folder, check=True, input=archive)
        subprocess.run([sys.executable, "-m", "venv", "venv"], cwd=folder, check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", ".[cli,postgres]"], cwd=folder, check=True)
        (folder / "stamp").touch()
    return str(python), folder


class Upgrade:
    """A kept database with processes of its version and of the present one, which note their effects in one file."""

    def __init__(self, version: str, kind: str, folder: Path) -> None:
        url = kept.load(version, kind, folder)
        self.known, self.old, self.ledger = kept.read(version), installed(version), folder / "ledger"
        app = redrive.App(url)
        module: Any = SimpleNamespace(app=app)
        self.deployment = Deployment(folder, module, kind=kind)
        self._environment = {**os.environ, "UPGRADE_URL": url, "UPGRADE_LEDGER": str(self.ledger)}
        self._enqueuer, self.names = app.named("do"), set(self.known.unaided)

    def start(self, where: tuple[str, Path], *words: str) -> WorkerProcess:
        """Start a command of redrive with the Python and in the checkout of a version."""
        log = self.deployment.folder / f"process{len(self.deployment.processes)}.log"
        command = [where[0], "-m", "redrive", *words]
        with log.open("wb") as file:
            popen = subprocess.Popen(command, cwd=where[1], env=self._environment, stdout=file, stderr=file)
        self.deployment.processes.append(WorkerProcess(popen, log))
        return self.deployment.processes[-1]

    def run(self, *words: str) -> None:
        """Run a command of the present version."""
        process = self.start((sys.executable, kept.ROOT), *words)
        assert 0 == process.ended(), process.log.read_text()

    def worker(self, where: tuple[str, Path]) -> WorkerProcess:
        """Start a worker, and return when it serves."""
        process = self.start(where, "worker", TARGET)
        self.deployment.until(lambda: process.logged("serves all queues"))
        return process

    def stop(self, worker: WorkerProcess) -> None:
        """Stop a worker by its signal."""
        worker.popen.terminate()
        assert 0 == worker.ended(), worker.log.read_text()

    def enqueue(self, name: str) -> None:
        """Enqueue jobs from a program of the present version."""
        names = [f"{name} {number}" for number in range(50)]
        self._enqueuer.enqueue_many([{"name": each} for each in names])
        self.names.update(names)

    def effects(self) -> Counter[str]:
        """Return how often each effect has taken place."""
        return Counter(self.ledger.read_text().splitlines() if self.ledger.exists() else [])


@pytest.mark.parametrize("kind", kept.KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_old_workers_run_while_the_database_is_migrated(version: str, kind: str, tmp_path: Path):
    """While old workers run, the present version migrates, enqueues, and starts its own; all runs once."""
    upgrade = Upgrade(version, kind, tmp_path)
    with closing(upgrade.deployment):
        if kind == "postgres":
            upgrade.run("topics", "rebase", TARGET)
        upgrade.enqueue("before")
        old = upgrade.worker(upgrade.old)
        upgrade.run("db", "migrate", TARGET, "--phase", "pre")
        upgrade.enqueue("migrated")
        upgrade.deployment.until(lambda: upgrade.effects()["migrated 0"] == 1)
        new = upgrade.worker((sys.executable, kept.ROOT))
        upgrade.enqueue("both")
        upgrade.stop(old)
        upgrade.run("db", "migrate", TARGET, "--phase", "post")
        upgrade.enqueue("after")
        upgrade.deployment.until(lambda: upgrade.names <= upgrade.effects().keys())
        upgrade.stop(new)
        effects, findings = upgrade.effects(), upgrade.deployment.app.database.verify()

    assert {} == {name: count for name, count in effects.items() if count > 1 and not name.startswith(PERIODIC)}
    assert () == findings
