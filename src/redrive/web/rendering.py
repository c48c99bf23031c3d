"""Templates and assets: how data becomes HTML."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from redrive.clock import SystemClock
from redrive.engine.commands import command, of_jobs
from redrive.engine.records import Filter
from redrive.operate.charts.axes import took
from redrive.operate.exchange import Request, Site
from redrive.operate.filters import WORDS, read_search, rest, write
from redrive.version import __version__
from redrive.visible import visible
from redrive.web import zones

_DURING: Final = {"1h": "hour", "8h": "8 hours", "3d": "3 days", "90d": "90 days"}
_AGO: Final = {"1h": "an hour ago", "8h": "8 hours ago", "3d": "3 days ago", "90d": "90 days ago"}
_NONE: Final = Markup("&ndash;")
_STATIC: Final = resources.files("redrive.web") / "static"

#: The files that pages load; no others are served.
ASSETS: Final = (
    "style.css",
    "theme.js",
    "redrive.js",
    "icons.svg",
    "vendor/idiomorph.js",
    "vendor/inter.woff2",
    "vendor/jetbrains-mono.woff2",
)


_KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "woff2": "font/woff2"}


class Asset(msgspec.Struct, frozen=True, gc=False):
    """A file that pages load."""

    content: bytes
    kind: str
    digest: str


@functools.cache
def asset(name: str) -> Asset:
    """Read a file that pages load. It stays in memory, because it belongs to this version of the code."""
    content = (_STATIC / name).read_bytes()
    if name.endswith(".css"):
        # An address inside of the style sheet has the digest of its own file, so that it is loaded once.
        content = re.sub(rb'url\("([^"]+)"\)', _address, content)
    return Asset(content, _KINDS[name.rpartition(".")[2]], hashlib.sha256(content).hexdigest()[:12])


def _address(found: re.Match[bytes]) -> bytes:
    name = found[1].decode()
    return f'url("../{asset(name).digest}/{name}")'.encode()


def render(
    template: str, site: Site, request: Request, values: Mapping[str, object], zone: ZoneInfo = zones.UTC
) -> str:
    """Render a template for a request, with times in a zone."""

    def url(path: str) -> str:
        # What a macro has written is escaped, and is escaped once more where it stands.
        return f"{request.prefix}{path.unescape() if isinstance(path, Markup) else path}"

    def static(name: str) -> str:
        return f"{request.prefix}/assets/{asset(name).digest}/{name}"

    def of_app(name: str, path: str) -> str:
        """Return the address of a page of another app that is served here."""
        return f"{request.prefix.removesuffix(f'/{site.name}')}/{name}{path}"

    at = getattr(values.get("data"), "at", None) or site.app.now() or SystemClock().now()
    given = {"url": url, "of_app": of_app, "static": static, "site": site, "request": request}
    return (
        _environment()
        .get_template(template)
        .render(given | {"version": __version__, "zone": zone, "at": at} | dict(values))
    )


@functools.cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("redrive.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"when": when, "relative": relative, "span": _span, "json": _json, "shown": _shown}
    found.filters |= {"offset": pass_context(lambda context, at: zones.offset(at, context["zone"]))}
    found.globals |= {"shell": command, "shell_of_jobs": _of_jobs, "quantity": _quantity, "words": WORDS}
    found.globals |= {"ago": _AGO.__getitem__, "during": _DURING.__getitem__}
    return found


def _of_jobs(verb: str, reference: str, q: str, **options: str | bool | None) -> str:
    found = read_search(q)
    text = rest(found)
    if text.startswith("-"):
        # It would look like an option.
        return of_jobs(verb, reference, Filter(), write(found.where, found.word), **options)
    return of_jobs(verb, reference, found.where, text, **options)


@pass_context
def when(context: Context, instant: datetime | None) -> Markup:
    """Write an instant as an element with its time in the viewer's zone: of today without the date."""
    if instant is None:
        return _NONE
    zone: ZoneInfo = context["zone"]
    return _element(instant, zone, zones.short(instant, zone, context["at"]))


# The script replaces the text by the same words as time passes.
@pass_context
def relative(context: Context, instant: datetime | None) -> Markup:
    """Write an instant as an element with how long ago it was, or how far it is, when the page was read."""
    if instant is None:
        return _NONE
    return _element(instant, context["zone"], zones.ago(instant, context["at"]), Markup(" data-relative"))


def _element(instant: datetime, zone: ZoneInfo, text: str, more: str = "") -> Markup:
    at = instant.astimezone(UTC)
    return Markup('<time{} datetime="{}" title="{}">{}</time>').format(
        more, at.isoformat(), zones.exact(at, zone), text
    )


def _span(seconds: float | None) -> str:
    return "\N{EN DASH}" if seconds is None else took(seconds)


def _quantity(text: str) -> tuple[str, str]:
    """Return a number and its unit; a text with two units is not divided."""
    number, _, unit = text.partition("\N{NO-BREAK SPACE}")
    return (text, "") if "\N{NO-BREAK SPACE}" in unit else (number, unit)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _shown(text: object) -> str:
    r"""Write the control characters of a text as escapes; ``\n`` stays."""
    return "\n".join(visible(line) for line in str(text).split("\n"))
