"""Foreign text reaches terminals and logs through two modules, which escape it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, modules, name

BORDERS = {
    r"typer\.echo|(?<![.\w])print\(": {"cli/screen.py"},
    r"rich\.markup": set(),
    r"logging\.getLogger": {"observe/logs.py"},
}
"""Patterns of code that writes to a terminal or a log, with the modules that may use it."""


@pytest.mark.parametrize("what", BORDERS)
def test_terminal_and_log_are_written_in_one_module(what: str):
    """Commands write through `redrive.cli.screen`, and `redrive.observe.logs` makes the loggers; both escape text."""
    found = {path for path in modules() if re.search(what, _code(path))}

    assert set() == {name(path) for path in found} - {f"src/redrive/{each}" for each in BORDERS[what]}
    assert BORDERS[what] <= {path.relative_to(PACKAGE).as_posix() for path in found}


def _code(path: Path) -> str:
    return re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
