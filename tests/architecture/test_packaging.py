"""Contents of the wheel, and agreement of the pinned versions."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.architecture.source import PACKAGE, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = sorted((ROOT / "requirements").glob("*.txt"))
EXTRAS = PROJECT["optional-dependencies"]

# As if only the core dependencies were installed.
ALONE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        known = sys.stdlib_module_names | {"redrive", "cronsim", "dateutil", "msgspec", "six"}
        if top not in known and not top.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""

PROGRAM = """
import asyncio
import sys
from datetime import UTC, datetime

import redrive
from redrive.runtime.worker import Worker
from redrive.schedule import Schedule

app = redrive.App("sqlite:///jobs.db")

@redrive.retry("3 1ms", on=OSError)
def fetch():
    return "fetched"

@app.task
def greet(name: str) -> str:
    return f"Hello {name}"

@app.cron("0 6 * * *")
def report() -> None:
    pass

daily = Schedule(rules=["FREQ=DAILY;BYHOUR=6"], start=datetime(2026, 1, 1))
job = greet.enqueue("Ada")
asyncio.run(Worker(app, until_empty=True).run())
print(fetch(), job.refresh().state, job.result(), next(daily.since(datetime(2026, 1, 1, tzinfo=UTC))).hour)
"""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the names of the files in a wheel built from this checkout."""
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_the_whole_package(shipped: set[str]):
    """Wheels contain each module, each SQL file and the typing marker."""
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}

    assert set() == {path.relative_to(PACKAGE.parent).as_posix() for path in files} - shipped
    assert "redrive/py.typed" in shipped


def test_the_wheel_has_the_demo(shipped: set[str]):
    """Wheels contain the sources of the demo, so that `redrive demo` works without a checkout."""
    example = ROOT / "examples" / "webhooks"
    files = {path.relative_to(example).as_posix() for suffix in ("*.py", "*.jsonl") for path in example.rglob(suffix)}

    assert files
    assert set() == {f"redrive/_examples/webhooks/{file}" for file in files} - shipped


def test_the_wheel_has_no_other_files(shipped: set[str]):
    """Wheels contain no tests, no caches and no databases."""
    strange = {file for file in shipped if not file.startswith(("redrive/", "redrive-"))}

    assert set() == strange | {file for file in shipped if re.search(r"__pycache__|\.db|\.pyc", file)}


@pytest.mark.parametrize("path", PINS, ids=lambda path: path.name)
def test_pins_name_versions_and_no_indexes(path: Path):
    """Each line of a requirements file is a name and a version: no index, no address, no path."""
    lines = path.read_text().splitlines()

    assert lines
    assert [] == [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+( ; .+)?", line)]


def test_pins_agree():
    """Packages that several requirements files name have the same version in all of them."""
    versions: dict[str, set[str]] = {}
    for line in (line for path in PINS for line in path.read_text().splitlines()):
        package, _, version = line.partition(" ;")[0].partition("==")
        versions.setdefault(package, set()).add(version)

    assert {} == {package: found for package, found in versions.items() if len(found) > 1}


def test_runtime_pins_cover_the_declared_dependencies():
    """Runtime requirements are the core dependencies of the package."""
    declared = {re.split(r"[\[<>=;]", dependency)[0] for dependency in PROJECT["dependencies"]}
    wanted = {
        line for line in (ROOT / "requirements" / "runtime.in").read_text().splitlines() if not line.startswith("#")
    }
    pinned = {line.split("==")[0] for line in (ROOT / "requirements" / "runtime.txt").read_text().splitlines()}

    assert declared == wanted
    assert set() == declared - pinned


def alone(folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run code where only redrive and its core dependencies can be imported."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", ALONE + code, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)


def test_the_core_dependencies_run_jobs(tmp_path: Path):
    """A retried call, a job, crons, and a worker in a program need none of the extras."""
    result = alone(tmp_path, PROGRAM)

    assert ("fetched succeeded Hello Ada 6\n", 0) == (result.stdout, result.returncode), result.stderr


def test_the_command_names_its_extra(tmp_path: Path):
    """Without the extra `cli` the command prints one line with what to install, and exits with status 2."""
    script = PROJECT["scripts"]["redrive"].replace(":", " import ")
    result = alone(tmp_path, f"from {script}\nmain()", "worker", "shop:app")
    line = (
        "redrive: this needs a package that is not installed: pip install \"redrive[cli]\" (No module named 'typer')\n"
    )

    assert (line, 2) == (result.stderr, result.returncode)


def test_the_extra_all_has_all_others():
    """`redrive[all]` installs each extra, and `redrive[web]` the command line."""
    (everything,) = EXTRAS["all"]

    assert sorted(set(EXTRAS) - {"all"}) == re.findall(r"[\w-]+", everything)[1:]
    assert "redrive[cli]" in EXTRAS["web"]


def test_one_dependency_has_an_upper_bound():
    """Programs that use redrive choose their own versions: a bound needs a reason that a test proves.

    Another order or other names of Pydantic AI's operations would hold all runs that wait, as
    ``tests/contrib/pydantic_ai`` shows.
    """
    named = itertools.chain(PROJECT["dependencies"], *EXTRAS.values())

    bounded = [each for each in named if re.search("<|==", each.partition(";")[0])]
    assert ["pydantic-ai-slim>=2.68,<3"] == bounded


def test_pages_with_commands_install_them():
    """Each page with a command of redrive names an installation that has the command."""
    guides = (each for folder in ("tutorial", "how-to", "operate") for each in (ROOT / "docs" / folder).glob("*.md"))
    whole = [ROOT / "README.md", ROOT / "docs" / "index.md", *(ROOT / "examples").rglob("*.md")]
    typed = re.compile(r"^[12]?\$ (?:python (?:-m |manage.py ))?redrive [a-z]|`redrive worker \w", re.MULTILINE)
    extra = re.compile(r"extras? (?:`[a-z]+`,? (?:and )?)*`(?:all|cli|web)`[^.]*\{doc\}`/install`")
    command = re.compile(r"pip install .*\[[a-z,]*\b(?:all|cli|web)\b[a-z,]*\]")
    found = [(path, extra) for path in guides] + [(path, command) for path in whole]

    assert [] == [
        path.relative_to(ROOT).as_posix()
        for path, installed in found
        if typed.search(path.read_text()) and not installed.search(path.read_text())
    ]


def test_one_page_says_how_to_install():
    """The others name extras, and link to it; the guide of a deploy installs the wheel that it has built."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts and "adr" not in path.parts]
    own = re.compile(r"pip install .*redrive")

    assert {"install.md", "deploy.md"} == {path.name for path in pages if own.search(path.read_text())}
