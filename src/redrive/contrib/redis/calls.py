"""What is the same in both colours: which policy a command has, and what the answers of a pipeline come to."""

# ruff: noqa: ANN401 - it hands on arguments and answers of any command; only redis-py and its user know the types

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

__all__ = ["Calls", "derived", "is_elsewhere", "judge", "lost", "mark_partial", "name_of"]


T = TypeVar("T")


class Calls:
    """The policy of a client, made ready for each class of commands.

    Args:
        policy: as the user wrote it.
        answers_matter: see `wrap`.
    """

    def __init__(self, policy: Policy, *, answers_matter: bool) -> None:
        careful = _describing(policy)
        free = careful if careful.idempotent is not None else careful.with_(idempotent=True)
        plan, again = Plan(careful, "redis"), Plan(free, "redis")
        self._plans = {
            Repetition.SAME: again,
            Repetition.EFFECT: plan if answers_matter else again,
            Repetition.UNKNOWN: plan,
        }

    def start(self, name: str, commands: Iterable[Sequence[Any]]) -> CallState:
        """Begin a call.

        Args:
            name: what to call it in messages and events.
            commands: what it executes.
        """
        worst = worst_of([repetition_of(*command) for command in commands])
        return start(self._plans[worst], f"redis {name}")


def _describing(policy: Policy) -> Policy:
    if policy.parts is not None:
        raise PolicyValueError("wrap() takes one policy, and this is a combination: give it a part of that")
    return policy.with_(on=reading(_describe, policy.on))


def _describe(error: BaseException) -> Failure | None:
    if isinstance(error, TimeoutError):  # the loop has cut it off
        return Failure.of(error, reason="TIMEOUT", stage=Stage.IN_FLIGHT)
    return failure_of(error)


def derived(client: T, mixin: type[T], calls: Calls) -> T:
    """A second client with the state of a first one, whose class comes after ours.

    Args:
        client: the first one, which the second one keeps.
        mixin: what is different in the second one.
        calls: its policy.
    """
    made: Any = object.__new__(type(f"Retried{type(client).__name__}", (mixin, type(client)), {}))
    vars(made).update(vars(client), _calls=calls, _original=client)
    return cast("T", made)


def name_of(command: Sequence[Any]) -> str:
    """The name of a command, for messages and events."""
    word = command[0]
    return str(word, "ascii", "replace") if isinstance(word, bytes) else str(word)


def is_elsewhere(error: Exception) -> bool:
    """Whether another server should be asked now."""
    return REPLIES[code_of(error) or "ERR"].elsewhere


def judge(pipeline: Any, stack: list[Any], answers: list[Any]) -> None:
    """Raise the first error among the answers of a pipeline, as redis-py does.

    Raises:
        ResponseError: the first; marked as in flight if a command was executed that a repetition would execute again.
    """
    try:
        pipeline.raise_first_error(stack, answers)
    except exceptions.ResponseError as error:
        done = [args for (args, _), answer in zip(stack, answers, strict=True) if not isinstance(answer, Exception)]
        if worst_of([repetition_of(*args) for args in done]) is not Repetition.SAME:
            mark(error, Stage.IN_FLIGHT)
        raise


def mark_partial(error: exceptions.RedisError, stack: list[Any]) -> None:
    """Mark an answer after which redis-py reads no further: what the others did nobody knows."""
    if len(stack) > 1 and isinstance(error, exceptions.BusyLoadingError) and not hasattr(error, MARK):
        mark(error, Stage.IN_FLIGHT)


def lost(error: exceptions.WatchError) -> exceptions.RedisError:
    """The error of the connection that redis-py took for one about watched keys; else the error itself."""
    origin = error.__context__
    if not isinstance(origin, exceptions.ConnectionError | exceptions.TimeoutError):
        return error
    origin.add_note("the connection was lost at EXEC, so nobody knows whether the transaction took effect")
    return origin
