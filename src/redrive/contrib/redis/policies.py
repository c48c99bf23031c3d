"""The policies of commands, and the errors of pipelines, for sync and async clients."""

# ruff: noqa: ANN401 - arguments and replies of any command; only redis-py and its user know the types

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

from redis import exceptions

from redrive.contrib.redis.commands import Repetition, repetition_of, worst_of
from redrive.contrib.redis.replies import MARK, REPLIES, code_of, failure_of, mark
from redrive.errors import PolicyValueError
from redrive.policy import Failure, Policy, Stage
from redrive.policy.classify import reading
from redrive.retrying.plan import Plan
from redrive.retrying.state import CallState, start

T = TypeVar("T")


class CommandPolicies:
    """The policy of a client, prepared for each `Repetition` of commands; see `wrap` for the arguments."""

    def __init__(self, policy: Policy, *, answers_matter: bool) -> None:
        careful = _with_classifier(policy)
        free = careful if careful.idempotent is not None else careful.with_(idempotent=True)
        plan, repeating = Plan(careful, "redis"), Plan(free, "redis")
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
    if isinstance(error, TimeoutError):
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
    if len(stack) > 1 and isinstance(error, exceptions.BusyLoadingError) and not hasattr(error, MARK):
        mark(error, Stage.IN_FLIGHT)


def connection_error_of(error: exceptions.WatchError) -> exceptions.RedisError:
    """Return the connection's error that redis-py has replaced by a WatchError, or the WatchError if there is none."""
    origin = error.__context__
    if not isinstance(origin, exceptions.ConnectionError | exceptions.TimeoutError):
        return error
    origin.add_note("the connection was lost at EXEC: it is unknown whether the transaction took effect")
    return origin
