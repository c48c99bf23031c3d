"""The base class of tasks under a policy."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from celery import Task
from celery.worker.request import Request

from redrive.contrib.celery.attempt import Attempt
from redrive.contrib.celery.checks import Checks
from redrive.contrib.celery.lost import again, in_task
from redrive.contrib.celery.options import refuse, refuse_bound, set_defaults
from redrive.contrib.other_engines import policy_of
from redrive.policy import Policy, parse_duration
from redrive.retrying.context import present_clock

# Set on the request of an attempt: `super().run()` in a task is no attempt of its own.
_RUNS = "redrive_runs"


class PolicyRequest(Request):  # type: ignore[misc] # Celery has no types
    """A message that a worker has received."""

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, **options)
        # A message that comes back before it is due, as in a deployment, has not been executed by its former worker.
        if self.eta is not None and self.eta > present_clock().now():
            self.delivery_info["redelivered"] = False


class PolicyTask(Task):  # type: ignore[misc] # Celery has no types
    """A Celery task with a policy of redrive: ``Celery(..., task_cls=PolicyTask)``, or ``@app.task(base=PolicyTask)``.

    Options of a task, beside those of Celery:

    - ``retry``: a `redrive.Policy`, or a directive such as ``"5 1s 10m catch refund"``. Without it a task is one of
      Celery, with all options of Celery; only `redrive.Snooze` and `redrive.Cancel` have a meaning there, too.
    - ``hop``: the longest time for which a message waits in the memory of a worker, as a duration; by default 10
      minutes. A longer delay takes several messages. Below half of the visibility timeout of Redis, and below the
      ``consumer_timeout`` of RabbitMQ.

    Under a policy ``acks_late``, ``retry_on_worker_lost`` are on, unless the task has a value, and ``max_retries`` is
    None. A task that is called directly (``charge(7)``) is a plain function.

    Attributes:
        policy: the policy of the task; None without ``retry``.
        hop: see above.

    Raises:
        PolicyError: the policy is not valid here.
        ConfigurationError: an option contradicts ``retry``. Celery creates tasks lazily, so these appear when its app
            is finalized; with ``shared=True``, its default, in each app of the process.
    """

    abstract = True
    Request = PolicyRequest
    policy: ClassVar[Policy | None] = None
    hop: ClassVar[timedelta] = timedelta(minutes=10)
    #: The parameters of the function, without that of a bound task.
    parameters: ClassVar[inspect.Signature] = inspect.Signature()
    #: True if the task itself says when its message is acknowledged.
    keeps_acks: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own, given = vars(cls), vars(cls).get("retry")
        name = own.get("name") or cls.__name__
        if "hop" in own:
            cls.hop = parse_duration(own["hop"])
        cls.keeps_acks = cls.acks_late is not None
        if "retry" in own and not inspect.isfunction(given):
            # `self.retry()` stays the method of Celery.
            del cls.retry
            cls.policy = None if given is None else policy_of(given, f"task {name}")
        if cls.policy is not None and not own.get("abstract"):
            refuse(cls, [each for kind in cls.__mro__ if issubclass(kind, PolicyTask) for each in vars(kind)])
            set_defaults(cls, cls.policy)
        if "run" in own:
            cls._wrap(own["run"])

    # Not `__call__`: Celery would push a second request.
    @classmethod
    def _wrap(cls, given: object) -> None:
        """Replace the function of the task by one that makes an attempt."""
        is_static = isinstance(given, staticmethod)
        function: Callable[..., Any] = given.__func__ if isinstance(given, staticmethod) else given  # type: ignore[assignment]
        signature = inspect.signature(function)
        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        own = [*signature.parameters.values()][0 if is_static else 1 :]
        cls.parameters = signature.replace(parameters=own)

        @functools.wraps(function)
        def run(self: PolicyTask, /, *args: Any, **kwargs: Any) -> Any:
            request = self.request
            call = function if is_static else functools.partial(function, self)
            if request.called_directly or getattr(request, _RUNS, False):
                return call(*args, **kwargs)
            setattr(request, _RUNS, True)
            return Attempt(self).run(call, args, kwargs)

        run.__signature__ = signature.replace(parameters=[first, *own])  # type: ignore[attr-defined]
        cls.run = run

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Refuse options that come from the configuration of the app (``task_annotations``), and check its workers."""
        super().on_bound(app)
        app.steps["worker"].add(Checks)
        if cls.policy is not None:
            refuse_bound(cls)

    def signature_from_request(self, request: Any = None, *args: Any, **options: Any) -> Any:
        """Return the message that repeats a request; for Celery itself, and for ``self.retry()``."""
        # Celery repeats it in the main process of the worker, because its process was lost.
        is_lost = request is not None and not in_task()
        if is_lost and (self.policy is not None or "redrive_catch" in (request.headers or {})):
            return again(self, request)
        return super().signature_from_request(request, *args, **options)
