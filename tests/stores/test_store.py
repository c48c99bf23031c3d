"""Opening of stores by their URLs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.stores.drivers.sqlite import SQLiteSettings
from redrive.stores.drivers.sqlite.settings import parse_url
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs
from tests.stores.helpers import new


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://", SQLiteSettings(None)),
        ("sqlite:///app.db", SQLiteSettings(Path("app.db").absolute())),
        ("sqlite:///data/app.db", SQLiteSettings(Path("data/app.db").absolute())),
        ("sqlite:////var/lib/app.db", SQLiteSettings(Path("/var/lib/app.db"))),
        ("sqlite:///my%20app%3F%23.db", SQLiteSettings(Path("my app?#.db").absolute())),
        ("sqlite:///app.db?synchronous=normal", SQLiteSettings(Path("app.db").absolute(), "NORMAL")),
        ("sqlite:///app.db?synchronous=FULL", SQLiteSettings(Path("app.db").absolute(), "FULL")),
        (
            "sqlite:///app.db?busy_timeout=1m30s",
            SQLiteSettings(Path("app.db").absolute(), "FULL", timedelta(seconds=90)),
        ),
        (
            "sqlite:///app.db?busy_timeout=500ms&synchronous=normal",
            SQLiteSettings(Path("app.db").absolute(), "NORMAL", timedelta(milliseconds=500)),
        ),
    ],
)
def test_a_url_names_the_database_and_its_settings(url: str, expected: SQLiteSettings):
    """URLs contain the path and the settings of a store; by default it is durable and waits for locks."""
    assert expected == parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "app.db",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite://app.db",
        "sqlite://host/app.db",
        "sqlite:///app#1.db",
        "memory",
        "memory:",
        "memory:///app.db",
        "memory://?synchronous=normal",
        "SQLITE3:///app.db",
    ],
)
def test_a_url_that_is_not_understood_is_refused(url: str):
    """URLs of other forms are refused, with the URL and the valid forms in the message."""
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)

    assert str(refused.value) == (
        f"the store URL {url!r} is not understood; forms: sqlite:///relative.db, sqlite:////absolute.db, "
        "turso:///app.db, postgresql://user@host/database, memory:// "
        "(in a path, write # as %23, ? as %3F, % as %25, @ as %40)"
    )


@pytest.mark.parametrize(
    ("url", "driver"),
    [("postgresql+asyncpg://localhost/shop", "asyncpg"), ("sqlite+aiosqlite:///shop.db", "aiosqlite")],
)
def test_a_url_of_sqlalchemy_is_answered_with_the_part_to_leave_out(url: str, driver: str):
    """SQLAlchemy names a driver, which redrive chooses itself."""
    with pytest.raises(
        ConfigurationError, match=rf"^the store URL '.*' is not understood; leave \+{driver} out; forms: "
    ):
        open_store(url)


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("synchronous=off", "synchronous", "off"),
        ("synchronous=", "synchronous", ""),
        ("busy_timeout=0s", "busy_timeout", "0s"),
        ("busy_timeout=soon", "busy_timeout", "soon"),
        ("busy_timeout=2d", "busy_timeout", "2d"),
        ("journal_mode=delete", "journal_mode", "delete"),
        ("synchronous=full&typo=1", "typo", "1"),
    ],
)
def test_an_unknown_setting_is_refused(setting: str, name: str, value: str):
    """Unknown settings and invalid values are refused and not ignored."""
    url = f"sqlite:///app.db?{setting}"
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)
    shown = value if name in {"synchronous", "busy_timeout"} else "***"

    assert str(refused.value) == (
        f"the store URL {url.replace(value, shown)!r} has a setting {name}={shown!r}; "
        "settings: synchronous=full|normal, busy_timeout=10s (at most 1d)"
    )


def test_a_relative_path_is_resolved_when_the_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Stores keep their file when the program changes its working directory."""
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///jobs.db?synchronous=normal")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.run(jobs.enqueue([new()]))
    store.close()

    assert [tmp_path / "elsewhere", tmp_path / "jobs.db"] == sorted(tmp_path.iterdir())


def test_a_store_keeps_its_url():
    """Stores have the URL that they were opened with."""
    store = open_store("memory://")
    store.close()

    assert "memory://" == store.url


def test_stores_in_memory_are_separate():
    """Each opening of ``memory://`` is a database of its own."""
    one, other = open_store("memory://"), open_store("memory://")
    one.run(jobs.enqueue([new()]))
    counts = [each.run(admin.stats()).due for each in (one, other)]
    one.close()
    other.close()

    assert [1, 0] == counts


def test_the_sync_and_the_async_form_share_a_store():
    """Jobs that one colour has enqueued can be read by the other one."""
    store = open_store("memory://")
    store.run(jobs.enqueue([new("sync")]))
    asyncio.run(store.arun(jobs.enqueue([new("async")])))
    read = [asyncio.run(store.arun(jobs.get(1))).task, store.run(jobs.get(2)).task]
    store.close()

    assert ["sync", "async"] == read
