"""The client in sync code; see `redrive.contrib.redis.client`."""

# ruff: noqa: ANN401 - it hands on arguments and answers of any command; only redis-py and its user know the types

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import redis
import redis.client
from redis import exceptions

from redrive.contrib.redis.calls import Calls, derived, is_elsewhere, judge, lost, mark_partial, name_of
from redrive.contrib.redis.replies import mark
from redrive.policy import Stage
from redrive.retrying import loops
from redrive.retrying.context import deadline

__all__ = ["Client", "Pipeline", "marking"]

_LEAST = 0.001  # seconds; a socket with a timeout of 0 does not wait at all, which is something else


class Client(redis.Redis):
    """What is different in a sync client."""

    _calls: Calls
    _original: redis.Redis  # which closes the connections when it goes, so it must not go before this one

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """See redis-py; under the policy."""
        return loops.proceed(self._calls.start(name_of(args), [args]), self._once, args, options)

    def _once(self, *args: Any, **options: Any) -> Any:
        once: Callable[..., Any] = super().execute_command
        try:
            return once(*args, **options)
        except exceptions.ResponseError as error:
            if is_elsewhere(error):
                self.connection_pool.disconnect(inuse_connections=False)
            raise

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> redis.client.Pipeline:  # noqa: FBT001, FBT002 - redis-py's
        """See redis-py; the pipeline is under the policy too."""
        made = Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made._calls = self._calls  # noqa: SLF001 - our own
        return made

    def client(self) -> redis.Redis:
        """See redis-py; what it gives is under the policy too."""
        original: Any = self._original
        made: redis.Redis = original.client()
        return derived(made, Client, self._calls)

    def __del__(self) -> None:
        """Leave the connections to the original."""


class Pipeline(redis.client.Pipeline):
    """A pipeline that is repeated as a whole, or not at all."""

    _calls: Calls

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        """See redis-py; under the policy, unless keys are watched already."""
        once: Callable[..., Any] = super().immediate_execute_command
        if self.watching:
            return once(*args, **options)
        return loops.proceed(self._calls.start(name_of(args), [args]), once, args, options)

    def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - redis-py's
        """See redis-py; under the policy, unless keys are watched."""
        if self.watching or not self.command_stack:
            return self._once(raise_on_error)
        stack, scripts, explicit = self.command_stack, self.scripts, self.explicit_transaction

        def attempt() -> list[Any]:
            self.command_stack = [(args, dict(options)) for args, options in stack]  # redis-py changes options
            self.scripts, self.explicit_transaction = set(scripts), explicit
            return self._once(raise_on_error)

        run = self._calls.start("pipeline", [args for args, _ in stack])
        return cast("list[Any]", loops.proceed(run, attempt, (), {}))

    def _once(self, raise_on_error: bool) -> list[Any]:  # noqa: FBT001 - handed on
        stack = self.command_stack
        try:
            answers = super().execute(raise_on_error=False)
            if raise_on_error:
                judge(self, stack, answers)
        except exceptions.WatchError as error:
            raise lost(error) from None
        except exceptions.RedisError as error:
            mark_partial(error, stack)
            if is_elsewhere(error):
                self.connection_pool.disconnect(inuse_connections=False)
            raise
        return answers


def marking(pool: Any) -> Callable[..., Any]:
    """What takes the place of a pool's ``get_connection``: it marks what fails before there is a connection."""
    acquire = pool.get_connection

    def get_connection(*args: Any, **options: Any) -> Any:
        try:
            connection = acquire(*args, **options)
        except exceptions.RedisError as error:
            mark(error, Stage.NOT_SENT)
            raise
        _bound(connection)
        return connection

    return get_connection


def _bound(connection: Any) -> None:
    """Let a connection wait for an answer as long as there is time, and no longer than it would by itself."""
    sock = getattr(connection, "_sock", None)
    left, own = deadline(), connection.socket_timeout
    if sock is None:
        return
    wanted = own if left is None else max(_LEAST, left.remaining if own is None else min(own, left.remaining))
    if sock.gettimeout() != wanted:
        sock.settimeout(wanted)
