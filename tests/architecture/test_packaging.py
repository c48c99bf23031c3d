"""Contents of the wheel, and agreement of the pinned versions."""

from __future__ import annotations

import re
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.architecture.source import PACKAGE, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = sorted((ROOT / "requirements").glob("*.txt"))


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
    declared = {re.split(r"[\[<>=]", dependency)[0] for dependency in PROJECT["dependencies"]}
    wanted = {
        line for line in (ROOT / "requirements" / "runtime.in").read_text().splitlines() if not line.startswith("#")
    }
    pinned = {line.split("==")[0] for line in (ROOT / "requirements" / "runtime.txt").read_text().splitlines()}

    assert declared == wanted
    assert set() == declared - pinned
