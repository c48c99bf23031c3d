"""Secrets in store URLs, which are never shown."""

from __future__ import annotations

import asyncio
import itertools
import traceback
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.stores.drivers.postgres import parse_url
from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.opening import open_store
from redrive.stores.urls import cleared, located, redacted, shown

SECRET = "canary"

SHOWN = [
    ("sqlite:///app.db", "sqlite:///app.db"),
    ("sqlite:////var/lib/my%20app.db?synchronous=normal", "sqlite:////var/lib/my%20app.db?synchronous=normal"),
    ("sqlite:///app.db?key=canary&busy_timeout=1s", "sqlite:///app.db?key=***&busy_timeout=1s"),
    ("sqlite://user:canary@host/app.db", "sqlite://user:***@host/app.db"),
    ("memory://", "memory://"),
    ("app.db", "app.db"),
    ("", ""),
    ("host=h password=canary", "***"),
    ("canary@host/db", "***"),
    ("mysql:canary", "***"),
    ("postgresql://u@h/d", "postgresql://u@h/d"),
    ("postgresql:///d?host=/run/pg", "postgresql:///d?host=/run/pg"),
    ("postgresql://u:canary@h:5432,[::1]:5433/d?schema=jobs", "postgresql://u:***@h:5432,[::1]:5433/d?schema=jobs"),
    ("postgresql+psycopg://u:canary@h/d", "postgresql+psycopg://u:***@h/d"),
    ("mysql://u:canary@h/d", "mysql://u:***@h/d"),
    ("mysql://:canary@h/d", "mysql://:***@h/d"),
    ("postgresql://u:can/canary@h/d", "postgresql://u:***@h/d"),
    ("postgresql://u:can?canary@h/d", "postgresql://***"),
    ("postgresql://u:can#canary@h/d", "postgresql://***"),
    ("postgresql://u:can%canary@h/d", "postgresql://u:***@h/d"),
    ("postgresql://u:can@canary@h/d", "postgresql://u:***@h/d"),
    ("postgresql://u:can[canary@h/d", "postgresql://u:***@h/d"),
    ("postgresql://u:canary", "postgresql://***"),
    ("postgresql://u:1/d#canary", "postgresql://u:1/d#***"),
    ("postgresql://u@h/d?password=canary&pool=3", "postgresql://u@h/d?password=***&pool=3"),
    ("postgresql://u@h/d?sslpassword=canary", "postgresql://u@h/d?sslpassword=***"),
    ("postgresql://u@h/d?canary", "postgresql://u@h/d?***"),
    ("postgresql://h/d?password=can@canary", "postgresql://***"),
    ("postgresql://h;user=u;password=canary/d", "postgresql://***"),
    ("postgresql://h/d;password=canary", "postgresql://***"),
    ("sqlite://canary/d?x=1&y@h/app.db", "sqlite://***"),
    ("sqlite:///u:can?canary@h/app.db", "sqlite://***"),
]


@pytest.mark.parametrize(("url", "expected"), SHOWN)
def test_a_url_is_shown_without_what_may_be_a_secret(url: str, expected: str):
    """Passwords, and whatever may be a piece of one, are replaced by three stars."""
    assert expected == redacted(url)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "mysql", "sqlite", "turso"])
@given(before=st.text(alphabet="ab1/?#%@:[]&= ", max_size=8), after=st.text(alphabet="ab1/?#%:[]&= ", max_size=8))
def test_a_password_is_not_shown_however_it_is_written(scheme: str, before: str, after: str):
    """Passwords are in no message about the URL, whichever characters are not escaped."""
    url = f"{scheme}://user:{before}{SECRET}{after}@h:1/d"

    assert SECRET not in redacted(url)


@pytest.mark.parametrize(("name", "value"), [("password", SECRET), ("sslpassword", SECRET), ("host", f"{SECRET}@h")])
def test_a_setting_is_shown_without_what_may_be_a_secret(name: str, value: str):
    """Values of settings are shown only if they cannot be secrets."""
    assert f"{name}='***'" == shown(name, value)
    assert "pool='x'" == shown("pool", "x")


REFUSED = [
    "postgresql://u:can/canary@h/d",
    "postgresql://u:1/canary@h/d",
    "postgresql://u:can?canary@h/d",
    "postgresql://u:1?canary=x@h/d",
    "postgresql://u:can#canary@h/d",
    "postgresql://u:can%zzcanary@h/d",
    "postgresql://u:can%00canary@h/d",
    "postgresql://u:can@canary@h/d",
    "postgresql://u:can[canary@h/d",
    "postgresql://u:canary@[::1/d",
    "postgresql://u:can\u2100canary@h/d",
    "postgresql://u:canary@h:port/d",
    "postgresql://u:canary@h/d?schema",
    "postgresql://u@h/d?password=can%zzcanary",
    "postgresql://u@h/d?password=can@canary",
    "postgresql://u@h/d?sslpassword=canary",
    "postgresql://u@h/d?direct=u:canary%40h",
    "postgresql:///d?host=u:canary%40h",
    "postgresql://u@h/d?port=u:canary%40h",
    "postgresql://u:canary@h/d?host=i",
    "postgresql://u:canary@h/d?target_session_attrs=readwrite",
    "postgresql://u:canary@h/d?load_balance_hosts=random",
    "postgresql+psycopg://u:canary@h/d",
    "mysql://u:canary@h/d",
    "sqlite://u:canary@h/app.db",
    "sqlite:///app.db?key=canary",
    "turso://u:can[canary@h/app.db",
    "host=h password=canary",
    "postgresql://u:can canary@h/d",
    "postgresql://u:can\ncanary@h/d",
    "postgresql://u@h/d?password=can canary",
    "postgresql://h;user=u;password=canary/d",
    "postgresql://h/d;password=canary",
    "sqlite:///u:canary@h/app.db",
    "sqlite:///u:can?canary@h/app.db",
    "turso:///u:?canary=1&busy_timeout=1s@h/app.db",
]


@pytest.mark.parametrize("url", REFUSED)
def test_a_url_that_can_be_read_in_two_ways_is_refused(url: str):
    """URLs with characters that should be escaped are refused, without the password in any part of the error."""
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)

    assert SECRET not in f"{refused.value!r}{refused.value.__cause__!r}{refused.getrepr(chain=True).reprcrash}"


SCHEMES = ["postgresql", "postgresql+psycopg", "mysql", "sqlite", "sqlite+pysqlite", "turso"]

PIECES = ["", "/", "?", "#", "%", "%zz", "%00", "@", ":", "[", "]", "&", "=", " ", "\n", "\\", "'", '"', ",", ";", "é"]

PLACES = [
    "{scheme}://u:{password}@h:1/d?timeout=1s",
    "{scheme}://:{password}@h/d",
    "{scheme}://u:{password}@h:port/d",
    "{scheme}://u:{password}@[::1/d",
    "{scheme}:///u:{password}@h/app.db",
    "{scheme}:/u:{password}@h/d",
    "{scheme}:u:{password}@h/d",
    "{scheme}//u:{password}@h/d",
    "{scheme}://u@h/d?password={password}&timeout=1s",
    "{scheme}://u@h/d?passwd={password}",
    "{scheme}://h;user=u;password={password}",
    "u:{password}@h",
    "host=h password={password}",
]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("place", PLACES)
def test_no_message_about_a_url_has_its_password(scheme: str, place: str):
    """Of any scheme, with any character unescaped: neither its name as a store, nor an error, nor what caused it."""
    for before, after in itertools.product(PIECES, ["", "/", "?x", "#", "%", "@"]):
        url = place.format(scheme=scheme, password=f"{before}{SECRET}{after}")
        try:
            if url.startswith("postgres"):
                text = str(parse_url(url)) + repr(parse_url(url))
            else:
                open_store(url).close()
                text = ""
        except ConfigurationError as error:
            text = "".join(traceback.format_exception(error))
        assert SECRET not in text, url


@pytest.mark.parametrize("connect", [psycopg.connect, lambda dsn, **place: asyncio.run(asyncpg.connect(dsn, **place))])
@pytest.mark.parametrize("place", ["u:{password}@", "u@"])
def test_no_library_shows_the_password_of_a_url_that_is_understood(connect: Callable, place: str):
    """URLs for the libraries can be parsed in one way only, so the libraries do not complain about a part."""
    for before in PIECES:
        host = f"postgresql://{place}127.0.0.1:1/d?password={{password}}".format(password=f"{before}{SECRET}")
        try:
            read = parse_url(host)
        except ConfigurationError:
            continue
        with pytest.raises((OSError, psycopg.OperationalError)) as failed:
            connect(read.dsn, **read.servers.order[0].place)
        shown_error = "".join(traceback.format_exception(failed.value)) + str(translation(failed.value, read))
        assert SECRET not in shown_error.replace(host, "").replace(read.dsn, ""), host


def test_connection_strings_in_a_text_are_redacted():
    """Errors of other libraries about URLs are shown without possible passwords."""
    assert "bad: mysql+x://***@h/d and redis://***@h" == cleared(
        "bad: mysql+x://u:can@canary@h/d and redis://:canary@h"
    )
    assert "invalid: host=h password=*** x" == cleared("invalid: host=h password=canary x")
    assert "sslPassword = ***;x" == cleared("sslPassword = 'can ary';x")
    assert "see https://example.org/a:b (user@example.org)" == cleared("see https://example.org/a:b (user@example.org)")


def test_escaped_characters_reach_the_libraries():
    """Passwords with every special character escaped reach the libraries unchanged."""
    password = "%25%2F%3F%23%40%5B%5D%3A"
    read = parse_url(f"postgresql://u:{password}@h:5432/d?password=a%26b&passfile=/run/pg")

    assert f"postgresql://u:{password}@/d?password=a%26b&passfile=%2Frun%2Fpg" == read.dsn
    assert "dsn" not in repr(read)


def test_the_file_of_a_url_is_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The path is absolute, so that two folders have two texts; URLs of other forms are redacted only."""
    monkeypatch.chdir(tmp_path)

    assert f"sqlite:///{tmp_path}/app.db?synchronous=normal" == located("sqlite:///app.db?synchronous=normal")
    assert "sqlite:////srv/app.db" == located("sqlite:////srv/app.db")
    assert "postgresql://u:***@h/d" == located("postgresql://u:canary@h/d")
    assert "memory://" == located("memory://")
