"""The dashboard: see jobs, queues and workers, why a job is not running, and act on them.

May import: everything below it. Must never: decide anything or hold SQL; the command line can do everything that a
page can do.

::

    ann = Account(Role.OPERATE, password=hash_password("..."))
    dashboard = redrive.web.create_app(jobs, auth=Users({"ann": ann}))
    app = Starlette(routes=[Mount("/ops/redrive", dashboard)])

A page is a row of the table of `redrive.operate`; `asgi` serves it as HTML, and below ``/api/v1`` as JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from redrive.app.app import App
from redrive.contrib import extra

with extra("web"):
    from starlette.applications import Starlette

    from redrive.web.asgi import Dashboard
    from redrive.web.several import Dashboards, sites

from redrive.errors import ConfigurationError
from redrive.operate.exchange import Payloads, Role, User
from redrive.web.auth import Account, Auth, Credentials, NoAuth, Proxy, Resolver, Users, hash_password, hash_token

__all__ = [
    "Account",
    "Auth",
    "Credentials",
    "NoAuth",
    "Payloads",
    "Proxy",
    "Resolver",
    "Role",
    "User",
    "Users",
    "create_app",
    "hash_password",
    "hash_token",
]


def create_app(
    app: App | Mapping[str, App],
    *,
    auth: Auth | Resolver,
    title: str = "",
    payloads: Payloads = Payloads.REDACTED,
    hosts: Collection[str] | None = None,
    reference: str = "APP",
) -> Starlette:
    """Return the dashboard of an App as an ASGI application, to be served or mounted.

    Args:
        app: the App. The first request opens its database, which must exist and have the present schema. Several Apps
            by their names: the dashboard of each is below ``/NAME/``, and their pages have a switch.
        auth: the users and their rights: `Users`, `Proxy`, `NoAuth`, or an async function that returns
            the `User` of `Credentials`, None for a stranger, or the address of a login page.
        title: the name of this instance in the header, such as ``production``.
        payloads: how much of arguments, results and progress is shown.
        hosts: the host names under which it may be called, besides those of this machine. None leaves the check to the
            application around it; without authentication only this machine is served.
        reference: the App in commands that pages recommend, such as ``payments.jobs:app``. Of several Apps each has its
            own, `App.reference`.

    Raises:
        ConfigurationError: ``auth`` is no way to authenticate, or a name cannot be a part of an address.
    """
    if not callable(auth) and not hasattr(auth, "identify"):
        raise ConfigurationError(f"auth={auth!r}: give Users(...), Proxy(...), NoAuth() or an async function")
    is_open = isinstance(auth, NoAuth)
    allowed = () if is_open and hosts is None else hosts
    apps, name = (app, None) if isinstance(app, Mapping) else ({"": app}, reference)
    found = sites(apps, name, title=title, payloads=Payloads(payloads), open_to_all=is_open)
    return Dashboards({each: Dashboard(site, auth, allowed) for each, site in found.items()}).application()
