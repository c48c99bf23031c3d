"""AI services: a policy for requests to models, and the errors of the SDKs of OpenAI and Anthropic.

The SDKs are built on httpx2, and older ones on httpx. For an answer they raise an error of their own without a cause,
and otherwise one that has the error of the client as its cause. Nothing of them is imported here.
"""

from __future__ import annotations

from redrive.errors import PolicyValueError
from redrive.errors.foreign import attribute
from redrive.policy import Failure, Policy, hints
from redrive.policy.algebra import Combined
from redrive.retrying import http


def for_models(policy: Policy | str) -> Policy:
    """Return a policy for requests to AI models.

    A request to a model is a POST that may be repeated: an answer that was lost costs its tokens once more, and a
    request has no other effect. The policy is therefore idempotent, and it reads the headers of AI services
    (`redrive.policy.hints.ai`)::

        transport = RetryTransport(for_models("5 1s 1m"))
        client = openai.OpenAI(max_retries=0, http_client=openai.DefaultHttpxClient(transport=transport))

    Requests that have an effect (to create a file, a batch, a response in the background) need another client, or a
    policy of their own.

    Args:
        policy: a policy or a directive. A policy with ``hints="ignore"`` keeps it.

    Raises:
        PolicyValueError: the policy has ``idempotent=False``.
        PolicySyntaxError: the directive cannot be read.
        TypeError: it is neither a policy nor a directive.
    """
    if not isinstance(policy, Policy | str):
        raise TypeError(f"for_models() takes a policy or a directive, not {policy!r}")
    meant = Policy.parse(policy) if isinstance(policy, str) else policy
    if isinstance(meant, Combined):
        return type(meant)(for_models(meant.left), for_models(meant.right))
    if meant.idempotent is False:
        raise PolicyValueError("for_models(): the policy has idempotent=False, and requests to models are repeated")
    return meant.with_(idempotent=True, hints="ai" if meant.hints == "obey" else meant.hints)


def failure_of(error: BaseException) -> Failure | None:
    """Describe an error of an SDK that stands for an answer; return None for others.

    ``openai.APIStatusError`` and ``anthropic.APIStatusError`` have the answer as their ``response``. Its headers are
    read by `redrive.policy.hints.ai`.
    """
    response = attribute(error, "response")
    request, status = attribute(response, "request"), attribute(response, "status_code")
    if request is None or not isinstance(status, int):
        return None
    given, sent = response.headers.multi_items(), request.headers.multi_items()
    return http.failure_of(request.method, status, given, sent=sent, error=error, hints=hints.ai)
