"""An unreliable subscriber: an HTTP server that fails by a seeded plan and records every request.

::

    python receiver.py --ledger ledger.jsonl --seed 7 [--port 8099]

It prints ``listening on http://127.0.0.1:PORT``, takes ``POST`` requests on any path, and writes one line for each into
the ledger (see `ledger`). Its reactions are defined in `plan`. SIGTERM or Ctrl-C ends it after the requests in
progress, so that the ledger is complete.

Two details make its failures real:

* A reset is a TCP reset: the socket is closed with a linger time of zero, so the kernel sends RST, not FIN. The sender
  sees ``ECONNRESET``, as when a load balancer dies.
* "Before it has read the body" is meant literally. The standard handler reads through a buffer, which would fetch the
  start of the body together with the headers; this one reads unbuffered (``rbufsize = 0``).

A slow answer is abandoned as soon as the sender disconnects, so that the ledger's lines have the order of events.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import select
import signal
import socket
import struct
import sys
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, NoReturn

import msgspec
from ledger import Entry, Ledger, LedgerTakenError
from plan import RETRY_AFTER, SLOW_FOR, Act, plan_for

__all__ = ["Receiver", "main"]

_TAKES = {Act.ACCEPT, Act.SLOW, Act.RESET_AFTER_BODY}
_STATUS = {Act.ACCEPT: 200, Act.SLOW: 200, Act.ERROR: 500, Act.BUSY: 503, Act.GONE: 410}
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # linger: on, for zero seconds


class Receiver(ThreadingHTTPServer):
    """The server: one thread a connection, one request a connection.

    Args:
        port: to listen on, on the loopback address; 0 lets the system choose.
        seed: of the plan.
        ledger: where to write what happened.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = False  # server_close() waits for them
    request_queue_size = 128  # the default of 5 would refuse connections by itself, and spoil the plan

    def __init__(self, *, port: int, seed: int, ledger: Ledger) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.seed = seed
        self.ledger = ledger


class _Handler(BaseHTTPRequestHandler):
    """One request: count it, look up what to do, do it, write it down, answer."""

    server: Receiver
    protocol_version = "HTTP/1.1"
    server_version = "unreliable-subscriber"
    sys_version = ""
    rbufsize: ClassVar[int] = 0
    timeout: ClassVar[float] = 10  # seconds of silence, in the middle of a request too

    def do_POST(self) -> None:
        """Receive one event."""
        self.close_connection = True  # one request a connection, answered or not
        size = self.headers.get("Content-Length", "")
        if not (size.isdecimal() and int(size) and self.headers["Idempotency-Key"] and self.headers["X-Event-Id"]):
            self._answer(400)
            return
        request = self.server.ledger.count(self.headers["Idempotency-Key"])
        act = plan_for(self.server.seed, self.headers["X-Event-Id"]).act(request)
        if act is Act.RESET_BEFORE_BODY:
            self._write(request, act, status=None, body=b"")
            self._reset()
            return
        body = self._read(int(size))
        status = None if body is None or self._breaks_off(act) else _STATUS[act]
        self._write(request, act, status=status, body=body or b"")
        if act is Act.RESET_AFTER_BODY:
            self._reset()
        elif status is not None:
            self._answer(status)

    def _read(self, size: int) -> bytes | None:
        """Read the body; an incomplete body is empty. Unbuffered reads return the bytes that are there, not all."""
        body = b""
        with contextlib.suppress(OSError):
            while chunk := self.rfile.read(size - len(body)):
                body += chunk
        return body if len(body) == size else None

    def _breaks_off(self, act: Act) -> bool:
        """Return True if no answer is given: by the plan, or because the sender did not wait for a slow one."""
        if act is Act.SLOW:
            hung_up, _, _ = select.select([self.connection], [], [], SLOW_FOR)
            return bool(hung_up)
        return act is Act.RESET_AFTER_BODY

    def _write(self, request: int, act: Act, *, status: int | None, body: bytes) -> None:
        key = self.headers["Idempotency-Key"]
        takes = act in _TAKES and bool(body)
        accepted = takes and self.server.ledger.accept(key)
        self.server.ledger.write(
            Entry(
                at=datetime.now(UTC),
                job=int(self.headers.get("X-Job-Id", "0")),
                event=self.headers["X-Event-Id"],
                key=key,
                request=request,
                act=act,
                status=status,
                accepted=accepted,
                duplicate=takes and not accepted,
                size=len(body),
                digest=hashlib.sha256(body).hexdigest() if body else "",
            )
        )

    def _answer(self, status: int) -> None:
        self.send_response(status)
        if status == 503:
            self.send_header("Retry-After", str(RETRY_AFTER))
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        with contextlib.suppress(OSError):  # the sender has gone, or was killed
            self.end_headers()

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.rfile.close()  # it shares the socket, which closes when its last user does
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Print nothing: the ledger is the log."""


def main() -> None:
    """Serve until stopped; exit with status 2 and one line if it cannot start."""
    parser = argparse.ArgumentParser(description="An HTTP server that misbehaves by a seeded plan.")
    parser.add_argument("--ledger", type=Path, required=True, help="file for what it received; an old one is continued")
    parser.add_argument("--seed", type=int, default=7, help="of the plan")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 takes any free one")
    options = parser.parse_args()
    if not 0 <= options.port <= 65535:
        _refuse(f"there is no port {options.port}: ports are 0 to 65535")
    try:
        ledger = Ledger(options.ledger)
    except LedgerTakenError as error:
        _refuse(f"{error}: stop that one first")
    except (OSError, msgspec.DecodeError) as error:
        _refuse(f"the ledger {options.ledger} cannot be continued: {error}")
    try:
        receiver = Receiver(port=options.port, seed=options.seed, ledger=ledger)
    except OSError as error:
        _refuse(
            f"port {options.port} of 127.0.0.1 cannot be had ({error.strerror}): take another, or 0 for any free one"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"listening on http://127.0.0.1:{receiver.server_port}", flush=True)
    try:
        receiver.serve_forever()
    except KeyboardInterrupt:
        receiver.server_close()


def _refuse(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
