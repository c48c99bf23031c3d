"""With two lists of Redis, to and from workers that may be written in any language.

`python lists.py start`, `python lists.py work NAME` and `python lists.py poll NAME`, as many of each as you like; each
worker and each poller needs a name of its own, and keeps it when it is started again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import download
import tables
from msgspec import json
from redis import Redis
from sqlalchemy.orm import Session

INPUT, OUTPUT = "bigtables-input", "bigtables-output"


def start(redis: Redis) -> int:
    """Start due refreshes; return their number.

    Orders are sent after the commit: a worker cannot answer before its token is stored. An order that is lost
    between the two, or in Redis, gets no answer, and at its deadline the attempt has failed.
    """
    with Session(tables.engine) as session, session.begin():
        orders = tables.start(session)
    if orders:
        redis.rpush(INPUT, *(json.encode(each) for each in orders))
    return len(orders)


def work(redis: Redis, name: str, *, wait: int | None = None) -> None:
    """Do what stands in the one list, and put the answers into the other."""
    for message in messages(redis, INPUT, name, wait=wait):
        redis.rpush(OUTPUT, json.encode(download.answer_to(json.decode(message, type=download.Request))))


def poll(redis: Redis, name: str, *, wait: int | None = None) -> None:
    """Write the answers, each in a transaction of its own."""
    for message in messages(redis, OUTPUT, name, wait=wait):
        with Session(tables.engine) as session, session.begin():
            tables.settle(session, json.decode(message, type=download.Result))


def messages(redis: Redis, queue: str, name: str, *, wait: int | None = None) -> Iterator[bytes | str]:
    """Read a list without losing a message.

    A message is moved to the reader's own list, and removed from it when the reader asks for the next one: then the
    reader has finished. A reader that comes back after a crash first receives the messages that it had not finished.

    Args:
        redis: the client.
        queue: name of the list.
        name: of the reader.
        wait: seconds to wait for a message; None ends with the last one that is there.
    """
    mine = f"{queue}:{name}"
    while True:
        message = redis.lindex(mine, 0)
        if message is None and wait is not None:
            message = redis.blmove(queue, mine, wait, "LEFT", "RIGHT")
        elif message is None:
            message = redis.lmove(queue, mine, "LEFT", "RIGHT")
        if message is not None:
            yield message
            redis.lpop(mine)
        elif wait is None:
            return


def main(role: str, name: str = "only") -> None:
    """Run one of the three for ever."""
    redis = Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
    tables.Base.metadata.create_all(tables.engine)
    if role == "work":
        work(redis, name, wait=1)
    elif role == "poll":
        poll(redis, name, wait=1)
    else:
        while True:
            start(redis)
            time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
