"""The client for asyncio, line by line that of `redrive.contrib.redis.blocking`; see `redrive.contrib.redis.client`."""

# ruff: noqa: ANN401 - it hands on arguments and answers of any command; only redis-py and its user know the types

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import redis.asyncio
import redis.asyncio.client
from redis import exceptions

from redrive.contrib.redis.calls import Calls, derived, is_elsewhere, judge, lost, mark_partial, name_of
from redrive.contrib.redis.replies import mark
from redrive.policy import Stage
from redrive.retrying import loops

__all__ = ["Client", "Pipeline", "marking"]


class Client(redis.asyncio.Redis):
    """The same for asyncio."""

    _calls: Calls
    _original: redis.asyncio.Redis

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """See redis-py; under the policy."""
        return await loops.aproceed(self._calls.start(name_of(args), [args]), self._once, args, options)

    async def _once(self, *args: Any, **options: Any) -> Any:
        once: Callable[..., Any] = super().execute_command
        try:
            return await once(*args, **options)
        except exceptions.ResponseError as error:
            if is_elsewhere(error):
                await self.connection_pool.disconnect(inuse_connections=False)
            raise

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> redis.asyncio.client.Pipeline:  # noqa: FBT001, FBT002 - redis-py's
        """See redis-py; the pipeline is under the policy too."""
        made = Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made._calls = self._calls  # noqa: SLF001 - our own
        return made

    def client(self) -> redis.asyncio.Redis:
        """See redis-py; what it gives is under the policy too."""
        made: redis.asyncio.Redis = self._original.client()
        return derived(made, Client, self._calls)

    def __del__(self, *_: object) -> None:
        """Leave the connections, and the warning about them, to the original."""


class Pipeline(redis.asyncio.client.Pipeline):
    """A pipeline that is repeated as a whole, or not at all."""

    _calls: Calls

    async def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        """See redis-py; under the policy, unless keys are watched already."""
        once: Callable[..., Any] = super().immediate_execute_command
        if self.watching:
            return await once(*args, **options)
        return await loops.aproceed(self._calls.start(name_of(args), [args]), once, args, options)

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - redis-py's
        """See redis-py; under the policy, unless keys are watched."""
        if self.watching or not self.command_stack:
            return await self._once(raise_on_error)
        stack, scripts, explicit = self.command_stack, self.scripts, self.explicit_transaction

        async def attempt() -> list[Any]:
            """All of it, from the beginning."""
            self.command_stack = [(args, dict(options)) for args, options in stack]
            self.scripts, self.explicit_transaction = set(scripts), explicit
            return await self._once(raise_on_error)

        run = self._calls.start("pipeline", [args for args, _ in stack])
        return cast("list[Any]", await loops.aproceed(run, attempt, (), {}))

    async def _once(self, raise_on_error: bool) -> list[Any]:  # noqa: FBT001 - handed on
        stack = self.command_stack
        try:
            answers = await super().execute(raise_on_error=False)
            if raise_on_error:
                judge(self, stack, answers)
        except exceptions.WatchError as error:
            raise lost(error) from None
        except exceptions.RedisError as error:
            mark_partial(error, stack)
            if is_elsewhere(error):
                await self.connection_pool.disconnect(inuse_connections=False)
            raise
        return answers


def marking(pool: Any) -> Callable[..., Awaitable[Any]]:
    """What takes the place of a pool's ``get_connection``: it marks what fails before there is a connection."""
    acquire = pool.get_connection

    async def get_connection(*args: Any, **options: Any) -> Any:
        """See redis-py."""
        try:
            connection = await acquire(*args, **options)
            await _revive(pool, connection)
        except exceptions.RedisError as error:
            mark(error, Stage.NOT_SENT)
            raise
        return connection

    return get_connection


async def _revive(pool: Any, connection: Any) -> None:
    """Connect anew where the server has closed a connection while it was idle.

    redis-py 8 looks for that and, where it listens for maintenance (its default), passes over what it sees.
    """
    reader = getattr(connection, "_reader", None)
    if reader is None or not reader.at_eof():
        return
    try:
        await connection.disconnect()
        await connection.connect()
    except BaseException:
        await pool.release(connection)
        raise
