"""Commands that read never create or migrate a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import App
from redrive.stores.query import Query, Statements, writes

READING = [
    ("check", "shop:app"),
    ("jobs", "list", "shop:app"),
    ("jobs", "show", "shop:app", "1"),
    ("jobs", "audit", "shop:app"),
    ("jobs", "redrive", "shop:app", "1", "--dry-run"),
    ("errors", "list", "shop:app"),
    ("errors", "show", "shop:app", "1-0"),
    ("queues", "list", "shop:app"),
    ("queues", "show", "shop:app", "default"),
    ("schedules", "list", "shop:app"),
    ("schedules", "show", "shop:app", "nightly"),
    ("machines", "list", "shop:app"),
    ("machines", "list", "shop:app", "payment"),
    ("machines", "show", "shop:app", "payment", "a"),
    ("machines", "diagram", "shop:app", "payment"),
    ("machines", "migrate", "shop:app", "payment", "a=b", "--dry-run"),
    ("topics", "list", "shop:app"),
    ("topics", "show", "shop:app", "payments", "receipts"),
    ("runs", "list", "shop:app"),
    ("runs", "retrying", "shop:app"),
    ("workers", "list", "shop:app"),
    ("db", "check", "shop:app"),
]


@pytest.mark.parametrize("words", READING)
@pytest.mark.usefixtures("shop")
def test_a_reading_command_creates_no_database(redrive, tmp_path: Path, words: tuple[str, ...]):
    """Report that the database does not exist, and the command that creates it."""
    before = sorted(tmp_path.iterdir())
    output = redrive(*words)

    expected = f"redrive: {tmp_path}/shop.db does not exist; redrive db migrate shop:app creates it\n"
    assert (1, "", expected) == (output.status, output.out, output.err)
    assert [] == [path for path in tmp_path.iterdir() if path not in before and path.name != "__pycache__"]


@pytest.mark.parametrize("words", READING[:-1])
def test_a_reading_command_changes_no_empty_database(redrive, shop: App, tmp_path: Path, words: tuple[str, ...]):
    """Report that a file has no tables, and leave it as it is."""
    (tmp_path / "shop.db").touch()
    output = redrive(*words)

    assert (1, "") == (output.status, output.out)
    assert "shop.db has no redrive tables; redrive db migrate shop:app creates them" in output.err


@writes
def older() -> Statements[None]:
    """Store an older version of the schema."""
    yield Query("schema_put", {"version": "0", "compatible": "0"})


def test_a_reading_command_does_not_migrate(redrive, shop: App):
    """Report the command that migrates a database of an older redrive."""
    shop.store.run(older())
    shop.close()
    output = redrive("jobs", "list", "shop:app")

    assert (1, "") == (output.status, output.out)
    assert "has schema 0, and this redrive works with schema" in output.err
    assert output.err.endswith("redrive db migrate shop:app brings it there\n")
