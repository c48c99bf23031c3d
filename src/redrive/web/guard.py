"""What a browser must send, and what it receives with each response. PURE.

Each rule answers a known failure of another dashboard: DNS rebinding, which passes every check but that of the ``Host``
header; cross-site forms; framing; scripts in stored texts; redirects to foreign sites after a login.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from redrive.operate.exchange import Refusal

#: Headers of each response. The policy has no exception for scripts or styles inside a page.
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

SAFE: Final = frozenset({"GET", "HEAD"})

# Any of them shows that a proxy stands between the browser and this process.
_FORWARDED: Final = (
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "cf-connecting-ip",
    "true-client-ip",
    "fly-client-ip",
)

# Headers on which the rights of a request depend.
_SINGLE: Final = ("host", "origin", "sec-fetch-site", "authorization")


def check_host(host: str | None, hosts: Collection[str]) -> None:
    """Check the ``Host`` header.

    Args:
        host: its value.
        hosts: the allowed names, besides those of this machine's loopback interface, in lower case and without ports.

    Raises:
        Refusal: 421, the name is not allowed.
    """
    name = host_name(host or "")
    if name not in hosts and not is_loopback(name):
        raise Refusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"this dashboard does not serve the host {name[:100]!r}: add it to hosts=, or to --host-name",
        )


def host_name(host: str) -> str:
    """Return a host without its port, in lower case."""
    if host.startswith("["):
        return host.partition("]")[0][1:].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


def is_loopback(name: str) -> bool:
    """Return True if a host is this machine's loopback interface."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def check_direct(headers: Mapping[str, str]) -> None:
    """Check that no proxy forwarded a request to a site without authentication.

    Raises:
        Refusal: 403, there is a header of a proxy.
    """
    found = next((name for name in _FORWARDED if name in headers), None)
    if found is not None:
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            f"this dashboard has no authentication and serves this machine only, but the request has {found}, which a "
            "proxy adds: configure auth=",
        )


def check_single(names: Iterable[str], more: Collection[str] = ()) -> None:
    """Check that a request has each header once on which its rights depend: two readers might take another one.

    Args:
        names: the names of all its headers, in lower case.
        more: names of such headers, in lower case.

    Raises:
        Refusal: 400, it has one twice.
    """
    count = Counter(names)
    found = next((each for each in (*_SINGLE, *more) if count[each] > 1), None)
    if found is not None:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the request has {found} more than once")


def check_origin(method: str, headers: Mapping[str, str], *, scheme: str, has_token: bool) -> None:
    """Check that a request that changes something was sent by a page of this site, or by a program.

    Browsers send ``Sec-Fetch-Site`` to HTTPS and to this machine only, and otherwise ``Origin``. A request with neither
    of them comes from a program, which has to identify itself by a token, because a browser adds none by itself.

    Args:
        method: of the request.
        headers: with names in lower case.
        scheme: ``http`` or ``https``.
        has_token: True if the request has a bearer token, and no session.

    Raises:
        Refusal: 403, it was sent by another site.
    """
    if method in SAFE:
        return
    site = headers.get("sec-fetch-site")
    if site is not None:
        is_own = site in {"same-origin", "none"}
    elif (origin := headers.get("origin")) is not None:
        is_own = _same_origin(origin, scheme, headers.get("host", ""))
    else:
        is_own = has_token
    if not is_own:
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            "the request was not sent by a page of this dashboard: open the dashboard itself, or send a bearer token",
        )


def _same_origin(origin: str, scheme: str, host: str) -> bool:
    try:
        sent, own = urlsplit(origin), urlsplit(f"{scheme}://{host}")
        default = {"http": 80, "https": 443}
        return (sent.scheme, sent.hostname, sent.port or default.get(sent.scheme)) == (
            own.scheme,
            own.hostname,
            own.port or default.get(own.scheme),
        )
    except ValueError:
        return False


def own_path(text: str | None, default: str = "/") -> str:
    r"""Return the path to show after a login, if it is one of this site; otherwise the default.

    A browser reads ``//evil`` and ``/\evil`` as addresses of other sites.
    """
    if text is None or not text.startswith("/") or text.startswith("//") or "\\" in text or not text.isprintable():
        return default
    return text
