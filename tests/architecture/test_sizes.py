"""Functions stay short enough to be read at once, and the sizes of modules and functions are reported.

Modules have no limit: more than 400 lines are a question in review, whether the module has two subjects.
"""

from __future__ import annotations

from statistics import median

from tests.architecture.source import functions, length, modules, name

FUNCTION_LIMIT = 50


def test_functions_are_short():
    """No function is longer than 50 lines without its docstring."""
    lengths = {f"{name(path)}:{node.name}": length(node) for path in modules() for node in functions(path)}

    assert {} == {where: lines for where, lines in lengths.items() if lines > FUNCTION_LIMIT}


def test_medians_are_small(record_property):
    """Half of the functions have at most 8 lines, and half of the modules at most 200."""
    long = median(len(path.read_text().splitlines()) for path in modules())
    short = median(length(node) for path in modules() for node in functions(path))
    record_property("figure", f"medians: {long:.0f} lines of a module, {short:.0f} lines of a function")

    assert long <= 200
    assert short <= 8


def test_packages_have_docstrings():
    """Each package states what it is for, what it may import and what it must never do."""
    layers = [path for path in modules() if path.name == "__init__.py" and path.parent.parent.name == "redrive"]
    texts = {name(path): " ".join(path.read_text().split()) for path in layers}
    silent = [path for path, text in texts.items() if not ("May import" in text and "Must never" in text)]

    assert [] == silent
