"""The addresses from which a request comes: that of the other end of the connection, and that of its sender.

A server such as uvicorn replaces the address of the connection by one of ``X-Forwarded-For`` before an application sees
it, as middleware does by other headers, and the sender of the header chooses the address. So the address is read from
the connection itself, and otherwise not known.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, TypeAlias

from starlette.requests import Request as HttpRequest

from redrive.errors import ConfigurationError

Address: TypeAlias = IPv4Address | IPv6Address

# A customer of a provider has at least this part of the addresses of IPv6 (RFC 6177).
_OWN_PART: Final = 64


class Peers:
    """A list of addresses and networks of proxies.

    Args:
        given: addresses such as ``10.0.0.1``, and networks such as ``10.0.0.0/8``.
        where: for the message of the error.

    Raises:
        ConfigurationError: one is neither.
    """

    def __init__(self, given: Collection[str], where: str) -> None:
        found = []
        for each in given:
            try:
                found.append(ipaddress.ip_network(each))
            except ValueError as error:
                raise ConfigurationError(f"{where}: {each!r} is not an IP address or a network") from error
        self._networks = tuple(found)

    def __contains__(self, text: str | None) -> bool:
        address = _address(text or "")
        return address is not None and any(address in each for each in self._networks)

    def sender(self, peer: str | None, forwarded: Iterable[str]) -> str | None:
        """Return the address of the sender of a request; None if it is not known.

        Args:
            peer: the address of the other end of the connection.
            forwarded: the values of ``X-Forwarded-For``. Each proxy appends an address, and those that come before the
                first address that is no proxy are the sender's own words.
        """
        if peer not in self:
            return peer
        for each in reversed(",".join(forwarded).split(",")):
            address = _address(each)
            if address is None:
                return peer
            peer = str(address)
            if peer not in self:
                return peer
        return peer


def _address(text: str) -> Address | None:
    """Return an address without its port; one of IPv4 that is written as one of IPv6 is itself."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def counted(text: str | None) -> str:
    """Return the name under which requests of an address are counted: of IPv6 its network, which one sender has."""
    address = _address(text or "")
    if isinstance(address, IPv6Address):
        return str(ipaddress.ip_network((address, _OWN_PART), strict=False))
    return "" if address is None else str(address)


def peer_of(request: HttpRequest) -> str | None:
    """Return the address of the other end of the connection; None for a Unix socket, or if it is not known."""
    transport = _transport(request)
    name = None if transport is None else transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) else None


def _transport(request: HttpRequest) -> Any:  # noqa: ANN401 - asyncio's or uvloop's, which have no common class
    """Return the connection of a request, if the server passes a method of an object that has it, as uvicorn does."""
    found = getattr(getattr(request.receive, "__self__", None), "transport", None)
    return found if hasattr(found, "get_extra_info") else None
