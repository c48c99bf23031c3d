"""Notifications to systemd: the service is ready, it stops, and its event loop works (``Type=notify``)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

MICROSECONDS = 1_000_000


class Systemd:
    """The notification socket of the service manager.

    Attributes:
        watchdog: seconds after which systemd ends a service that has not notified it; None without a watchdog.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # A name in the abstract namespace is written with "@".
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        is_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        spans = environment.get("WATCHDOG_USEC", "")
        self.watchdog: float | None = int(spans) / MICROSECONDS if spans.isdecimal() and is_for_us and address else None

    def notify(self, state: str) -> None:
        """Send a state, such as ``READY=1``. Without systemd, and if it does not listen, nothing happens."""
        if self._address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # The event loop must not wait for systemd.
                sender.settimeout(0)
                sender.sendto(state.encode(), self._address)
