"""The client: redis-py's own, with its retries off and a policy in their place, in both colours.

`wrap` makes a second client on the connections of the first, of a class derived from the first one's: every command,
``lock()``, ``pipeline()`` and ``transaction()`` work as before. Three places of redis-py are used, the same in all its
versions from 5 on:

* ``execute_command``, through which all commands go, is called under the policy. Which one depends on the command: see
  `redrive.contrib.redis.calls.Calls`.
* ``Pipeline.execute`` too, as one call that is repeated as a whole. Its answers are looked at before the first error is
  raised: where a part was executed and a part refused, as by a server that has just become a replica, a repetition is
  one of the executed part, and the failure is *in flight*, although each answer is known.
* ``get_connection`` of the pool: what fails in it was *not sent*, since it connects, greets and authenticates. That is
  the only proof which is taken, so whatever redis-py does elsewhere in other versions errs on the careful side.

**A lost EXEC.** When a connection is lost, redis-py tells a pipeline that watches keys ``WatchError``: "the watched
keys may have changed", which is right as long as nothing but reads was sent. But it says the same when the reply to
``EXEC`` is lost, and its ``transaction()`` then runs the whole transaction again, although it was executed. Here the
error of the connection is raised instead. A pipeline that watches is never repeated: what it has read is old.

**Time.** In sync code the time that is left (`redrive.deadline`) bounds the wait for each answer, as far as it is
shorter than the client's ``socket_timeout``. In async code the loop cuts the attempt off, and redis-py drops the
connection. Connecting has redis-py's own ``socket_connect_timeout``.
"""

# ruff: noqa: ANN401 - it hands on arguments and answers of any command; only redis-py and its user know the types

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from redrive.contrib.redis import aio, blocking
from redrive.contrib.redis.calls import Calls, derived
from redrive.policy import Policy

__all__ = ["wrap"]


@overload
def wrap(client: redis.Redis, policy: Policy, *, answers_matter: bool = True) -> redis.Redis: ...
@overload
def wrap(client: redis.asyncio.Redis, policy: Policy, *, answers_matter: bool = True) -> redis.asyncio.Redis: ...
def wrap(
    client: redis.Redis | redis.asyncio.Redis, policy: Policy, *, answers_matter: bool = True
) -> redis.Redis | redis.asyncio.Redis:
    """A client that retries under a policy, on the connections of another one.

    Args:
        client: ``redis.Redis`` or ``redis.asyncio.Redis``. Its own retries are switched off, also for whoever goes on
            using it: they belong to its connections.
        policy: its ``on`` may name reasons and exceptions; without one, whatever `failure_of` describes is retried.
            Where it does not say ``idempotent``, the command decides.
        answers_matter: False, if no answer is looked at that says whether a command has changed anything: then ``DEL``,
            ``SADD``, ``HSET`` and the other commands of `Repetition.EFFECT` are repeated too after a lost reply.

    Returns:
        The client, of a class that is derived from the given one's. Close either of the two.

    Raises:
        TypeError: it is another kind of client, such as one for clusters, or one that is wrapped already.
        PolicyValueError: the policy's ``on`` is a function already, or it is a combination of policies.
    """
    is_wrapped = isinstance(client, blocking.Client | aio.Client)
    if is_wrapped or not isinstance(client, redis.Redis | redis.asyncio.Redis):
        kind = type(client)
        what = "wrapped already" if is_wrapped else f"a {kind.__module__}.{kind.__qualname__}"
        raise TypeError(f"wrap() takes a redis.Redis or a redis.asyncio.Redis, and this one is {what}")
    calls = Calls(policy, answers_matter=answers_matter)
    if isinstance(client, redis.Redis):
        client.set_retry(Retry(NoBackoff(), 0))
        _observe(client.connection_pool, blocking.marking)
        return derived(client, blocking.Client, calls)
    client.set_retry(AsyncRetry(NoBackoff(), 0))
    _observe(client.connection_pool, aio.marking)
    return derived(client, aio.Client, calls)


def _observe(pool: Any, marking: Callable[[Any], Callable[..., Any]]) -> None:
    """Have a pool mark what fails before a connection is had; once for each pool."""
    if "get_connection" not in vars(pool):
        pool.get_connection = marking(pool)
