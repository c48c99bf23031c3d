"""The sender: an App with two tasks. This is the part that you would write.

`deliver` makes one attempt. It does not loop, sleep or count; it classifies the answer, and its policy decides what
happens next:

====================================  ============================================================================
the subscriber                        the attempt
====================================  ============================================================================
answers 2xx                           succeeds
answers 503 with ``Retry-After``      raises `redrive.RetryAfter`: not again before then
answers 410                           raises `redrive.GiveUp`: never again; the catch task gets it at once
any other answer                      raises httpx's error: again after 200 ms, 400 ms, 800 ms, ... up to 2 s
resets, or cannot be reached          raises httpx's error: the same
takes longer than a second            is ended by its timeout: the same
====================================  ============================================================================

After seven attempts `to_dead_letters` gets the event, and is itself retried until it succeeds.

At least once is the most that can be promised across a network: after a reset it is unknown whether the event was
taken. So every attempt of a job carries the same ``Idempotency-Key``, and the subscriber can recognise a repeat.

Settings come from the environment: ``WEBHOOKS_DB``, ``WEBHOOKS_URL`` and ``WEBHOOKS_DEAD_LETTERS``.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import httpx
import msgspec
from events import Event

from redrive import App, CatchRequest, Context, GiveUp, RetryAfter

__all__ = ["DeadLetter", "app", "deliver", "read_dead_letters", "to_dead_letters"]

_URL = os.environ.get("WEBHOOKS_URL", "http://127.0.0.1:8099")
_DEAD_LETTERS = Path(os.environ.get("WEBHOOKS_DEAD_LETTERS", "dead-letters.jsonl"))

# A worker that is killed is missed after three seconds here, so that one can watch it; the default is fifteen.
app = App(os.environ.get("WEBHOOKS_DB", "sqlite:///webhooks.db"), heartbeat_every="500ms", lease_for="3s")


class DeadLetter(msgspec.Struct, frozen=True):
    """A line of the dead-letter file: an event that could not be delivered, and why.

    Args:
        key: idempotency key of the catch job that wrote it; one that was interrupted may have written twice, so readers
            go by this.
        job: the delivery.
        attempts: how often it was tried.
        error: the last failure.
        event: whole, so that it can be delivered by other means.
    """

    key: str
    job: int
    attempts: int
    error: str
    event: Event


def read_dead_letters(path: Path) -> list[DeadLetter]:
    """Read the dead-letter file, which may be missing or lack the end of its last line; a broken line is an error."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [msgspec.json.decode(line, type=DeadLetter) for line in lines]


@app.task
async def to_dead_letters(request: CatchRequest[Event], ctx: Context) -> None:
    """Append the event to the dead-letter file."""
    letter = DeadLetter(ctx.idempotency_key, request.job_id, len(request.attempts), request.error, request.request)
    with _DEAD_LETTERS.open("ab", buffering=0) as file:  # noqa: ASYNC230 - one write, microseconds
        file.write(msgspec.json.encode(letter) + b"\n")


@app.task(retry="6 200ms 2s catch to_dead_letters", timeout="1s")
async def deliver(event: Event, ctx: Context) -> int:
    """Try once to hand the event to the subscriber.

    Returns:
        The HTTP status of the answer.
    """
    response = await _client().post(
        _URL,
        content=msgspec.json.encode(event),
        headers={
            "Content-Type": "application/json",
            "Idempotency-Key": ctx.idempotency_key,
            "X-Event-Id": event.id,
            "X-Job-Id": str(ctx.job_id),
        },
    )
    wait = response.headers.get("Retry-After", "")
    if response.status_code == 410:
        raise GiveUp("the subscriber is gone for good (410)")
    if response.status_code == 503 and wait.isdecimal():
        raise RetryAfter(float(wait), f"busy (503), asks for {wait} s")
    return response.raise_for_status().status_code


@functools.cache
def _client() -> httpx.AsyncClient:
    """Return the client of the process. It uses no proxy of the environment: the subscriber is on this machine."""
    return httpx.AsyncClient(trust_env=False)
