"""Exceptions with a class, a check or attributes that raise: no integration replaces them by that other error."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import asyncpg
import grpc
import httpx
import psycopg
import pytest
import redis
from couchbase import exceptions as couchbase
from pydantic_ai import UserError
from sqlalchemy import exc

from redrive.contrib import asyncpg as of_asyncpg
from redrive.contrib import psycopg as of_psycopg
from redrive.contrib import sqlalchemy as of_sqlalchemy
from redrive.contrib.couchbase.sdk import failure_of as of_couchbase
from redrive.contrib.grpc.classify import describe as of_grpc
from redrive.contrib.httpx import RetryTransport
from redrive.contrib.httpx import failure_of as of_httpx
from redrive.contrib.pydantic_ai import failure_of as of_pydantic_ai
from redrive.contrib.redis.replies import failure_of as of_redis
from redrive.policy import Backoff, Policy
from redrive.testing import VirtualClock, using


# The interpreter itself calls ``__subclasscheck__`` when such an exception is raised.
class Meta(type):
    """The class of a class with a check that raises."""

    def __instancecheck__(cls, other: object) -> bool:
        raise LookupError("the check of the class")


def classed(base: type[BaseException]) -> type[BaseException]:
    """Return a class whose objects do not tell theirs."""

    def broken(_: object) -> type:
        raise LookupError("the class")

    return type("Classed", (base,), {"__class__": property(broken)})


def checked(base: type[BaseException]) -> type[BaseException]:
    """Return a class with checks that raise."""
    # The classes of asyncpg have a class of their own.
    made: Any = type("Checking", (Meta, type(base)) if type(base) is not type else (Meta,), {})
    return made("Checked", (base,), {})  # type: ignore[no-any-return]


def unreadable(base: type[BaseException]) -> type[BaseException]:
    """Return a class with attributes that raise."""

    def broken(_: object) -> object:
        raise LookupError("the attribute")

    names = ("sqlstate", "pgconn", "orig", "connection_invalidated", "code", "args", "hint", "request", "error_code")
    return type("Unreadable", (base,), dict.fromkeys(names, property(broken)))


READERS: dict[str, tuple[Callable[..., Any], type[BaseException], tuple[Any, ...]]] = {
    "asyncpg": (of_asyncpg.failure_of, asyncpg.PostgresError, ("no",)),
    "psycopg": (of_psycopg.failure_of, psycopg.OperationalError, ("no",)),
    "sqlalchemy": (of_sqlalchemy.failure_of, exc.OperationalError, ("SELECT", {}, sqlite3.OperationalError("no"))),
    "couchbase": (of_couchbase, couchbase.CouchbaseException, ()),
    "grpc": (of_grpc, grpc.RpcError, ()),
    "httpx": (of_httpx, httpx.ReadError, ("no",)),
    "pydantic_ai": (of_pydantic_ai, UserError, ("no",)),
    "redis": (of_redis, redis.ConnectionError, ("no",)),
}


def raised(error: BaseException, read: Callable[..., Any]) -> BaseException:
    """Return what a call under a policy with a reader raises."""

    def fetch() -> None:
        raise error

    policy = Policy(on=read, attempts=2, backoff=Backoff.constant(0), idempotent=True)
    with using(clock=VirtualClock()), pytest.raises(BaseException) as found:
        policy.call(fetch)
    return found.value


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("make", [classed, checked])
@pytest.mark.parametrize("base", [Exception, OSError, None], ids=["Exception", "OSError", "own"])
def test_a_class_that_raises_does_not_replace_the_error(name, make, base):
    """The reader of each integration takes an error for what it is, of the library or not."""
    read, own, arguments = READERS[name]
    made = make(base or own)
    error = made(*arguments) if base is None else made("real")

    assert error is raised(error, read)


@pytest.mark.parametrize("name", [each for each in READERS if each != "couchbase"])
def test_an_attribute_that_raises_does_not_replace_the_error(name):
    """An attribute of a subclass that raises counts as missing."""
    read, own, arguments = READERS[name]
    made = unreadable(own)
    error = made.__new__(made, *arguments)
    if name in {"httpx", "sqlalchemy"}:
        # Their constructors set some of these attributes, which have no setter here.
        error = unreadable(OSError)("real")

    assert error is raised(error, read)


@pytest.mark.parametrize("make", [classed, checked])
@pytest.mark.parametrize("base", [httpx.ReadError, OSError, Exception])
def test_a_transport_raises_the_error_of_the_one_behind_it(make, base):
    """A `RetryTransport` looks at each error of its inner transport."""
    error = make(base)("real")

    def handle(request: httpx.Request) -> httpx.Response:
        raise error

    transport = RetryTransport(Policy(attempts=2, backoff=Backoff.constant(0)), httpx.MockTransport(handle))
    with using(clock=VirtualClock()), pytest.raises(BaseException) as found:  # noqa: SIM117 - any
        with httpx.Client(transport=transport) as client:
            client.get("http://shop/")

    assert error is found.value
