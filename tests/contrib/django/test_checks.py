"""The checks of `manage.py check`, and the store URLs of databases."""

from __future__ import annotations

import traceback
from urllib.parse import unquote, urlsplit

import pytest
from django.core.checks import run_checks
from django.db import connections
from django.test import modify_settings, override_settings

from redrive.contrib.django import retries
from redrive.contrib.django.compat import task_backends
from redrive.contrib.django.options import read
from redrive.errors import ConfigurationError, PolicyError, StoreError, TaskDefinitionError
from redrive.stores.drivers.postgres import parse_url
from redrive.stores.opening import open_store
from tests.contrib.django.project import BACKEND, ready
from tests.contrib.django.sample import tasks


def findings(**options):
    """Return the ids and texts of the checks of options."""
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}):
        return [(each.id, each.msg) for each in run_checks() if each.id.startswith("redrive.")]


@pytest.fixture
def database():
    """Return a function that adds a database with the settings of the test."""
    before = dict(connections.settings)

    def make(**settings):
        connections.settings["other"] = connections.configure_settings({"default": {}, "other": settings})["other"]

    yield make
    connections.settings.clear()
    connections.settings.update(before)
    if hasattr(connections._connections, "other"):
        delattr(connections._connections, "other")


def test_correct_settings_have_no_problems():
    """Correct settings have no problems."""
    assert [] == findings()


def test_an_unknown_option_is_named():
    """Unknown options are an error that lists the valid ones."""
    ((where, text),) = findings(retrys="5 1s")

    assert "redrive.E001" == where
    assert "has 'retrys'; options: database, store," in text


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://u:canary@h/d",
        "mysql://u:canary@h/d",
        "postgresql://u:a?canary@h/d",
        "sqlite:///u:canary@h/d",
    ],
)
def test_the_password_of_a_store_is_not_shown(url: str):
    """Neither the checks nor the errors of the command line and of enqueueing show it."""
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"store": url}}}):
        found = [f"{each!r} {each}" for each in run_checks()]
        backend = task_backends["default"]
        with pytest.raises(ConfigurationError) as failed:
            backend.app.open()
        with pytest.raises(ConfigurationError) as refused:
            backend.enqueue(tasks.add, (1, 2), {})
        shown = f"{backend.app!r} {backend.app.options!r}"

    errors = [*traceback.format_exception(failed.value), *traceback.format_exception(refused.value)]
    assert "canary" not in "".join([*found, *errors, shown])


ODD = ["a/canary", "a?canary", "a#canary", "a%canary", "a@canary:", "a [canary]", "a&canary="]


@pytest.mark.parametrize("password", ODD)
def test_the_password_of_a_database_is_escaped(password: str, database):
    """Any password of DATABASES becomes a URL that can be read in one way, and is shown nowhere."""
    database(ENGINE="django.db.backends.postgresql", NAME="d", USER="u", PASSWORD=password, HOST="127.0.0.1", PORT="1")
    options = read("default", {"database": "other"})

    assert password == unquote(urlsplit(parse_url(options.url).dsn).password or "")
    assert "canary" not in f"{options!r} {parse_url(options.url)!r}"
    with pytest.raises(StoreError) as failed:
        open_store(options.url)
    assert "canary" not in "".join(traceback.format_exception(failed.value))


def test_a_store_and_a_database_exclude_each_other():
    """Stores of their own and a database of Django exclude each other."""
    ((where, text),) = findings(store="memory://", database="default")

    assert ("redrive.E001", True) == (where, "leave one of them out" in text)


def test_a_missing_database_is_named():
    """If `database` is no alias in DATABASES, the error names it."""
    ((where, text),) = findings(database="jobs")

    assert ("redrive.E001", True) == (where, "there is no DATABASES['jobs']" in text)


def test_a_policy_for_no_task_is_found():
    """Names in `policies` that are no tasks are an error."""
    ((where, text),) = findings(policies={"tests.contrib.django.sample.tasks.plain": "5 1s"})

    assert ("redrive.E002", True) == (where, "'tests.contrib.django.sample.tasks.plain'" in text)


def test_a_policy_that_cannot_be_read_is_found():
    """Invalid directives in the settings are an error with their path."""
    ((where, text),) = findings(retry="5 often")

    assert ("redrive.E003", True) == (where, "['OPTIONS']['retry']" in text)


def test_a_catch_task_that_is_missing_is_found():
    """Missing catch tasks of policies in the settings are an error."""
    ((where, text),) = findings(policies={"tests.contrib.django.sample.tasks.add": "5 1s catch nobody"})

    assert ("redrive.E003", True) == (where, "caught by 'nobody'" in text)


def test_transactions_that_begin_without_the_lock_are_warned_of(database):
    """On SQLite a transaction that reads first may not become one that writes."""
    database(ENGINE="django.db.backends.sqlite3", NAME=ready())

    assert ["redrive.W002"] == [each for each, _ in findings(database="other")]


def test_psycopg_2_is_refused(database, monkeypatch):
    """Django works with psycopg2, and redrive does not."""
    from django.db.backends.postgresql import psycopg_any

    database(ENGINE="django.db.backends.postgresql", NAME="shop")
    assert [] == findings(database="other")
    monkeypatch.setattr(psycopg_any, "is_psycopg3", False)

    assert ["redrive.E004"] == [each for each, _ in findings(database="other")]


@modify_settings(INSTALLED_APPS={"remove": ["redrive.contrib.django"]})
def test_a_missing_app_is_reported():
    """Without the app in INSTALLED_APPS the backend warns."""
    assert ["redrive.W001"] == [each.id for each in task_backends["default"].check()]


def test_with_the_app_each_problem_is_reported_once():
    """With the app installed, each problem is reported once."""
    assert [] == list(task_backends["default"].check())


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"NAME": "/var/lib/a shop#1.db"}, "sqlite:////var/lib/a%20shop%231.db"),
        ({"NAME": ":memory:"}, "memory://"),
        ({"NAME": "file:shop?mode=memory&cache=shared"}, "memory://"),
    ],
)
def test_the_address_of_a_database_of_sqlite(database, settings, url):
    """Files of SQLite become URLs with their path; databases in memory become memory://."""
    database(ENGINE="django.db.backends.sqlite3", **settings)

    assert url == read("default", {"database": "other"}).url


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        ({"NAME": "shop", "HOST": "db", "PORT": 5433, "USER": "me"}, "postgresql://me@db:5433/shop"),
        ({"NAME": "shop", "HOST": "db", "USER": "m@e", "PASSWORD": "p/w"}, "postgresql://m%40e:p%2Fw@db/shop"),
        ({"NAME": "shop", "HOST": "/run/pg", "PORT": 1}, "postgresql:///shop?host=%2Frun%2Fpg&port=1"),
        ({"NAME": "shop", "HOST": "a,b", "PORT": "1,2"}, "postgresql:///shop?host=a%2Cb&port=1%2C2"),
        ({"NAME": "shop", "HOST": "::1"}, "postgresql:///shop?host=%3A%3A1"),
        ({"NAME": "shop", "OPTIONS": {"sslmode": "require", "pool": True}}, "postgresql:///shop?sslmode=require"),
    ],
)
def test_the_address_of_a_database_of_postgresql(database, settings, url):
    """Connection settings in DATABASES become a URL; other settings are left out."""
    database(ENGINE="django.db.backends.postgresql", **settings)

    assert url == read("default", {"database": "other"}).url


def test_settings_of_a_store_can_be_added(database):
    """Settings of the store URL come from `store_settings`."""
    database(ENGINE="django.db.backends.postgresql", NAME="shop")

    assert (
        "postgresql:///shop?schema=jobs"
        == read("default", {"database": "other", "store_settings": {"schema": "jobs"}}).url
    )


def test_a_database_that_cannot_have_jobs_is_refused(database):
    """Other databases of Django need a store of their own, as the message states."""
    database(ENGINE="django.db.backends.dummy", NAME="shop")

    with pytest.raises(ConfigurationError, match="cannot store jobs: name another database by 'store'"):
        read("default", {"database": "other"})


def test_retries_above_task_is_refused():
    """Above `@task` it would mark Django's task and not the function."""
    with pytest.raises(TaskDefinitionError, match="below @task"):
        retries("5 1s")(tasks.add)


def test_a_directive_at_a_function_is_read_at_import():
    """Invalid directives at a function fail at import, with the name of the function."""
    with pytest.raises(PolicyError, match="task .*.sample.tasks.plain: "):
        retries("often")(tasks.plain)
