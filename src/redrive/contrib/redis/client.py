"""Clients of redis-py with a policy instead of redis-py's own retries.

`wrap` makes a second client on the connections of the first, of a class derived from the first client's class, so that
every command, ``lock()``, ``pipeline()`` and ``transaction()`` work as before. A pipeline is repeated as a whole, and
not at all if it watches keys, because the values that it has read may be outdated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar, cast, overload

from redrive.contrib import extra
from redrive.contrib.redis.commands import Repetition, repetition_of, worst_of
from redrive.contrib.redis.replies import MARK, REPLIES, code_of, failure_of, mark
from redrive.errors import PolicyValueError
from redrive.errors.foreign import attribute, context_of, is_a
from redrive.policy import Failure, Policy, Stage
from redrive.policy.classify import reading
from redrive.retrying import loops
from redrive.retrying.context import deadline
from redrive.retrying.plan import Plan
from redrive.retrying.state import CallState, start

with extra("redis"):
    import redis
    import redis.asyncio
    import redis.asyncio.client
    import redis.client
    from redis import exceptions
    from redis.asyncio.retry import Retry as AsyncRetry
    from redis.backoff import NoBackoff
    from redis.retry import Retry

# Seconds. A timeout of 0 would make the socket non-blocking.
_SHORTEST_TIMEOUT = 0.001


@overload
def wrap(client: redis.Redis, policy: Policy, *, answers_matter: bool = True) -> redis.Redis: ...
@overload
def wrap(client: redis.asyncio.Redis, policy: Policy, *, answers_matter: bool = True) -> redis.asyncio.Redis: ...
def wrap(
    client: redis.Redis | redis.asyncio.Redis, policy: Policy, *, answers_matter: bool = True
) -> redis.Redis | redis.asyncio.Redis:
    """Return a client that retries under a policy, on the connections of another client.

    Args:
        client: ``redis.Redis`` or ``redis.asyncio.Redis``. Its own retries are disabled, also when it is used directly,
            because they belong to its connections.
        policy: its ``on`` may name reasons and exceptions; without ``on`` all failures that `failure_of` describes are
            retried. Without ``idempotent`` the command decides whether it is repeated after a lost reply.
        answers_matter: False if the program ignores replies that show whether a command has changed data. Then
            ``DEL``, ``SADD``, ``HSET`` and the other commands of `Repetition.EFFECT` are repeated after a lost reply.

    Returns:
        The client, of a class derived from the given client's. Close either of the two.

    Raises:
        TypeError: the client has another class, such as one for clusters, or is wrapped already.
        PolicyValueError: the policy's ``on`` is a function, or the policy is a combination.
    """
    is_wrapped = isinstance(client, RetryingClient | AsyncRetryingClient)
    if is_wrapped or not isinstance(client, redis.Redis | redis.asyncio.Redis):
        kind = type(client)
        what = "wrapped already" if is_wrapped else f"a {kind.__module__}.{kind.__qualname__}"
        raise TypeError(f"wrap() takes a redis.Redis or a redis.asyncio.Redis, and this client is {what}")
    policies = CommandPolicies(policy, answers_matter=answers_matter)
    pool: Any = client.connection_pool
    # Several clients may share a pool; its method is replaced once.
    is_new = "get_connection" not in vars(pool)
    if isinstance(client, redis.Redis):
        _set_retry(client, Retry(NoBackoff(), 0))
        if is_new:
            pool.get_connection = _marking(pool)
        return derived(client, RetryingClient, policies)
    client.set_retry(AsyncRetry(NoBackoff(), 0))
    if is_new:
        pool.get_connection = _async_marking(pool)
    return derived(client, AsyncRetryingClient, policies)


def _set_retry(client: redis.Redis, retry: Retry) -> None:
    """Replace the retries of the connections of a client."""
    pool: Any = client.connection_pool
    # The method set_retry of redis-py fails for a BlockingConnectionPool, which has one list of all its connections.
    connections = vars(pool).get("_connections")
    if connections is None:
        client.set_retry(retry)
        return
    pool.connection_kwargs["retry"] = retry
    for connection in connections:
        connection.retry = retry


# The classes override execute_command, Pipeline.execute and the pool's get_connection, which are the same in all
# versions of redis-py from 5 on. Commands that fail in get_connection, which connects, sends the handshake and
# authenticates, were not sent. No other evidence is used, so changes in redis-py lead to fewer retries, not to more.


class RetryingClient(redis.Redis):
    """A sync client that executes commands under a policy."""

    _policies: CommandPolicies
    # Kept alive, because it closes the connections when it is deleted.
    _original: redis.Redis

    def execute_command(self, *args: object, **options: object) -> Any:
        """Execute a command under the policy."""
        return loops.proceed(self._policies.start(name_of(args), [args]), self._once, args, options)

    def _once(self, *args: object, **options: object) -> Any:
        once: Callable[..., Any] = super().execute_command
        try:
            return once(*args, **options)
        except exceptions.ResponseError as error:
            if is_failover(error):
                self.connection_pool.disconnect(inuse_connections=False)
            raise

    def pipeline(self, transaction: bool = True, shard_hint: object = None) -> redis.client.Pipeline:  # noqa: FBT001, FBT002 - redis-py's
        """Return a pipeline under the policy."""
        made = RetryingPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made._policies = self._policies  # our own
        return made

    def client(self) -> redis.Redis:
        """Return a client with a single connection, under the policy."""
        original: Any = self._original
        made: redis.Redis = original.client()
        return derived(made, RetryingClient, self._policies)

    def __del__(self) -> None:
        """Leave the connections to the original client."""


class RetryingPipeline(redis.client.Pipeline):
    """A pipeline that is repeated as a whole, or not at all."""

    _policies: CommandPolicies

    def immediate_execute_command(self, *args: object, **options: object) -> Any:
        """Execute a command under the policy; once, if keys are watched already."""
        once: Callable[..., Any] = super().immediate_execute_command
        if self.watching:
            return once(*args, **options)
        return loops.proceed(self._policies.start(name_of(args), [args]), once, args, options)

    def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - redis-py's
        """Execute the commands under the policy; once, if keys are watched."""
        if self.watching or not self.command_stack:
            return self._once(raise_on_error)
        stack, scripts, explicit = self.command_stack, self.scripts, self.explicit_transaction

        def attempt() -> list[Any]:
            # Each attempt gets copies, because redis-py changes the options and clears the rest.
            self.command_stack = [(args, dict(options)) for args, options in stack]
            self.scripts, self.explicit_transaction = set(scripts), explicit
            return self._once(raise_on_error)

        state = self._policies.start("pipeline", [args for args, _ in stack])
        return cast("list[Any]", loops.proceed(state, attempt, (), {}))

    def _once(self, raise_on_error: bool) -> list[Any]:  # noqa: FBT001 - handed on
        stack = self.command_stack
        try:
            answers = super().execute(raise_on_error=False)
            if raise_on_error:
                raise_first_error(self, stack, answers)
        except exceptions.WatchError as error:
            raise connection_error_of(error) from None
        except exceptions.RedisError as error:
            mark_partial(error, stack)
            if is_failover(error):
                self.connection_pool.disconnect(inuse_connections=False)
            raise
        return answers


def _marking(pool: Any) -> Callable[..., Any]:
    """Return a ``get_connection`` for a pool that marks its failures as not sent."""
    acquire = pool.get_connection

    def get_connection(*args: object, **options: object) -> Any:
        try:
            connection = acquire(*args, **options)
        except exceptions.RedisError as error:
            mark(error, Stage.NOT_SENT)
            raise
        _set_timeout(connection)
        return connection

    return get_connection


def _set_timeout(connection: Any) -> None:
    """Bound the wait for a reply by the remaining time and by the connection's own timeout."""
    sock = getattr(connection, "_sock", None)
    left, own = deadline(), connection.socket_timeout
    if sock is None:
        return
    timeout = (
        own if left is None else max(_SHORTEST_TIMEOUT, left.remaining if own is None else min(own, left.remaining))
    )
    if sock.gettimeout() != timeout:
        sock.settimeout(timeout)


# The asynchronous half repeats the synchronous one line by line.


class AsyncRetryingClient(redis.asyncio.Redis):
    """An async client that executes commands under a policy."""

    _policies: CommandPolicies
    _original: redis.asyncio.Redis

    async def execute_command(self, *args: object, **options: object) -> Any:
        """Execute a command under the policy."""
        return await loops.aproceed(self._policies.start(name_of(args), [args]), self._once, args, options)

    async def _once(self, *args: object, **options: object) -> Any:
        once: Callable[..., Any] = super().execute_command
        try:
            return await once(*args, **options)
        except exceptions.ResponseError as error:
            if is_failover(error):
                await self.connection_pool.disconnect(inuse_connections=False)
            raise

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> redis.asyncio.client.Pipeline:  # noqa: FBT001, FBT002 - redis-py's
        """Return a pipeline under the policy."""
        made = AsyncRetryingPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made._policies = self._policies  # our own
        return made

    def client(self) -> redis.asyncio.Redis:
        """Return a client with a single connection, under the policy."""
        made: redis.asyncio.Redis = self._original.client()
        return derived(made, AsyncRetryingClient, self._policies)

    def __del__(self, *_: object) -> None:
        """Leave the connections, and the warning about them, to the original client."""


class AsyncRetryingPipeline(redis.asyncio.client.Pipeline):
    """An async pipeline that is repeated as a whole, or not at all."""

    _policies: CommandPolicies

    async def immediate_execute_command(self, *args: object, **options: object) -> Any:
        """Execute a command under the policy; once, if keys are watched already."""
        once: Callable[..., Any] = super().immediate_execute_command
        if self.watching:
            return await once(*args, **options)
        return await loops.aproceed(self._policies.start(name_of(args), [args]), once, args, options)

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - redis-py's
        """Execute the commands under the policy; once, if keys are watched."""
        if self.watching or not self.command_stack:
            return await self._once(raise_on_error)
        stack, scripts, explicit = self.command_stack, self.scripts, self.explicit_transaction

        async def attempt() -> list[Any]:
            """Execute all commands from the first on."""
            self.command_stack = [(args, dict(options)) for args, options in stack]
            self.scripts, self.explicit_transaction = set(scripts), explicit
            return await self._once(raise_on_error)

        state = self._policies.start("pipeline", [args for args, _ in stack])
        return cast("list[Any]", await loops.aproceed(state, attempt, (), {}))

    async def _once(self, raise_on_error: bool) -> list[Any]:  # noqa: FBT001 - handed on
        stack = self.command_stack
        try:
            answers = await super().execute(raise_on_error=False)
            if raise_on_error:
                raise_first_error(self, stack, answers)
        except exceptions.WatchError as error:
            raise connection_error_of(error) from None
        except exceptions.RedisError as error:
            mark_partial(error, stack)
            if is_failover(error):
                await self.connection_pool.disconnect(inuse_connections=False)
            raise
        return answers


def _async_marking(pool: Any) -> Callable[..., Awaitable[Any]]:
    acquire = pool.get_connection

    async def get_connection(*args: object, **options: object) -> Any:
        try:
            connection = await acquire(*args, **options)
            await _reconnect_if_closed(pool, connection)
        except exceptions.RedisError as error:
            mark(error, Stage.NOT_SENT)
            raise
        return connection

    return get_connection


async def _reconnect_if_closed(pool: Any, connection: Any) -> None:
    """Reconnect if the server has closed the connection while it was idle."""
    # redis-py 8 checks for this, but ignores the result if it listens for maintenance events, which is its default.
    reader = getattr(connection, "_reader", None)
    if reader is None or not reader.at_eof():
        return
    try:
        await connection.disconnect()
        await connection.connect()
    except BaseException:
        await pool.release(connection)
        raise


T = TypeVar("T")


class CommandPolicies:
    """The policy of a client, prepared for each `Repetition` of commands; see `wrap` for the arguments."""

    def __init__(self, policy: Policy, *, answers_matter: bool) -> None:
        careful = _with_classifier(policy)
        free = careful if careful.idempotent is not None else careful.with_(idempotent=True)
        # One budget for all commands of the client.
        plan = Plan(careful, "redis")
        repeating = Plan(free, "redis", plan.own)
        self._plans = {
            Repetition.SAME: repeating,
            Repetition.EFFECT: plan if answers_matter else repeating,
            Repetition.UNKNOWN: plan,
        }

    def start(self, name: str, commands: Iterable[Sequence[Any]]) -> CallState:
        """Begin a call of these commands, under this name in messages and events."""
        worst = worst_of([repetition_of(*command) for command in commands])
        return start(self._plans[worst], f"redis {name}")


def _with_classifier(policy: Policy) -> Policy:
    if policy.parts is not None:
        raise PolicyValueError("wrap() takes one policy, and this is a combination: pass one of its parts")
    return policy.with_(on=reading(_describe, policy.on))


def _describe(error: BaseException) -> Failure | None:
    # redrive's own timeout of an attempt raises TimeoutError.
    if is_a(error, TimeoutError):
        return Failure.of(error, reason="TIMEOUT", stage=Stage.IN_FLIGHT)
    return failure_of(error)


def derived(client: T, mixin: type[T], policies: CommandPolicies) -> T:
    """Return a client with the state of another one, of a class that puts ``mixin`` before the other's class."""
    made: Any = object.__new__(type(f"Retried{type(client).__name__}", (mixin, type(client)), {}))
    vars(made).update(vars(client), _policies=policies, _original=client)
    return cast("T", made)


def name_of(command: Sequence[Any]) -> str:
    """Return the name of a command, for messages and events."""
    word = command[0]
    return str(word, "ascii", "replace") if isinstance(word, bytes) else str(word)


def is_failover(error: Exception) -> bool:
    """Return whether the error shows a failover, so that the client must connect to another server."""
    return REPLIES[code_of(error) or "ERR"].reconnect


def raise_first_error(pipeline: Any, stack: list[Any], answers: list[Any]) -> None:
    """Raise the first error among the replies of a pipeline, as redis-py does."""
    # If the server executed some commands and refused others, as after a failover to a replica, a repetition would
    # execute the first ones again: the failure is in flight, unless their second execution is the same.
    try:
        pipeline.raise_first_error(stack, answers)
    except exceptions.ResponseError as error:
        done = [args for (args, _), answer in zip(stack, answers, strict=True) if not isinstance(answer, Exception)]
        if worst_of([repetition_of(*args) for args in done]) is not Repetition.SAME:
            mark(error, Stage.IN_FLIGHT)
        raise


def mark_partial(error: exceptions.RedisError, stack: list[Any]) -> None:
    """Mark an error reply as in flight if redis-py stops reading at it, so that later replies are unknown."""
    if len(stack) > 1 and is_a(error, exceptions.BusyLoadingError) and attribute(error, MARK) is None:
        mark(error, Stage.IN_FLIGHT)


def connection_error_of(error: exceptions.WatchError) -> exceptions.RedisError:
    """Return the connection's error that redis-py has replaced by a WatchError, or the WatchError if there is none."""
    origin = context_of(error)
    if not is_a(origin, (exceptions.ConnectionError, exceptions.TimeoutError)):
        return error
    origin.add_note("the connection was lost at EXEC: it is unknown whether the transaction took effect")
    return origin
