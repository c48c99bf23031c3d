"""Classification of the errors of an HTTP client by the progress of its request.

The evidence is stored on the error of the attempt, where the `Library` of the client reads it, or on the cancellation
by a timeout of the policy, which is the cause of its `TimeoutError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

from redrive.errors.foreign import attribute, cause_of, is_a, set_attribute
from redrive.policy import Failure, Stage, hints
from redrive.policy.classify import (
    Answer,
    Classifier,
    On,
    Predicate,
    answer_of,
    delay_of,
    is_coroutine_function,
    reading,
)
from redrive.policy.failure import Lasting
from redrive.policy.hints import Headers, HintReader
from redrive.retrying import http

Request: TypeAlias = Any
"""The request of a client: it has ``method`` and ``headers``."""
Response: TypeAlias = Any
"""The answer of a client: it has ``headers``."""

_SPENT = "the body of the request is a stream that has been read and cannot be read again"


class Evidence(NamedTuple):
    """The evidence about a failed attempt."""

    request: Request
    stage: Stage
    #: True if the body of the request has been read, and cannot be read again.
    spent: bool = False


def mark(error: BaseException, evidence: Evidence) -> None:
    """Store the evidence on an error."""
    set_attribute(error, "__http__", evidence)


def evidence_of(error: BaseException) -> Evidence | None:
    """Return the evidence on an error, or on the cancellation that became a `TimeoutError`."""
    for link in (error, cause_of(error) if is_a(error, TimeoutError) else None):
        found = attribute(link, "__http__")
        if isinstance(found, Evidence):
            return found
    return None


class Library(ABC):
    """An HTTP client library, and what its errors mean."""

    #: The name under which it is imported.
    name: str
    #: The errors that are retried where a policy names nothing, as far as a retry can help at all.
    by_default: tuple[type[BaseException], ...]
    #: The class of the errors that stand for an answer.
    answers: type[BaseException]

    @abstractmethod
    def broken(self, error: BaseException, evidence: Evidence | None) -> Failure:
        """Describe an error that stands for no answer."""

    @abstractmethod
    def status_of(self, response: Response) -> int:
        """Return the status of an answer."""

    def response_of(self, error: object) -> Response | None:
        """Return the answer that an error stands for; None if it stands for none."""
        return attribute(error, "response") if is_a(error, self.answers) else None

    def pairs(self, headers: Any) -> Headers:  # noqa: ANN401 - of the client
        """Return headers of the client so that no two fields are joined."""
        return cast("Headers", headers)

    def request_of(self, error: BaseException) -> Request | None:
        """Return the request that another attempt sends; None if it is unknown."""
        evidence = evidence_of(error)
        return None if evidence is None else evidence.request

    def is_redirected(self, error: BaseException) -> bool:  # noqa: ARG002 - below the redirects of a client
        """Return True if the error belongs to the target of a redirect, so that another attempt repeats more."""
        return False


class Terms(NamedTuple):
    """The terms on which the requests of a client are repeated; None stands for those of `redrive.retrying.http`."""

    library: Library
    #: The statuses that are retried.
    statuses: frozenset[int] | None = None
    #: The methods that may be repeated.
    methods: frozenset[str] | None = None
    #: Reads the headers of an answer.
    hints: HintReader = hints.http

    @classmethod
    def of(cls, library: Library, statuses: Iterable[int] | None, methods: Iterable[str] | None) -> Terms:
        """Check what a user has given; raise PolicyValueError for an unknown status or method."""
        return cls(library, http.checked_statuses(statuses), http.checked_methods(methods))

    def repeatable(self, method: str, headers: Headers) -> bool:
        """Return True if a request may be repeated although it may have taken effect."""
        methods = http.IDEMPOTENT if self.methods is None else self.methods
        return http.is_idempotent(method, headers, methods=methods)

    def may_repeat(self, request: Request) -> bool:
        """Do the same as `repeatable` for a request of the client."""
        return self.repeatable(request.method, self.library.pairs(request.headers))

    def read(self, error: BaseException) -> Failure:
        """Describe an error of an attempt."""
        response = self.library.response_of(error)
        if response is not None:
            return self._answer(error, response)
        failure = self.library.broken(error, evidence_of(error))
        is_open = self.methods is None or failure.stage is Stage.NOT_SENT
        request = None if is_open else self.library.request_of(error)
        if request is None or self.may_repeat(request):
            return failure
        return failure._replace(lasting=http.unlisted(request.method, failure.error_type))

    def answer(self, request: Request, response: Response, error: BaseException | None = None) -> Failure | None:
        """Return the failure that an answer to a request is; None for success."""
        library, statuses, methods, hints = self
        given, sent = library.pairs(response.headers), library.pairs(request.headers)
        return http.failure_of(
            request.method,
            library.status_of(response),
            given,
            sent=sent,
            error=error,
            statuses=statuses,
            methods=methods,
            hints=hints,
        )

    def plain(self, error: BaseException) -> Failure | None:
        """Describe an error of a client, for a policy that does not know the request; return None for other errors."""
        is_cut = is_a(error, TimeoutError) and evidence_of(error) is not None
        if not is_cut and not is_a(error, self.library.by_default):
            return None
        failure = self.read(error)
        request = self.library.request_of(error)
        is_repeatable = request is not None and self.may_repeat(request)
        return failure._replace(stage=Stage.ANSWERED) if is_repeatable and failure.lasting is None else failure

    def _answer(self, error: BaseException, response: Response) -> Failure:
        request = cast("Request", self.library.request_of(error))
        failure = self.answer(request, response, error)
        is_repeatable = self.may_repeat(request)
        if failure is None:
            # A redirect, of which `raise_for_status` complains, or a success that the policy names.
            stage = Stage.ANSWERED if is_repeatable else Stage.IN_FLIGHT
            reason = f"HTTP_{self.library.status_of(response)}"
            return Failure.of(error)._replace(reason=reason, lasting=Lasting(stage=stage))
        if not is_repeatable and self.library.is_redirected(error):
            # The target of the redirect has refused, and not the server that accepted the request.
            return failure._replace(stage=Stage.IN_FLIGHT)
        return failure


def failure_of(
    library: Library, error: BaseException | None, statuses: Iterable[int] | None, methods: Iterable[str] | None
) -> Failure | Callable[[BaseException], Failure | None] | None:
    """Describe an error of a client of a library; see `redrive.contrib.httpx.failure_of`."""
    read = Terms.of(library, statuses, methods).plain
    return read if error is None else read(error)


# ------------------------------------------------------------------------------------------- in the place of a policy's


def classifier(
    on: On | None, terms: Terms, on_result: Predicate | None = None, named: Iterable[str] = ()
) -> Classifier:
    """Return the classifier of a client; ``on`` selects from what can be retried, and None selects all of it.

    A status that ``on`` or a rule (``named``) names, and an answer that ``on`` or ``on_result`` chooses, is retried
    although it is lasting.
    """
    if not callable(on) or isinstance(on, type):
        meant = on or (*terms.library.by_default, TimeoutError)
        choose: Classifier = partial(_named, reading(terms.read, meant, named))
    else:
        choose = _asking(on, terms)
    return choose if on_result is None else _rejecting(choose, on_result, terms)


def _named(read: Callable[[BaseException], Failure | None], error: BaseException) -> Failure | None:
    failure = read(error)
    return None if failure is None else _unless_spent(error, failure)


def _asking(ask: Classifier, terms: Terms) -> Classifier:
    def classify(error: BaseException) -> Failure | None:
        return _answered(error, answer_of(ask(error), "on", ask), terms)

    async def aclassify(error: BaseException) -> Failure | None:
        return _answered(error, await cast("Awaitable[Answer]", ask(error)), terms)

    return aclassify if is_coroutine_function(ask) else classify


def _rejecting(choose: Classifier, rejects: Predicate, terms: Terms) -> Classifier:
    """Return a classifier that also shows the answers that it would not retry to ``on_result``."""

    def is_open(error: BaseException, failure: Answer) -> bool:
        chosen = isinstance(failure, Failure) and failure.candidate is not False
        return terms.library.response_of(error) is not None and not chosen

    def classify(error: BaseException) -> Answer:
        failure = cast("Answer", choose(error))
        if is_open(error, failure) and answer_of(rejects(terms.library.response_of(error)), "on_result", rejects):
            return _answered(error, True, terms)  # noqa: FBT003 - the answer of a classifier
        return failure

    async def aclassify(error: BaseException) -> Answer:
        failure = choose(error)
        if isinstance(failure, Awaitable):
            failure = await failure
        if is_open(error, failure):
            rejected = rejects(terms.library.response_of(error))
            if await rejected if isinstance(rejected, Awaitable) else rejected:
                return _answered(error, True, terms)  # noqa: FBT003 - the answer of a classifier
        return failure

    return aclassify if is_coroutine_function(choose) or is_coroutine_function(rejects) else classify


def _answered(error: BaseException, answer: Answer, terms: Terms) -> Failure | None:
    if isinstance(answer, Failure):
        return answer
    delay = delay_of(answer)
    if delay is None and not answer:
        return None
    failure = terms.read(error)
    if failure.candidate is None:
        failure = failure._replace(candidate=True)
    failure = _unless_spent(error, failure)
    if delay is not None:
        return failure._replace(reason="RETRY_AFTER", hint=delay)
    return failure._replace(reason=answer) if isinstance(answer, str) else failure


def _unless_spent(error: BaseException, failure: Failure) -> Failure:
    """Return the failure of an attempt; that of a request that cannot be sent again is permanent."""
    evidence = evidence_of(error)
    if evidence is not None and evidence.spent and failure.candidate is not False:
        return failure._replace(permanent=failure.permanent or _SPENT)
    return failure
