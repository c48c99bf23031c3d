"""Modules and functions stay small enough to be read at once (500 and 50 lines at most)."""

from __future__ import annotations

from tests.architecture.source import functions, length, modules, name

MODULE_LIMIT = 500
"""More than 400 lines are a question in review: has the module two subjects?"""

FUNCTION_LIMIT = 50


def test_modules_are_short():
    """No module is longer than 500 lines."""
    lengths = {name(path): len(path.read_text().splitlines()) for path in modules()}

    assert {} == {path: lines for path, lines in lengths.items() if lines > MODULE_LIMIT}


def test_functions_are_short():
    """No function is longer than 50 lines, its docstring not counted."""
    lengths = {f"{name(path)}:{node.name}": length(node) for path in modules() for node in functions(path)}

    assert {} == {where: lines for where, lines in lengths.items() if lines > FUNCTION_LIMIT}


def test_packages_introduce_themselves():
    """Each layer's package says what it answers, what it may import and what it must never do."""
    layers = [path for path in modules() if path.name == "__init__.py" and path.parent.parent.name == "redrive"]
    said = {name(path): " ".join(path.read_text().split()) for path in layers}
    silent = [path for path, text in said.items() if not ("May import" in text and "Must never" in text)]

    assert [] == silent
