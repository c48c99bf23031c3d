"""``redrive web``: serve the dashboard of one app, or of several."""

from __future__ import annotations

import getpass
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from redrive.app.app import App
from redrive.cli.loading import Targets, load_apps
from redrive.cli.screen import say
from redrive.cli.server import Server
from redrive.errors import ConfigurationError, StoreUnreachable
from redrive.web import Account, NoAuth, Payloads, Users, hash_password, hash_token, rng
from redrive.web.asgi import Dashboard
from redrive.web.guard import is_loopback, own_path
from redrive.web.several import Dashboards, sites


def _print_hash(asked: bool) -> None:
    if asked:
        say(hash_password(getpass.getpass("password: ")))
        raise typer.Exit


def _print_token(asked: bool) -> None:
    if asked:
        token = rng.token()
        say(token)
        say(f'its line in the file of users: token = "{hash_token(token)}"', err=True)
        raise typer.Exit


def web(
    app: Targets,
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses one.")] = 8765,
    users: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The users (TOML); without them only this machine is served.")
    ] = None,
    host_name: Annotated[
        list[str] | None, typer.Option(help="A name that browsers may use, such as ops.example.com; may be repeated.")
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(metavar="PATH", help="The path that a proxy removes before it forwards, such as /ops/redrive."),
    ] = "",
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address or network of a proxy whose X-Forwarded headers are believed; may be repeated.",
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Name of this instance in the header, such as production.")] = "",
    payloads: Annotated[Payloads, typer.Option(help="How much of arguments and results is shown.")] = Payloads.REDACTED,
    _: Annotated[
        bool,
        typer.Option(
            "--hash-password", callback=_print_hash, is_eager=True, help="Ask for a password and print its hash."
        ),
    ] = False,
    __: Annotated[
        bool,
        typer.Option(
            "--new-token", callback=_print_token, is_eager=True, help="Print a token for a program, and its hash."
        ),
    ] = False,
) -> None:
    """Serve the dashboard of an app, or those of several apps, each below its name.

    The file of users has a table for each: role = "read" or "operate", and password = "scrypt:..." as --hash-password
    prints it, or for a program token = the SHA-256 of its bearer token. --new-token prints a token on standard output,
    and that line on standard error.
    """
    if users is None:
        _demand_users(host, proxy)
    if prefix and (own_path(prefix, "") != prefix or prefix.endswith("/")):
        raise ConfigurationError(f"--prefix {prefix!r} is not a path such as /ops/redrive")
    auth = NoAuth() if users is None else Users(_read(users), proxies=proxy or ())
    apps = _opened(load_apps(app))
    hosts = {host, *(host_name or ())} if users is None or host_name else None
    found = sites(apps, title=title, payloads=payloads, open_to_all=users is None)
    dashboards = Dashboards({name: Dashboard(site, auth, hosts) for name, site in found.items()})
    Server(dashboards, host, port, prefix, proxies=proxy or ()).run()


def _opened(apps: Mapping[str, App]) -> Mapping[str, App]:
    """Open the databases, and return the apps by the names of their dashboards; one of several may be away."""
    away: list[StoreUnreachable] = []
    for app in apps.values():
        try:
            app.open(migrate=False)
        except StoreUnreachable as error:
            away.append(error)
    if len(away) == len(apps):
        raise away[0]
    for each in away:
        say(str(each), err=True)
    return apps if len(apps) > 1 else {"": next(iter(apps.values()))}


def _demand_users(host: str, proxy: list[str] | None) -> None:
    """Refuse options that let other machines in; raise `ConfigurationError`."""
    if not is_loopback(host):
        raise ConfigurationError(
            f"--host {host} serves other machines, and there are no users: give them by --users FILE"
        )
    if proxy:
        raise ConfigurationError(
            "--proxy: without users no request is served that a proxy has forwarded: give them by --users FILE"
        )


def _read(path: Path) -> dict[str, Account]:
    """Read a file of users."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(found, dict[str, Account], strict=True)
    except OSError as error:
        raise ConfigurationError(f"--users {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"--users {path} is not a file of users: {error}") from error
