"""The actors of the tests, which workers import as ``bazaar``. Each one writes what it does into a ledger."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import dramatiq
from dramatiq.middleware import AgeLimit, AsyncIO, GroupCallbacks, Pipelines, ShutdownNotifications, TimeLimit
from dramatiq.rate_limits.backends import RedisBackend, StubBackend
from policies import ERRORS, RULED

import redrive
from redrive import observe
from redrive.contrib.dramatiq import CatchRequest, PolicyRetries
from redrive.policy import Policy

LEDGER = Path(os.environ["LEDGER"])
QUEUE = os.environ["QUEUE"]
URL = os.environ["BROKER"]

middleware = [PolicyRetries(hop=os.environ.get("HOP", "10m")), AgeLimit(), TimeLimit(interval=100)]
middleware += [ShutdownNotifications(), Pipelines(), AsyncIO()]
middleware += [GroupCallbacks(RedisBackend(url=URL) if URL.startswith("redis") else StubBackend())]
if URL.startswith("redis"):
    from dramatiq.brokers.redis import RedisBroker

    # A dead worker is noticed soon.
    broker = RedisBroker(
        url=URL, middleware=middleware, namespace=QUEUE, heartbeat_timeout=8_000, maintenance_chance=1_000_000
    )
else:
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    broker = RabbitmqBroker(url=URL, middleware=middleware, confirm_delivery=True)
dramatiq.set_broker(broker)


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
    """Note the events of actors."""
    if isinstance(each, observe.TaskEvent):
        note("event", type(each).__name__, each.task_id, each.rule, each.attempt)


def word_of(actor: str, key: str, script: list[str]) -> str:
    """Return what a call does in this execution; the last word is repeated."""
    number = count("run", actor, key)
    note("run", actor, key)
    return script[min(number, len(script) - 1)]


def play(word: str, key: str) -> str:
    """Do it."""
    match word.partition(":"):
        case ("ok", _, _):
            note("done", key)
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
            note("done", key)
            return key
    raise ERRORS[word]


def scripted(name: str, policy: Policy | str, **options: object) -> dramatiq.Actor:
    """Declare an actor that plays a script."""

    @dramatiq.actor(actor_name=name, queue_name=QUEUE, retry=policy, **options)
    def actor(key: str, script: list[str]) -> str:
        return play(word_of(name, key, script), key)

    return actor


SIMPLE = "5 20ms 40ms catch recover"

simple = scripted("simple", os.environ.get("POLICY", SIMPLE))
ruled = scripted("ruled", RULED)
strict = scripted("strict", Policy.parse(SIMPLE).with_(idempotent=False))
limited = scripted("limited", "1 20ms catch recover", time_limit=700)
later = scripted("later", os.environ.get("LATER", "3 4s"))
if "ORPHAN" in os.environ:
    orphan = scripted("orphan", "1 20ms catch nobody")
stoppable = scripted("stoppable", "1 20ms catch recover", notify_shutdown=True)


@dramatiq.actor(queue_name=QUEUE, retry=SIMPLE, time_limit=1500)
async def waiting(key: str, script: list[str]) -> None:
    """Play a script in the event loop."""
    word = word_of("waiting", key, script)
    if word == "sleep":
        await asyncio.sleep(60)
    await asyncio.sleep(0.01)
    play(word, key)


@dramatiq.actor(queue_name=QUEUE)
def begin(kind: str, *keys: str) -> None:
    """Send a group of calls that fail once, or a pipeline of them."""
    parts = [simple.message(key, ["ConnectionError", "ok"]) for key in keys]
    if kind == "group":
        group = dramatiq.group(parts)
        group.add_completion_callback(total.message(list(keys)))
        group.run()
    else:
        dramatiq.pipeline([*parts, follow.message("pipeline")]).run()


@dramatiq.actor(queue_name=QUEUE)
def total(keys: list[str]) -> None:
    """Note the end of a group."""
    note("total", keys)


@dramatiq.actor(queue_name=QUEUE)
def follow(key: str, result: str) -> None:
    """Note the end of a pipeline."""
    note("follow", key, result)


@dramatiq.actor(queue_name=QUEUE)
def recover(request: CatchRequest) -> None:
    """Take what failed; the first time not, if the key asks for that."""
    rules = [each.rule for each in request.attempts]
    note("catch", request.task, request.request, request.error, rules, request.task_id)
    key = request.request["key"]
    if key.startswith("recover fails") and count("catch", request.task, request.request) == 1:
        raise OSError("recover is down")
    note("caught", request.task_id)
