"""The cases that have hand-written tests: the markers of the whole test tree, read from the sources.

The sources are parsed, not imported, so that the answer does not depend on which tests a run collects. Only functions
and classes that pytest would collect count: a test function, or a class of tests, in a file that pytest collects.
Markers elsewhere, markers with an id that is not written out, and markers on a test that is skipped or expected to fail
would cover a case without testing it; each is reported as a problem.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["MarkedCases", "scan_source", "scan_tree"]

_EXCUSES = {"skip", "xfail"}
_Test = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class MarkedCases:
    """The cases that the markers name.

    Attributes:
        places: where each id stands, as ``path:line``.
        problems: what is wrong with markers, a sentence each.
    """

    places: dict[str, tuple[str, ...]]
    problems: tuple[str, ...]


def scan_tree(root: Path, *, patterns: Iterable[str]) -> MarkedCases:
    """Read the markers of every Python file below a folder.

    Args:
        root: the folder of tests.
        patterns: names of files that pytest collects, such as ``test_*.py``.

    Returns:
        The ids with their places, and the problems.
    """
    found = [
        scan_source(
            path.read_text(encoding="utf-8"),
            place=path.relative_to(root.parent).as_posix(),
            is_collected=any(fnmatch(path.name, pattern) for pattern in patterns),
        )
        for path in sorted(root.rglob("*.py"))
    ]
    places: dict[str, tuple[str, ...]] = {}
    for marked in found:
        for case_id, where in marked.places.items():
            places[case_id] = places.get(case_id, ()) + where
    return MarkedCases(places, tuple(problem for marked in found for problem in marked.problems))


def scan_source(source: str, *, place: str, is_collected: bool) -> MarkedCases:
    """Read the markers of one file.

    Args:
        source: its text.
        place: its path, for messages.
        is_collected: whether pytest collects it.

    Returns:
        The ids with their places, and the problems.
    """
    if "mark.case" not in source:  # to parse all sources takes seconds
        return MarkedCases({}, ())
    nodes = list(ast.walk(ast.parse(source, filename=place)))
    places: dict[str, tuple[str, ...]] = {}
    problems = []
    expected = {id(call): test for test in _tests(nodes) for call in test.decorator_list}
    for call in _marker_calls(nodes):
        where = f"{place}:{call.lineno}"
        test = expected.get(id(call))
        if problem := _problem(call, test, is_collected=is_collected):
            problems.append(f"{where}: {problem}")
            continue
        for argument in call.args:
            case_id = ast.literal_eval(argument)
            places[case_id] = (*places.get(case_id, ()), where)
    return MarkedCases(places, tuple(problems))


def _problem(call: ast.Call, test: _Test | None, *, is_collected: bool) -> str | None:
    if not is_collected:
        return "pytest does not collect this file, so its markers do not count"
    if test is None:
        return "the marker is not on a test"
    if call.keywords or not call.args or not all(_is_text(argument) for argument in call.args):
        return "the ids of a case marker are written out as texts"
    if excuses := {_marker_name(decorator) for decorator in test.decorator_list} & _EXCUSES:
        return f"a test that is marked {', '.join(sorted(excuses))} covers no case"
    return None


def _tests(nodes: Iterable[ast.AST]) -> Iterator[_Test]:
    for node in nodes:
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test")
        if is_function or (isinstance(node, ast.ClassDef) and node.name.startswith("Test")):
            yield node


def _marker_calls(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    for node in nodes:
        if isinstance(node, ast.Call) and _marker_name(node) == "case":
            yield node


def _marker_name(node: ast.expr) -> str | None:
    function = node.func if isinstance(node, ast.Call) else node
    match function:
        case ast.Attribute(value=ast.Attribute(attr="mark"), attr=name):
            return name
        case _:
            return None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
