"""The receiver, as a separate process, over real HTTP."""

from __future__ import annotations

import hashlib
import itertools
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from ledger import read_ledger
from plan import Act, plan_for

FOLDER = Path(__file__).parents[2] / "examples" / "webhooks"
SEED = 3
BODY = "🙂".encode() * 5_000


class Started:
    """A running receiver: where it listens, what it wrote, and how to speak to it."""

    def __init__(self, ledger: Path, *options: str) -> None:
        self.ledger = ledger
        command = [sys.executable, str(FOLDER / "receiver.py"), "--ledger", str(ledger), "--seed", str(SEED), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.complaints = ""
        self.url = self.process.stdout.readline().strip().removeprefix("listening on ")

    def post(self, event_id: str, key: str = "key", *, timeout: float | httpx.Timeout = 60.0) -> httpx.Response:
        """Send one event, once."""
        headers = {"Idempotency-Key": key, "X-Event-Id": event_id, "X-Job-Id": "17"}
        return httpx.post(self.url, content=BODY, headers=headers, timeout=timeout, trust_env=False)

    def connection(self) -> socket.socket:
        """Open a bare connection to it."""
        return socket.create_connection(("127.0.0.1", httpx.URL(self.url).port), timeout=10)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Stop it by a signal; its exit status."""
        self.process.send_signal(number)
        _, self.complaints = self.process.communicate(timeout=10)
        return self.process.returncode


@pytest.fixture
def ledger(tmp_path):
    """Return the path of the ledger."""
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def receiver(ledger):
    """Run a receiver on a free port; at the end it must not have printed an error."""
    started = Started(ledger)
    yield started
    if started.process.returncode is None:
        started.end()
    assert "" == started.complaints


def event_that_meets(*acts: Act) -> str:
    """Find an event with first requests that get these acts."""
    ids = (f"evt_{number}" for number in itertools.count())
    return next(name for name in ids if tuple(plan_for(SEED, name).act(n) for n in range(1, len(acts) + 1)) == acts)


def head(event_id: str) -> bytes:
    """Write the head of a request that announces nine bytes of body."""
    return f"POST / HTTP/1.1\r\nContent-Length: 9\r\nIdempotency-Key: k\r\nX-Event-Id: {event_id}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("act", "status", "retry_after"),
    [(Act.ACCEPT, 200, None), (Act.ERROR, 500, None), (Act.BUSY, 503, "1"), (Act.GONE, 410, None)],
)
def test_the_receiver_answers_as_planned(receiver, act, status, retry_after):
    """200, 500, 503 with Retry-After and 410 come over the wire and stand in the ledger."""
    response = receiver.post(event_that_meets(act))
    assert (status, retry_after) == (response.status_code, response.headers.get("Retry-After"))
    (entry,) = read_ledger(receiver.ledger)
    assert (act, status, act is Act.ACCEPT) == (entry.act, entry.status, entry.accepted)


def test_the_ledger_records_each_request(receiver):
    """Each entry names job, event, key and the number under the key, and has the digest of the exact bytes."""
    event_id = event_that_meets(Act.ACCEPT)
    receiver.post(event_id, "key-1")
    (entry,) = read_ledger(receiver.ledger)
    assert (17, event_id, "key-1", 1) == (entry.job, entry.event, entry.key, entry.request)
    assert (len(BODY), hashlib.sha256(BODY).hexdigest()) == (entry.size, entry.digest)


def test_the_receiver_resets_before_it_has_read_the_body(receiver):
    """Before the reset the receiver has read no byte of the body; the sender gets a broken connection."""
    # Where the reset overtakes the body, httpx reports the write that failed, else that no response came.
    with pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)):
        receiver.post(event_that_meets(Act.RESET_BEFORE_BODY))
    (entry,) = read_ledger(receiver.ledger)
    assert (0, "", None, False) == (entry.size, entry.digest, entry.status, entry.accepted)


def test_a_reset_before_the_body_leaves_the_body_in_the_kernel(receiver):
    """Reset a sender that has not sent one byte of its body yet."""
    with receiver.connection() as connection:
        connection.sendall(head(event_that_meets(Act.RESET_BEFORE_BODY)))
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_the_receiver_resets_after_it_has_read_the_body(receiver):
    """After the whole event is read, the connection is reset, and no status is sent."""
    with pytest.raises(httpx.ReadError, match="reset"):
        receiver.post(event_that_meets(Act.RESET_AFTER_BODY))
    (entry,) = read_ledger(receiver.ledger)
    assert (len(BODY), None, True) == (entry.size, entry.status, entry.accepted)


def test_a_slow_answer_comes_after_the_sender_has_left(receiver):
    """Slow answers take the event, but the sender disconnects before they come."""
    with pytest.raises(httpx.ReadTimeout):
        receiver.post(event_that_meets(Act.SLOW), timeout=httpx.Timeout(60, read=0.1))
    receiver.end()
    (entry,) = read_ledger(receiver.ledger)
    assert (Act.SLOW, None, True) == (entry.act, entry.status, entry.accepted)


def test_a_repeat_after_acceptance_is_reported_as_a_duplicate(receiver):
    """Repeats under an accepted key are not taken again, and are answered 200."""
    event_id = event_that_meets(Act.RESET_AFTER_BODY, Act.ACCEPT)
    with pytest.raises(httpx.ReadError):
        receiver.post(event_id)
    assert 200 == receiver.post(event_id).status_code
    entries = read_ledger(receiver.ledger)
    assert [(1, True, False), (2, False, True)] == [(e.request, e.accepted, e.duplicate) for e in entries]


def test_each_key_gets_the_plan_from_its_start(receiver):
    """Under another key the same event is another delivery, and meets the first act again."""
    event_id = event_that_meets(Act.ERROR, Act.ACCEPT)
    statuses = [receiver.post(event_id, key).status_code for key in ("one", "one", "two")]
    assert [500, 200, 500] == statuses


def test_the_ledger_survives_a_kill(receiver, ledger):
    """After a kill, a new receiver has all accepted events and the number of requests of the old one."""
    event_id = event_that_meets(Act.ACCEPT)
    receiver.post(event_id)
    assert -signal.SIGKILL == receiver.end(signal.SIGKILL)
    successor = Started(ledger)
    successor.post(event_id)
    assert 0 == successor.end()
    assert [(1, True, False), (2, False, True)] == [(e.request, e.accepted, e.duplicate) for e in read_ledger(ledger)]


def test_a_half_written_last_line_is_dropped(ledger):
    """Incomplete last lines are no entries, and the next line is written separately."""
    ledger.write_text('{"at": "20')
    assert [] == read_ledger(ledger)
    receiver = Started(ledger)
    receiver.post(event_that_meets(Act.ACCEPT))
    receiver.end()
    assert 1 == len(read_ledger(ledger))


def test_a_request_without_a_key_is_refused(receiver):
    """Refuse a request without Idempotency-Key, X-Event-Id or body with 400, and record no entry."""
    response = httpx.post(receiver.url, content=b"x", headers={"X-Event-Id": "e"}, trust_env=False)
    assert 400 == response.status_code
    assert [] == read_ledger(receiver.ledger)


def test_a_truncated_body_is_not_accepted(receiver):
    """Incomplete bodies are not accepted."""
    with receiver.connection() as connection:
        connection.sendall(head(event_that_meets(Act.ACCEPT)) + b"half")
        connection.shutdown(socket.SHUT_WR)
        assert b"" == connection.recv(1)
    (entry,) = read_ledger(receiver.ledger)
    assert (None, False, 0) == (entry.status, entry.accepted, entry.size)


def refusal(*options: str) -> tuple[int, str]:
    """Exit status and standard error of a receiver that cannot start."""
    run = subprocess.run(
        [sys.executable, str(FOLDER / "receiver.py"), *options], capture_output=True, text=True, timeout=30, check=False
    )
    return run.returncode, run.stderr


def test_a_port_that_is_taken_is_one_line(tmp_path):
    """Exit status 2 and one line that names the port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        status, message = refusal("--ledger", str(tmp_path / "l"), "--port", str(port))
    assert (2, 1) == (status, message.count("\n"))
    assert f"port {port} of 127.0.0.1" in message


def test_a_port_that_does_not_exist_is_one_line(tmp_path):
    """Report a wrong port with exit status 2 and one line that names the possible ports."""
    status, message = refusal("--ledger", str(tmp_path / "l"), "--port", "65536")
    assert (2, "there is no port 65536: ports are 0 to 65535\n") == (status, message)


def test_a_file_that_is_no_ledger_is_not_overwritten(ledger):
    """Refuse a file of another format in one line, and leave it as it is."""
    ledger.write_text("dear diary\n")
    status, message = refusal("--ledger", str(ledger))
    assert (2, 1) == (status, message.count("\n"))
    assert "dear diary\n" == ledger.read_text()


def test_a_ledger_belongs_to_one_receiver(receiver, ledger):
    """Second receivers on the same ledger refuse to start, in one line."""
    status, message = refusal("--ledger", str(ledger))
    assert (2, f"another receiver writes {ledger}: stop that one first\n") == (status, message)


def test_a_ledger_that_cannot_be_written_is_one_line(tmp_path):
    """Exit status 2 and one line that names the file."""
    status, message = refusal("--ledger", str(tmp_path / "missing" / "ledger.jsonl"))
    assert (2, 1) == (status, message.count("\n"))
    assert "ledger.jsonl" in message
