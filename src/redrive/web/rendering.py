"""Templates and assets: how data becomes HTML."""

from __future__ import annotations

import functools
import hashlib
import mimetypes
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Final

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from redrive.clock import SystemClock
from redrive.engine.commands import command, of_jobs
from redrive.engine.explain import span
from redrive.operate.exchange import Request, Site
from redrive.operate.filters import parse
from redrive.version import __version__
from redrive.visible import visible

_STATIC: Final = resources.files("redrive.web") / "static"

#: The files that pages load; no others are served.
ASSETS: Final = ("style.css", "theme.js", "redrive.js", "icons.svg", "vendor/htmx.js", "vendor/idiomorph.js")


class Asset(msgspec.Struct, frozen=True, gc=False):
    """A file that pages load."""

    content: bytes
    kind: str
    digest: str


@functools.cache
def asset(name: str) -> Asset:
    """Read a file that pages load. It stays in memory, because it belongs to this version of the code."""
    content = (_STATIC / name).read_bytes()
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Asset(content, "text/javascript" if name.endswith(".js") else kind, hashlib.sha256(content).hexdigest()[:12])


def render(template: str, site: Site, request: Request, values: Mapping[str, object]) -> str:
    """Render a template for a request."""

    def url(path: str) -> str:
        return f"{request.prefix}{path}"

    def static(name: str) -> str:
        return f"{request.prefix}/assets/{asset(name).digest}/{name}"

    def of_app(name: str, path: str) -> str:
        """Return the address of a page of another app that is served here."""
        return f"{request.prefix.removesuffix(f'/{site.name}')}/{name}{path}"

    given = {
        "url": url,
        "of_app": of_app,
        "here": "/",
        "static": static,
        "site": site,
        "request": request,
        "version": __version__,
    }
    given["now"] = lambda: site.app.now() or SystemClock().now()
    return _environment().get_template(template).render(given | dict(values))


@functools.cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("redrive.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"when": when, "relative": relative, "span": _span, "exact": exact, "json": _json, "shown": _shown}
    found.globals |= {"shell": command, "shell_of_jobs": _of_jobs}
    return found


def _of_jobs(verb: str, reference: str, q: str, **options: str | bool | None) -> str:
    return of_jobs(verb, reference, parse(q), **options)


def when(instant: datetime | None) -> Markup:
    """Write an instant as an element with its exact time."""
    if instant is None:
        return Markup("&ndash;")
    at = instant.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), exact(at), at.strftime("%Y-%m-%d %H:%M:%S")
    )


# The text is right without JavaScript too; the script replaces it by how long ago the instant was, or how far it is.
def relative(instant: datetime | None) -> Markup:
    """Write an instant as an element with a text that counts down."""
    if instant is None:
        return Markup("&ndash;")
    at = instant.astimezone(UTC)
    return Markup('<time data-relative datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), exact(at), at.strftime("%Y-%m-%d %H:%M:%S UTC")
    )


def exact(instant: datetime) -> str:
    """Write an instant with microseconds."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def _span(seconds: float | None) -> str:
    return "\N{EN DASH}" if seconds is None else span(timedelta(seconds=seconds))


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _shown(text: object) -> str:
    r"""Write the control characters of a text as escapes; ``\n`` stays."""
    return "\n".join(visible(line) for line in str(text).split("\n"))
