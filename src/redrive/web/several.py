"""The dashboards of several apps in one application, each below the name of its app, with a switch in its header.

They share nothing but the process: an app whose database is away keeps no page of the others. A session is a row in the
database of an app, so that each app has a login of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount
from starlette.routing import Route as HttpRoute

from redrive.app.app import App
from redrive.errors import ConfigurationError
from redrive.operate.exchange import Dev, Payloads, Refusal, Site
from redrive.runtime.health import PROBES
from redrive.web.asgi import Dashboard
from redrive.web.probes import WebProbes
from redrive.web.reading import path_of, prefix_of

_NAME: Final = re.compile(r"[A-Za-z0-9_:~-][A-Za-z0-9_.:~-]*")


def sites(
    apps: Mapping[str, App],
    reference: str | None = None,
    *,
    title: str = "",
    payloads: Payloads = Payloads.REDACTED,
    open_to_all: bool = False,
    dev: Dev | None = None,
) -> dict[str, Site]:
    """Return the settings of the dashboard of each app, by its name; a single one without a name stands at the root.

    Args:
        apps: the apps by name.
        reference: the App in commands that pages recommend; None for that of each app.
        title: as in `Site`, and so the others.
        payloads: likewise.
        open_to_all: likewise.
        dev: likewise.

    Raises:
        ConfigurationError: a name cannot be a part of an address, or there is no app.
    """
    if not apps:
        raise ConfigurationError("a dashboard needs at least one App")
    names = () if [*apps] == [""] else tuple(apps)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in PROBES:
            raise ConfigurationError(
                f"{name!r} cannot be a part of the address of a dashboard: a name has letters, digits and _ . : ~ -"
            )
    return {
        name: Site(app, title, payloads, open_to_all, reference or app.reference, dev, name, names)
        for name, app in apps.items()
    }


class Dashboards:
    """The dashboards of a process.

    Args:
        dashboards: by the names of their apps; a single one without a name stands at the root.

    Attributes:
        paths: where each of them is.
    """

    def __init__(self, dashboards: Mapping[str, Dashboard]) -> None:
        self._dashboards = dict(dashboards)
        self._first = next(iter(self._dashboards.values()))
        self.paths: tuple[str, ...] = tuple(f"/{name}/" if name else "/" for name in self._dashboards)

    def stop(self) -> None:
        """End all streams, so that the server can stop."""
        for each in self._dashboards.values():
            each.pulse.stop()

    def application(self) -> Starlette:
        """Return the ASGI application."""
        if self.paths == ("/",):
            return self._first.application()
        apps = {name: each.app for name, each in self._dashboards.items()}
        return Starlette(
            routes=[
                *WebProbes(apps, lambda: self._first.pulse.is_closed).routes(),
                *[Mount(f"/{name}", each.application()) for name, each in self._dashboards.items()],
                self._first.assets(),
                HttpRoute("/", self._first.guarded(self._root)),
                HttpRoute("/{path:path}", self._first.guarded(self._unknown), methods=["GET", "POST"]),
            ]
        )

    async def _root(self, request: HttpRequest) -> Response:
        return RedirectResponse(f"{prefix_of(request)}{self.paths[0]}", HTTPStatus.SEE_OTHER)

    async def _unknown(self, request: HttpRequest) -> Response:
        raise Refusal(
            HTTPStatus.NOT_FOUND,
            f"there is no page {path_of(request)!r} here: several apps are served, each below its name: "
            f"{', '.join(self.paths)}",
        )
