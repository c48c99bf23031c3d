"""One interface to every library and colour: a transaction is a list of steps.

A step is SQL text, or a function of the test. Errors of text after ``try:`` are caught inside the transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import NullPool

from redrive.contrib import asyncpg as on_asyncpg
from redrive.contrib import psycopg as on_psycopg
from redrive.contrib import sqlalchemy as on_sqlalchemy
from redrive.policy import Policy

KINDS = ("psycopg", "psycopg async", "asyncpg", "engine", "session", "async engine", "async session")

some = pytest.mark.parametrize("kind", ["psycopg", "asyncpg", "async session"])
"""For what is the same in all of them: one of each library."""

PATIENT = "5 1ms"


class Library:
    """One of them, connected to a server.

    Args:
        kind: one of `KINDS`.
        host: of the server; the folder of its socket will do.
        port: of the server.
        name: of its sessions, by which a test finds them.
        settings: of its sessions.

    Attributes:
        attempts: how many transactions were begun.
    """

    def __init__(self, kind: str, host: str, port: int, name: str, **settings: str) -> None:
        self.kind = kind
        self.is_async = "async" in kind or kind == "asyncpg"
        self.attempts = 0
        self.module: Any = on_psycopg if "psycopg" in kind else on_asyncpg if kind == "asyncpg" else on_sqlalchemy
        options = " ".join(f"-c {key}={value}" for key, value in settings.items())
        self.libpq = {"host": host, "port": port, "user": "postgres", "dbname": "postgres", "application_name": name}
        self.libpq |= {"options": options} if options else {}
        self.wire = {"host": host, "port": port, "user": "postgres", "database": "postgres"}
        self.wire |= {"server_settings": {"application_name": name, **settings}, "ssl": False}

    def log_in(self, role: str) -> None:
        """Connect as this role from now on."""
        self.libpq["user"] = self.wire["user"] = role

    def source(self) -> Any:
        """Return a function that opens a new connection."""
        if self.kind == "psycopg":
            return lambda: psycopg.connect(**self.libpq)
        if self.kind == "psycopg async":
            return lambda: psycopg.AsyncConnection.connect(**self.libpq)
        if self.kind == "asyncpg":
            return lambda: asyncpg.connect(**self.wire)
        if self.is_async:
            engine = create_async_engine("postgresql+asyncpg://", connect_args=self.wire, poolclass=NullPool)
            return engine if "engine" in self.kind else async_sessionmaker(engine)
        plain = sqlalchemy.create_engine("postgresql+psycopg://", connect_args=self.libpq, poolclass=NullPool)
        return plain if self.kind == "engine" else sessionmaker(plain)

    def call(self, *steps: str | Callable[[], object], policy: Policy | str = PATIENT, **options: Any) -> str:
        """Run the steps as a transaction, under a policy."""
        decorate = self.module.transactional(self.source(), policy, **options)
        if not self.is_async:

            @decorate
            def work(given):
                self.attempts += 1
                for step in steps:
                    self._do(given, step)
                return "done"

            return work()

        @decorate
        async def awork(given):
            self.attempts += 1
            for step in steps:
                await self._ado(given, step)
            return "done"

        return asyncio.run(awork())

    def _do(self, given: Any, step: str | Callable[[], object]) -> None:
        if callable(step):
            step()
            return
        try:
            self.execute(given, step)
        except Exception:
            if not step.startswith("try:"):
                raise

    async def _ado(self, given: Any, step: str | Callable[[], object]) -> None:
        if callable(step):
            step()
            return
        try:
            await self.execute(given, step)
        except Exception:
            if not step.startswith("try:"):
                raise

    def execute(self, given: Any, step: str) -> Any:
        """Run a statement on what the library gives; awaited in async code."""
        statement = step.removeprefix("try:")
        return given.execute(sqlalchemy.text(statement) if self.module is on_sqlalchemy else statement)


class Once:
    """A step that is carried out in the first attempt only."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._when = 1
        self._attempt = 0

    def __call__(self) -> None:
        """Carry it out, or do nothing."""
        self._attempt += 1
        if self._attempt == self._when:
            self._action()


class Second(Once):
    """A step that is carried out in the second attempt only."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(action)
        self._when = 2
