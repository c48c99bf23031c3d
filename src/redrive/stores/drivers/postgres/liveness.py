"""The question whether a server still answers, for sessions whose answer is late.

A session cannot distinguish a statement that takes long from a server that is stopped or cut off: a kernel acknowledges
for a process that is stopped, and packets that are dropped are sent again for minutes. Where the URL has another
server, that would delay each caller for the whole timeout. So a session that has had no answer for a moment asks for
one on a new connection: whether the server encrypts, which needs no login, and which pgbouncer answers too.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any

from redrive.stores.drivers.postgres.servers import Address

_SSL_REQUEST = struct.pack("!ii", 8, 80877103)

# Parts of the address of a socket of IPv6.
_V6 = 4


def lost_text(address: Address, seconds: float) -> str:
    """Return the reason why a session was given up."""
    return f"{address}: no answer, and none on a new connection within {seconds:.1f} s"


def answers(peer: Any, seconds: float) -> bool:  # noqa: ANN401 - an address of a socket
    """Return True if the server at the address of a socket answers on a new connection; block for these seconds."""
    family = socket.AF_UNIX if isinstance(peer, str) else socket.AF_INET6 if len(peer) == _V6 else socket.AF_INET
    # A firewall, a machine that is gone or an address without a server may refuse as well.
    with contextlib.suppress(OSError), socket.socket(family) as asking:
        asking.settimeout(seconds)
        asking.connect(peer)
        asking.sendall(_SSL_REQUEST)
        return bool(asking.recv(1))
    return False
