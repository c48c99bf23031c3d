"""The app of the tests; workers import it as ``shop``. Each task writes what it does into a ledger."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from celery import Celery, chain, chord, signals
from policies import ERRORS, RULED

import redrive
from redrive import observe
from redrive.contrib.celery import CatchRequest, PolicyTask
from redrive.policy import Backoff, Policy

LEDGER = Path(os.environ["LEDGER"])

app = Celery("shop", broker=os.environ["BROKER"], backend=os.environ["BACKEND"], task_cls=PolicyTask)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options=json.loads(os.environ.get("TRANSPORT", "{}")),
    result_expires=600,
    task_default_queue=os.environ.get("QUEUE", "celery"),
    worker_prefetch_multiplier=1,
)


if "UNCHECKED" in os.environ:
    # As without the check of the worker, to show what it prevents.
    PolicyTask.on_bound = classmethod(lambda cls, app: None)


if "HOP" in os.environ:
    PolicyTask.hop = redrive.policy.parse_duration(os.environ["HOP"])


class Busy(Exception):
    """A server asks for a pause."""

    retry_after = 2.0


def note(*words: object) -> None:
    """Write one line, after all lines of other processes."""
    line = json.dumps([time.time(), os.getpid(), *words]) + "\n"
    file = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


def count(*words: object) -> int:
    """Return how often these words were noted."""
    if not LEDGER.exists():
        return 0
    return sum(json.loads(line)[2 : 2 + len(words)] == list(words) for line in LEDGER.read_text().splitlines())


@observe.add
def event(each: object) -> None:
    """Note the events of tasks."""
    if isinstance(each, observe.TaskEvent):
        note("event", type(each).__name__, each.task_id, each.rule, each.attempt)


@signals.task_retry.connect
def retried(request: object, **more: object) -> None:
    """Note a signal of Celery."""
    note("signal", "task_retry", request.id)


@signals.task_failure.connect
def failed(task_id: str, **more: object) -> None:
    """Note a signal of Celery."""
    note("signal", "task_failure", task_id)


SIMPLE = "5 50ms 1s catch recover"


def play(task: str, key: str, script: list[str]) -> str:
    """Do what the script of a call has for this execution; the last word is repeated."""
    number = count("run", task, key)
    note("run", task, key)
    word = script[min(number, len(script) - 1)]
    match word.partition(":"):
        case ("ok", _, _):
            return key
        case ("Snooze", _, delay):
            raise redrive.Snooze(float(delay))
        case ("Busy", _, _):
            raise Busy("wait")
        case ("Cancel", _, _):
            raise redrive.Cancel("not needed")
        case ("kill", _, _):
            os.kill(os.getpid(), signal.SIGKILL)
        case ("sleep", _, seconds):
            until = time.monotonic() + float(seconds)
            while time.monotonic() < until:
                time.sleep(0.02)
            return key
    raise ERRORS[word]


def policy_task(name: str, policy: Policy | str, **options: object) -> object:
    """Declare a task that plays a script."""

    @app.task(name=f"shop.{name}", retry=policy, **options)
    def scripted(key: str, script: list[str]) -> str:
        return play(name, key, script)

    return scripted


simple = policy_task("simple", SIMPLE)
ruled = policy_task("ruled", RULED)
strict = policy_task("strict", Policy.parse(SIMPLE).with_(idempotent=False))
strict_later = policy_task("strict_later", Policy.parse("3 25s catch recover").with_(idempotent=False))
early = policy_task("early", SIMPLE, acks_late=False)
limited = policy_task("limited", SIMPLE, time_limit=2)
softly = policy_task("softly", "1 50ms catch recover", soft_time_limit=1)
later = policy_task("later", "3 15s")
much_later = policy_task("much_later", "3 30s")
due = policy_task("due", "9 700ms 700ms catch recover")
brief = policy_task(
    "brief",
    Policy(deadline="1s", backoff=Backoff.constant("700ms"), attempts=9, jitter="none", over_deadline="truncate"),
)


@app.task(bind=True, retry="1 50ms")
def by_hand(self, key: str) -> str:
    """Repeat three times by Celery's own method."""
    note("run", "by_hand", key, (self.request.headers or {}).get("redrive"))
    if count("run", "by_hand", key) < 4:
        raise self.retry(countdown=0.05)
    return "done"


@app.task(retry="3 50ms catch recover")
def several(first: int, *, second: int) -> None:
    """Fail, with two arguments."""
    raise ConnectionError(f"{first} {second}")


@app.task
def total(parts: list[str]) -> list[str]:
    """Note the end of a chord."""
    note("total", parts)
    return parts


@app.task
def begin(kind: str, *keys: str) -> None:
    """Send a chord of calls that fail once, or a chain of them."""
    parts = [simple.s(key, ["ConnectionError", "ok"]) for key in keys]
    if kind == "chord":
        chord(parts)(total.s())
    else:
        chain(parts[0], follow.s("chain"))()


@app.task
def follow(result: str, key: str) -> str:
    """Note a link of a chain."""
    note("follow", key, result)
    return f"{key} after {result}"


@app.task
def recover(request: CatchRequest) -> None:
    """Take what failed; the first time not, if the key asks for that."""
    key = request.request.get("key", "") if isinstance(request.request, dict) else ""
    note(
        "catch", request.task, request.request, request.error, [each.rule for each in request.attempts], request.task_id
    )
    if key.startswith("recover fails") and count("catch", request.task, request.request) == 1:
        raise OSError("recover is down")
    if key.startswith("recover dies") and count("catch", request.task, request.request) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    note("caught", request.task_id)
