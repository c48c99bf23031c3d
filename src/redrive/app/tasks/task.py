"""A registered function, which can be called, enqueued, or retried in this process."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from redrive.app.arguments import checked_policy
from redrive.app.attempts.context import Context, Pending
from redrive.app.payload import Returns, Signature
from redrive.app.protocol import AppProtocol
from redrive.app.tasks.catch import check_request_types
from redrive.app.tasks.enqueue import Enqueuer, Options
from redrive.app.tasks.failures import can_pass, carried
from redrive.engine.frozen import FrozenPolicy
from redrive.errors import TaskDefinitionError
from redrive.policy import Policy
from redrive.policy.classify import is_coroutine_function
from redrive.policy.failure import forbid_repetition
from redrive.retrying.context import SYSTEM, refuse_copies

if TYPE_CHECKING:
    # Type checkers have its types without the package, which is not needed when the program runs.
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
    Q = ParamSpec("Q", default=P)
else:
    from typing import ParamSpec

    P = ParamSpec("P")
    Q = ParamSpec("Q")
R = TypeVar("R")
C = TypeVar("C")

_PARTS = 4

Executor: TypeAlias = Literal["thread", "process"]
"""Where the worker runs a ``def`` function."""


def once_only(function: Callable[Q, C], name: str) -> Callable[Q, C]:
    """Return a function of the same kind whose failures in flight are not repeated by any call around it.

    The stricter of both declarations holds: whatever the policy of the caller allows, a failure with an unknown outcome
    is not repeated. An exception that leaves such a function is marked for that; the mark is also found through the
    explicit causes of another exception, such as the `TimeoutError` of a cancelled attempt.
    """
    if is_coroutine_function(function):

        async def acalled(*args: Q.args, **kwargs: Q.kwargs) -> object:
            """Await the function, and mark its failures."""
            refuse_copies(name)
            try:
                return await cast("Awaitable[object]", function(*args, **kwargs))
            except BaseException as error:
                forbid_repetition(error, name, SYSTEM.monotonic())
                raise

        return cast("Callable[Q, C]", functools.wraps(function)(acalled))

    def called(*args: Q.args, **kwargs: Q.kwargs) -> C:
        refuse_copies(name)
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            forbid_repetition(error, name, SYSTEM.monotonic())
            raise

    return functools.wraps(function)(called)


class Traits(msgspec.Struct, frozen=True):
    """Properties of a function, the same for all its jobs.

    Attributes:
        soft_timeout: the time after which an attempt is asked to stop.
        idempotent: True if it may run twice; None if its definition leaves that open.
        keep_for: how long its ended jobs are kept, None for ever; unset for the default of the app.
        aka: earlier names of the task, under which jobs may be stored.
        executor: where a ``def`` function runs.
    """

    soft_timeout: timedelta | None = None
    idempotent: bool | None = None
    keep_for: timedelta | UnsetType | None = UNSET
    aka: tuple[str, ...] = ()
    executor: Executor = "thread"


class Task(Enqueuer[P, R], Generic[P, R, C, Q]):
    """A registered function.

    Calling it runs the function here and now, as if it were not a task. `enqueue` makes a durable job, and `call` runs
    it in this process under a retry policy. Its type has four parts: the parameters of a job, the result of a job, the
    result of a plain call (for ``async def`` a coroutine), and the parameters of a plain call. The last part may be
    left out if it equals the first, that is, if the function takes no `redrive.Context`.
    """

    #: True for workflows, which have runs.
    is_workflow: ClassVar[bool] = False

    #: The annotations of the parameter that the worker passes.
    injected: ClassVar[tuple[type, ...]] = (Context,)

    def __class_getitem__(cls, parts: object) -> Any:
        """Return the type with these parts; a missing fourth part is the first one."""
        full = (*parts, parts[0]) if isinstance(parts, tuple) and len(parts) == _PARTS - 1 else parts
        return super().__class_getitem__(full)  # type: ignore[misc]  # of Generic, which type checkers do not declare

    def __init__(
        self, app: AppProtocol, name: str, function: Callable[Q, C], options: Options, *, traits: Traits | None = None
    ) -> None:
        super().__init__(app, name, Signature(function, name, injected=self.injected), options)
        self.function = function
        self.traits: Traits = traits or Traits()
        self.returns: Returns = Returns(self.signature)
        self._limit_payloads()
        #: The function as a plain call, and a step of a run, calls it.
        self.direct: Callable[Q, C] = function
        if self.traits.idempotent is False:
            self.direct = once_only(function, name)
        #: The arguments of its decorator, if they leave the policy to its queue and its app; otherwise None.
        self.declaration: Any = None
        functools.update_wrapper(self, function)

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which its jobs may be stored: its own, and its earlier ones."""
        return (self.name, *self.traits.aka)

    @property
    def policy(self) -> Policy:
        """The retry policy of its jobs."""
        return self._options.policy.policy

    def _limit_payloads(self) -> None:
        self.signature.limit = self.app.max_payload
        # The worker checks the results of runs, as those of their steps.
        self.returns.limit = None if self.is_workflow else self.app.max_payload

    def adopted(self, app: AppProtocol, policy: FrozenPolicy | None) -> None:
        """Become a task of an app; the policy, if it is given, replaces that of its jobs."""
        self.app = app
        self._limit_payloads()
        if policy is not None:
            self._options = replace(self._options, policy=policy)

    def check(self) -> None:
        """Check that the tasks that it names exist and fit; see `redrive.App.check`."""
        self.app.check_policy(self.policy, self.signature)
        self.check_types()

    def check_types(self) -> None:
        """Check that the parameters and the result can be written as JSON and read again."""
        if not check_request_types(self.signature):
            self.signature.check_types()
        self.returns.check_type()
        self.check_search()

    def check_search(self) -> None:
        """Check that arguments have the fields by which jobs are found."""
        if self._options.search:
            # Only few programs need it.
            from redrive.app.tasks.searched import check_fields

            check_fields(self._options.search, self.signature.schema, f"task {self.name!r}")

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C:
        """Run the function here and now.

        A policy around the call (a retried function, ``policy.call``, a block or a job) does not repeat a failure with
        an unknown outcome if the task is declared ``idempotent=False``: the stricter of both declarations holds.
        """
        return self.direct(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def call(self, *args: object, policy: Policy | str, **kwargs: object) -> R:
        """Call the function in this process, and repeat it under the caller's policy. Nothing survives a crash.

        A call with an unknown outcome (cut off by its timeout, for example) is repeated only if the task is declared
        ``idempotent=True``, whatever the policy allows.

        Args:
            *args: as for the function, its context included.
            policy: the caller's policy or directive. What it leaves open comes from the task: the time limit of an
                attempt, and the failures that may be retried (``on=``), which is every `Exception` if the task names
                none, as in its jobs.
            **kwargs: as for the function.

        Returns:
            The result.

        Raises:
            Exception: the last one that the function raised, as by ``policy.call()``.
            PolicyError: the policy cannot be read.
            TaskDefinitionError: the function is ``async def``, has a parameter called ``policy``, or has returned
                `Pending`, which only a job can wait for.
        """
        if inspect.iscoroutinefunction(self.function):
            raise TaskDefinitionError(f"task {self.name!r} is async: await {self.name}.acall(...)")
        function = cast("Callable[..., R]", self.function)
        return self._check_result(self._call_policy(policy).call(function, *args, **kwargs))

    async def acall(self, *args: object, policy: Policy | str, **kwargs: object) -> R:
        """Call the function in this process under the caller's policy, with asyncio; a ``def`` runs in a thread.

        See `call`.
        """
        function = cast("Callable[..., Any]", self.function)
        if not inspect.iscoroutinefunction(function):
            function = functools.wraps(function)(functools.partial(asyncio.to_thread, carried, function))
        result: R = self._check_result(await self._call_policy(policy).acall(function, *args, **kwargs))
        return result

    def _check_result(self, result: R) -> R:
        if isinstance(result, Pending):
            raise TaskDefinitionError(
                f"task {self.name!r} returned {result!r}, but a call has no job that could wait for an answer: "
                "enqueue it, and wait for job.result()"
            )
        return result

    def _call_policy(self, given: Policy | str) -> Policy:
        """Return the caller's policy with the properties that only the task has."""
        if "policy" in inspect.signature(self.function).parameters:
            raise TaskDefinitionError(f"task {self.name!r} has a parameter called 'policy', which call() takes itself")
        read = checked_policy(given, f"{self.name}: policy")
        policy = Policy.parse(read) if isinstance(read, str) else read
        changes: dict[str, Any] = {"idempotent": self.traits.idempotent is True}
        if policy.on is None:
            # A task that names nothing retries as in its jobs. `on_result` names something.
            named = policy.parts is not None or policy.on_result is not None
            changes["on"] = self.policy.on or (None if named else can_pass)
        if policy.attempt_timeout is None:
            changes["attempt_timeout"] = self.policy.attempt_timeout
        return policy.with_(**changes)
