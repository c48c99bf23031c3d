"""The OPTIONS of a backend, and the store URL of a database of Django.

They are read at the first use and not at import, because the test runner gives the databases other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from redrive.errors import ConfigurationError
from redrive.policy import Policy

APP_SETTINGS = ("keep_for", "keep_dead_for", "keep_cancelled_for", "archive", "heartbeat_every", "lease_for")
"""Arguments of `redrive.App`."""

KNOWN = ("database", "store", "store_settings", "retry", "policies", *APP_SETTINGS)

POSTGRES_OPTIONS = (
    "application_name", "passfile", "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert", "target_session_attrs",
)  # fmt: skip
"""OPTIONS of a database that are about the connection, and that both drivers of redrive support."""


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The settings of one backend."""

    where: str
    """The path of these settings, for messages."""
    url: str = field(repr=False)
    database: str | None
    """The alias of Django's database with the jobs; None if they are in a database of their own."""
    retry: Policy | str | None = None
    policies: Mapping[str, Policy | str] = field(default_factory=dict)
    app: Mapping[str, timedelta | float | str] = field(default_factory=dict)


def read(alias: str, given: Mapping[str, Any]) -> BackendOptions:
    """Read the OPTIONS of the backend with an alias in TASKS, or raise `ConfigurationError`."""
    where = f"TASKS[{alias!r}]['OPTIONS']"
    unknown = sorted(set(given) - set(KNOWN))
    if unknown:
        raise ConfigurationError(f"{where} has {unknown[0]!r}; options: {', '.join(KNOWN)}")
    if "store" in given and ("database" in given or "store_settings" in given):
        message = f"{where} has 'store' and an option about a database of Django's: leave one of them out"
        raise ConfigurationError(message)
    database = None if "store" in given else given.get("database", "default")
    url = given["store"] if database is None else url_of(database, where, given.get("store_settings", {}))
    app = {name: given[name] for name in APP_SETTINGS if name in given}
    return BackendOptions(where, url, database, given.get("retry"), given.get("policies", {}), app)


def url_of(database: str, where: str, store_settings: Mapping[str, str]) -> str:
    """Return the store URL of one of Django's databases, or raise `ConfigurationError`."""
    try:
        connection = connections[database]
    except ConnectionDoesNotExist as error:
        message = f"{where}: there is no DATABASES[{database!r}]; name the one for the jobs by 'database'"
        raise ConfigurationError(message) from error
    if connection.vendor == "sqlite":
        return _sqlite(connection.settings_dict, store_settings)
    if connection.vendor == "postgresql":
        return _postgres(connection.settings_dict, store_settings)
    message = (
        f"{where}: DATABASES[{database!r}] is on {connection.display_name}, which cannot store jobs: name another "
        "database by 'store': 'sqlite:////var/lib/jobs.db' or 'postgresql://user@host/jobs'"
    )
    raise ConfigurationError(message)


def _sqlite(settings: Mapping[str, Any], store_settings: Mapping[str, str]) -> str:
    name = str(settings["NAME"])
    if name == ":memory:" or "mode=memory" in name:
        # The test runner's database in memory has no address, so the jobs get a store of their own.
        return "memory://"
    return f"sqlite:///{quote(str(Path(name).absolute()))}" + _query(store_settings)


def _postgres(settings: Mapping[str, Any], store_settings: Mapping[str, str]) -> str:
    found = {name: str(settings["OPTIONS"][name]) for name in POSTGRES_OPTIONS if name in settings["OPTIONS"]}
    host = str(settings["HOST"] or "")
    place = f":{settings['PORT']}" if settings["PORT"] else ""
    if host.startswith("/") or "," in host or ":" in host:
        # The folder of a socket, a list of servers with their ports, or an IPv6 address.
        found |= {"host": host} | ({"port": str(settings["PORT"])} if settings["PORT"] else {})
        place = ""
    elif host:
        place = f"{quote(host)}{place}"
    user = quote(str(settings["USER"]), safe="")
    password = f":{quote(str(settings['PASSWORD']), safe='')}" if settings["PASSWORD"] else ""
    login = f"{user}{password}@" if user else ""
    return f"postgresql://{login}{place}/{quote(str(settings['NAME']), safe='')}" + _query(found | dict(store_settings))


def _query(settings: Mapping[str, str]) -> str:
    return f"?{urlencode(settings, quote_via=quote)}" if settings else ""
