"""Tests depend on real time only where they are marked `realtime`; ruff's TID251 forbids the functions of `time`."""

from __future__ import annotations

import ast

from tests.architecture.source import ROOT

TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

VIRTUAL = ("retrying", "simulation")
"""Folders in which sleeps run on loops whose timers need no time."""


def _sleeps(node: ast.AST) -> bool:
    """Return True if some code sleeps for a fixed span of real time; a loop that polls a condition may sleep."""
    if isinstance(node, ast.While | ast.For):
        return False
    if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
        span, clock = node.args[0], ast.unparse(node.func.value)
        if node.func.attr in {"sleep", "asleep"} and clock in {"time", "CLOCK", "SystemClock()"}:
            return ast.unparse(span) not in {"0", "3600", "PATIENCE"}
    return any(map(_sleeps, ast.iter_child_nodes(node)))


def unmarked(tree: ast.Module) -> list[str]:
    """Return the tests of a module that sleep without the mark."""
    if any("realtime" in ast.unparse(each) for each in tree.body if isinstance(each, ast.Assign)):
        return []
    tests = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")]
    return [
        each.name
        for each in tests
        if _sleeps(each) and not any("realtime" in ast.unparse(mark) for mark in each.decorator_list)
    ]


def test_no_test_sleeps_without_the_mark():
    """A test that sleeps for a fixed span, other than in a loop that polls, is marked `realtime`."""
    paths = [path for path in TESTS if path.relative_to(ROOT).parts[1] not in VIRTUAL]
    texts = {str(path): text for path in paths if "sleep(" in (text := path.read_text())}
    found = {path: unmarked(ast.parse(text)) for path, text in texts.items()}

    assert {} == {path: names for path, names in found.items() if names}


def test_a_sleep_is_found():
    """The rule above reads nested functions and accepts the mark and loops."""
    sleep = "    async def main():\n        await SystemClock().asleep(0.1)\n"
    poll = "    while waiting():\n        SystemClock().sleep(0.1)\n"
    code = f"def test_a():\n{sleep}\ndef test_b():\n{poll}\n@pytest.mark.realtime\ndef test_c():\n{sleep}"

    assert ["test_a"] == unmarked(ast.parse(code))
