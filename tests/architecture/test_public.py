"""Public names exist, are documented, and importing them loads no optional library."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import os
import subprocess
import sys

import pytest

import redrive
from tests.architecture.source import PACKAGE, modules

PACKAGES = sorted(
    ".".join(path.parent.relative_to(PACKAGE.parent).parts) for path in modules() if path.name == "__init__.py"
)

# `import redrive` stays cheap: it loads nothing that a plain decorated function does not need.
PAID_LATER = {
    "aiohttp",
    "asyncio",
    "asyncpg",
    "celery",
    "cronsim",
    "dateutil",
    "dramatiq",
    "httpx",
    "httpx2",
    "logging",
    "psycopg",
    "pydantic_ai",
    "requests",
    "rich",
    "sqlite3",
    "starlette",
    "temporalio",
    "turso",
    "typer",
    "urllib3",
}


def test_public_names_are_sorted():
    """`redrive.__all__` is sorted and names nothing twice."""
    assert sorted(set(redrive.__all__)) == list(redrive.__all__)


@pytest.mark.parametrize("public", redrive.__all__)
def test_public_names_exist_and_have_docstrings(public: str):
    """Each public name can be imported, and classes and functions have a docstring."""
    value = getattr(redrive, public)

    assert not callable(value) or inspect.getdoc(value)


def test_public_names_are_listed():
    """`dir(redrive)` shows each public name, although they are loaded late."""
    assert set() == set(redrive.__all__) - set(dir(redrive))


def test_a_name_that_is_not_there_is_an_attribute_error():
    """Loading names late does not hide a misspelt one."""
    with pytest.raises(AttributeError, match="polcy"):
        _ = redrive.polcy


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_declare_what_exists(package: str):
    """Each name in a package's `__all__` exists there."""
    module = importlib.import_module(package)

    assert [] == [declared for declared in getattr(module, "__all__", []) if not hasattr(module, declared)]


def test_import_redrive_loads_only_what_is_needed():
    """`import redrive` loads no database, no event loop, no command line and no HTTP client."""
    code = "import sys; before = set(sys.modules); import redrive; print(*sorted(set(sys.modules) - before))"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()

    assert set() == PAID_LATER & set(loaded)


MODULES_OF_A_WORKER = 242
"""Of redrive, before the app and its database."""


def test_a_worker_loads_no_other_command_and_no_english():
    """`redrive worker` imports no other command, no parser of English, no tables, no pydantic, and no database yet."""
    code = (
        "import sys\n"
        "from redrive.cli import main\n"
        "sys.argv = ['redrive', 'worker', 'nowhere:app']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code, *sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    code, *loaded = result.stdout.split()

    assert "2" == code
    assert "redrive.cli.worker" in loaded
    # Each module costs every worker a part of a millisecond until its first job.
    assert len([name for name in loaded if name.startswith("redrive")]) <= MODULES_OF_A_WORKER
    unused = "redrive.cli.plan", "redrive.cli.simulate", "redrive.cli.demo", "redrive.schedule.english"
    # From version 0.29 on typer itself reads options with pydantic.
    if not any(each.startswith("pydantic") for each in importlib.metadata.requires("typer") or ()):
        unused += ("pydantic",)
    unused += (
        "redrive.plan",
        "redrive.drawing",
        "rich",
        "redrive.runtime.processes",
        "redrive.stores.drivers.postgres",
        "asyncpg",
        "psycopg",
    )
    assert [] == [name for name in loaded if name.startswith(unused)]
