"""What `make test` leaves to `make test-all`."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from tests import selection
from tests.selection import Selection, repetitions
from tests.stores import colours


def _item(test: str, kind: str, *marks: str, folder: str = "tests/app") -> Any:
    """Return a collected test with the kind of its store as its parameter."""
    return SimpleNamespace(
        nodeid=f"{folder}/test_worker.py::{test}[1-{kind}]",
        callspec=SimpleNamespace(params={"number": 1, "app": kind}, id=f"1-{kind}"),
        get_closest_marker=lambda name: name in marks or None,
    )


def _kept(items: list[Any], *args: str, keyword: str = "") -> list[Any]:
    """Return the tests that a run with these arguments keeps."""
    config: Any = SimpleNamespace(
        option=SimpleNamespace(keyword=keyword, markexpr=""),
        args=args,
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )
    kept = list(items)
    Selection(config).pytest_collection_modifyitems(config, kept)
    return kept


ITEMS = [_item(f"test_{n}", kind) for n in range(40) for kind in ("memory", "postgres", "sqlite", "turso")]


def test_a_test_keeps_the_store_in_memory_and_one_other():
    """Coverage is measured in memory; each of the other stores has its share of the tests."""
    kinds = ("memory", "postgres", "sqlite", "turso")
    left_out = repetitions((test, kind) for test in map(str, range(300)) for kind in kinds)
    kept = Counter(kind for test in map(str, range(300)) for kind in kinds if (test, kind) not in left_out)

    assert (300, 300) == (kept["memory"], kept["postgres"] + kept["sqlite"] + kept["turso"])
    assert min(kept["postgres"], kept["sqlite"]) > 100
    assert 5 < kept["turso"] < 30


def test_a_file_stays_beside_the_memory_in_a_quarter_of_the_tests():
    """Both have the same code, except for the file itself."""
    left_out = repetitions((test, kind) for test in map(str, range(400)) for kind in ("memory", "file"))

    assert {"file"} == {kind for _, kind in left_out}
    assert 250 < len(left_out) < 350


@pytest.mark.parametrize("folder", ["tests/acceptance", "tests/runtime", "tests/runtime/runs"])
@pytest.mark.parametrize("server", ["postgres", "postgresql"])
def test_races_on_postgresql_are_kept(folder: str, server: str):
    """Processes and transactions race on PostgreSQL: each of their tests is kept there, and a quarter in files too."""
    kinds = ("memory", server, "sqlite")
    kept = _kept([_item(f"test_{n}", kind, folder=folder) for n in range(40) for kind in kinds], "tests")
    count = Counter(each.callspec.params["app"] for each in kept)

    assert (40, 40) == (count["memory"], count[server])
    assert 5 < count["sqlite"] < 15


def test_a_test_with_one_store_is_kept():
    """Tests that name one store are no repetitions."""
    assert set() == repetitions([("a", "postgres"), ("b", "memory"), ("c", "sqlite"), ("d", "turso")])


@pytest.mark.parametrize("is_all", [False, True])
def test_repetitions_are_left_to_the_other_target(monkeypatch: pytest.MonkeyPatch, is_all: bool):
    """`make test` keeps two of four stores and no test of the night; `make test-all` keeps everything."""
    monkeypatch.setattr(selection, "ALL", is_all)
    items = [*ITEMS, _item("test_night", "sqlite", "night")]

    assert (161 if is_all else 80) == len(_kept(items, "tests", "src"))


@pytest.mark.parametrize(
    ("args", "keyword"),
    [(["tests/app/test_worker.py"], ""), (["tests"], "sqlite"), (["a.py::test_1[1-turso]"], "")],
)
def test_a_narrowed_run_leaves_nothing_out(args: list[str], keyword: str):
    """Who asks for a file, a test or a word gets all tests that fit."""
    assert ITEMS == _kept(ITEMS, *args, keyword=keyword)


def test_races_in_files_are_kept():
    """Several connections to one file are in `make test`, and a part of the tests of one connection."""

    def test_race(store: Any) -> None:
        store.at_once([])

    def test_call(store: Any) -> None:
        store.do(None)

    assert colours.is_chosen(test_race, "file", shared=False)
    assert colours.is_chosen(test_call, "file", shared=True)
    assert not colours.is_chosen(test_call, "file", shared=False)
    assert not colours.is_chosen(test_race, "turso", shared=False)
    assert all(colours.is_chosen(test_call, kind, shared=False) for kind in ("memory", "postgres"))
