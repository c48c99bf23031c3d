"""The attempt of a job, or the try of a step, as a layer that retries.

A call in process that is made in it, such as a request through a retrying transport, leaves a failure to the job if the
policy of the job would retry it: the wait is then a row, and the attempts of both do not multiply. The layer stands in
the context of the handler, which its tasks and threads copy.
"""

from __future__ import annotations

from contextvars import Token
from datetime import datetime

from redrive.policy import Defer, History, Policy, Retry
from redrive.policy.classify import is_coroutine_function
from redrive.retrying.context import JOB, Job

# The random sample of the longest delay.
_LONGEST = 1 - 2.0**-53


class JobLayer:
    """What retries the code that runs now; `redrive.retrying.context.Job`.

    Args:
        name: the task or the step.
        policy: decides on the failures of its attempts.
        at: an instant in the attempt.
    """

    __slots__ = ("_at", "_policy", "live", "name")

    def __init__(self, name: str, policy: Policy, at: datetime) -> None:
        self.name: str = name
        self._policy = policy
        self._at = at
        #: False when the attempt or the try has ended, which its threads and tasks may outlive.
        self.live: bool = True

    def repeats(self, error: Exception | None, result: object) -> bool:  # noqa: ARG002 - of the protocol
        """Return True if the job retries this error as its first failure."""
        # A result that an inner call rejects is no failure of the job unless the handler returns it. After the attempt
        # the job gets no failure.
        if error is None or not self.live:
            return False
        policy = self._policy.durable()
        if callable(policy.on) and is_coroutine_function(policy.on):
            return False
        try:
            decision = policy.decide(History(1, self._at), policy.classify(error), self._at, _LONGEST)
        except Exception:  # noqa: BLE001 - a predicate of the user; the end of the attempt reports it
            return False
        return isinstance(decision, Retry | Defer)


# A run does not repeat a step that has failed for good, nor an undo, so that its layer must not count below them.
def begin(name: str, policy: Policy | None, at: datetime) -> Token[Job | None] | None:
    """Make a policy the layer of what follows in this context, in place of the layer that is there.

    Return what `end` takes. None, and a policy that never makes a second attempt, are no layer.
    """
    if policy is None or (policy.attempts == 1 and not policy.rules):
        return None if JOB.get() is None else JOB.set(None)
    return JOB.set(JobLayer(name, policy, at))


def end(token: Token[Job | None] | None) -> None:
    """Restore the layer that was there before `begin`."""
    if token is not None:
        layer = JOB.get()
        if isinstance(layer, JobLayer):
            layer.live = False
        JOB.reset(token)
