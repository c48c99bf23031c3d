"""The SDKs of OpenAI and Anthropic with a transport that retries, against a server that fails on demand."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import anthropic
import httpx
import httpx2
import openai
import pytest

import redrive
import redrive.contrib.httpx
from redrive.contrib.httpx2 import AsyncRetryTransport, RetryTransport, for_models
from redrive.engine.lifecycle import State
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Policy, Stage, known
from redrive.testing import VirtualClock, drain, using
from tests.contrib.httpx.conftest import Pauses
from tests.contrib.httpx.server import HALF_BODY, RESET_AFTER, HttpServer, answer, chunked

QUESTION = [{"role": "user", "content": "How are you?"}]
CHAT = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": []}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": "end_turn"}
MESSAGE |= {"stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
POLICY = Policy(attempts=3, backoff=Backoff.constant("100ms"), jitter="none")
MODELS = for_models(POLICY)
JSON = {"Content_Type": "application/json"}


def good(sdk):
    """Return an answer of a model."""
    return answer(200, json.dumps(CHAT if sdk is openai else MESSAGE).encode(), **JSON)


def events(sdk, *, ends=True):
    """Return an answer of a model as a stream of events."""
    chunk = {**CHAT, "object": "chat.completion.chunk"}
    name = "" if sdk is openai else "event: message_start\n"
    data = chunk if sdk is openai else {"type": "message_start", "message": MESSAGE}
    parts = [f"{name}data: {json.dumps(data)}\n\n".encode()] * 2
    parts += [b"data: [DONE]\n\n"] if sdk is openai and ends else []
    return chunked(200, *parts, ends=ends, content_type="text/event-stream")


def ask(client, **options):
    """Ask a model."""
    if isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        return client.chat.completions.create(model="m", messages=QUESTION, **options)
    return client.messages.create(model="m", max_tokens=9, messages=QUESTION, **options)


class Model:
    """A client of an SDK, which is asked once each time.

    Attributes:
        clock: of the retries.
        answered: the answer of the last call; if it was a stream, its events.
    """

    def __init__(self, sdk, colour):
        self.sdk = sdk
        self.is_async = colour == "async"
        self.clock = Pauses()
        self.answered = None

    def client(self, url, transport, **options):
        """Return a client."""
        kind = {
            (openai, False): openai.OpenAI,
            (openai, True): openai.AsyncOpenAI,
            (anthropic, False): anthropic.Anthropic,
            (anthropic, True): anthropic.AsyncAnthropic,
        }[self.sdk, self.is_async]
        default = self.sdk.DefaultAsyncHttpxClient if self.is_async else self.sdk.DefaultHttpxClient
        made = default(transport=transport)
        return kind(api_key="k", base_url=url, http_client=made, **{"max_retries": 0, **options})

    def count(self, *script, policy=MODELS, read=64 * 1024, **options):
        """Return the number of requests that a server has read until the SDK has its answer, or an error."""
        transport = (AsyncRetryTransport if self.is_async else RetryTransport)(policy, read=read)
        with HttpServer(*script, good(self.sdk)) as server, using(clock=self.clock):
            client = self.client(server.url, transport, **options.pop("of_client", {}))
            try:
                self.answered = (
                    asyncio.run(self._aask(client, options)) if self.is_async else self._ask(client, options)
                )
            except (openai.OpenAIError, anthropic.AnthropicError, httpx2.TransportError) as error:
                self.answered = error
        return len(server.executed)

    def _ask(self, client, options):
        with client:
            found = ask(client, **options)
            return list(found) if options.get("stream") else found

    async def _aask(self, client, options):
        async with client:
            found = await ask(client, **options)
            return [each async for each in found] if options.get("stream") else found


@pytest.fixture(
    params=[(sdk, colour) for sdk in (openai, anthropic) for colour in ("sync", "async")],
    ids=lambda each: f"{each[0].__name__}-{each[1]}",
)
def model(request):
    """Each SDK in each colour."""
    return Model(*request.param)


@pytest.fixture(params=[openai, anthropic])
def one(request):
    """Each SDK."""
    return Model(request.param, "sync")


# ------------------------------------------------------------------------------------------------- what is sent again


@pytest.mark.parametrize(
    ("step", "waits"),
    [
        (answer(503), [0.1]),
        (answer(529), [0.1]),
        (answer(429), [0.1]),
        (answer(429, Retry_After="2"), [2]),
        (answer(429, Retry_After="0.7"), [0.7]),
        (answer(429, retry_after_ms="300", Retry_After="1"), [0.3]),
        (answer(400, x_should_retry="true"), [0.1]),
        (answer(409, x_should_retry="true", Retry_After="3"), [3]),
        (RESET_AFTER, [0.1]),
        (HALF_BODY, [0.1]),
    ],
    ids=["503", "529", "429", "hint", "fraction", "milliseconds", "asked", "asked with hint", "lost", "half"],
)
def test_requests_to_models_are_repeated(model, step, waits):
    """A request to a model is repeated after each failure that can pass, and not before the server asks for it."""
    assert 2 == model.count(step)
    assert waits == model.clock.waits
    assert "m" == model.answered.model


@pytest.mark.parametrize(
    "step",
    [answer(400), answer(401), answer(409), answer(429, x_should_retry="false"), answer(503, x_should_retry="false")],
    ids=["400", "401", "409", "forbidden", "forbidden 503"],
)
def test_what_a_model_refuses_for_good_is_not_repeated(model, step):
    """A wrong request is not repeated, and neither is one of which the server says so."""
    assert 1 == model.count(step)
    assert isinstance(model.answered, model.sdk.APIStatusError)


def test_the_word_of_the_server_is_stronger_than_a_name(one):
    """`x-should-retry: false` holds also for a status that the policy names."""
    assert 2 == one.count(answer(503), policy=MODELS.with_(on="HTTP_503"))
    assert 1 == one.count(answer(503, x_should_retry="false"), policy=MODELS.with_(on="HTTP_503"))


@pytest.mark.parametrize("step", [answer(503), answer(529), RESET_AFTER], ids=["503", "529", "lost"])
def test_without_for_models_a_lost_answer_is_final(one, step):
    """A POST is not repeated where it is unknown whether it was executed, unless the policy is one for models."""
    assert 1 == one.count(step, policy=POLICY)


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "6m0s"}, [360]),
        ({"x_ratelimit_remaining_tokens": "9", "x_ratelimit_reset_tokens": "6m0s"}, [0.1]),
        (
            {
                "Date": "Fri, 20 Nov 2026 12:00:00 GMT",
                "anthropic_ratelimit_output_tokens_remaining": "0",
                "anthropic_ratelimit_output_tokens_reset": "2026-11-20T12:00:30Z",
            },
            [30],
        ),
    ],
    ids=["spent", "left", "instant"],
)
def test_the_reset_of_a_limit_is_awaited(model, headers, waits):
    """The reset of a rate limit of which nothing is left is a lower bound of the wait."""
    assert 2 == model.count(answer(429, **headers), policy=MODELS.with_(deadline=None))
    assert waits == model.clock.waits


def test_a_policy_may_ignore_the_headers(one):
    """A policy that ignores hints waits as long as it wants, and retries whatever the server says."""
    assert 2 == one.count(
        answer(503, x_should_retry="false", Retry_After="9"), policy=for_models(POLICY.with_(hints="ignore"))
    )
    assert [0.1] == one.clock.waits


# ------------------------------------------------------------------------------------------------------------- streams


def test_a_stream_begins_after_the_retries(model):
    """A streamed answer is retried until it begins, and its events are given on one by one."""
    assert 2 == model.count(answer(503), events(model.sdk), stream=True)
    assert 2 == len(model.answered)


@pytest.mark.parametrize("read", [64 * 1024, None])
def test_a_stream_that_breaks_off_is_not_repeated(model, read):
    """After its first event a stream is not repeated: the caller gets the error."""
    assert 1 == model.count(events(model.sdk, ends=False), stream=True, read=read)
    assert isinstance(model.answered, model.sdk.APIConnectionError | httpx2.TransportError)


def test_an_answer_without_a_length_can_be_part_of_the_attempt(model):
    """With `read=None` an answer in chunks that breaks off is repeated, and streams of events stay streams."""
    cut = chunked(200, b'{"id": ', ends=False, content_type="application/json")

    assert 1 == model.count(cut)
    assert 2 == model.count(cut, read=None)


# -------------------------------------------------------------------------------------------------------------- seams


def test_the_retries_of_an_sdk_multiply(one):
    """The SDK's own retries are to be turned off: a transport cannot see that it is asked again."""
    script = [answer(503, retry_after_ms="1")] * 99

    assert 3 == one.count(*script)
    assert 3 * 2 == one.count(*script, of_client={"max_retries": 1})


def test_a_retried_function_retries_alone(one):
    """In a retried function the transport makes one attempt, and the function waits as long as the server asks."""
    policy = for_models(POLICY).with_(on=(one.sdk.APIError, httpx2.HTTPError))
    with HttpServer(answer(429, retry_after_ms="300"), RESET_AFTER, good(one.sdk)) as server, using(clock=one.clock):
        client = one.client(server.url, RetryTransport(for_models("5 1s")))

        assert "m" == policy.call(ask, client).model
        client.close()

    assert [0.3, 0.1] == one.clock.waits


@pytest.mark.parametrize("step", [answer(503), RESET_AFTER], ids=["503", "lost"])
def test_the_attempts_below_an_sdk_count(one, step):
    """A function that names only the errors of the SDK counts the attempts of the transport as its own."""
    policy = for_models(POLICY).with_(on=one.sdk.APIError)
    with HttpServer(*[step] * 99) as server, using(clock=one.clock):
        client = one.client(server.url, RetryTransport(MODELS))
        with pytest.raises(one.sdk.APIError) as raised:
            policy.call(ask, client)
        client.close()

    assert 3 == len(server.executed)
    assert raised.value.__retry__.why


def test_a_job_reads_the_errors_of_an_sdk(one):
    """A job waits as long as the server asks, and ends at once if another attempt would be refused alike."""
    app = redrive.App("memory://", clock=VirtualClock())

    @app.task(retry="5 1s")
    def question() -> str:
        with one.client(server.url, RetryTransport(for_models("5 1s"))) as client:
            return ask(client).model

    with HttpServer(answer(503, retry_after_ms="70000"), good(one.sdk), answer(429, x_should_retry="false")) as server:
        later = question.enqueue()
        took = drain(app).took
        never = question.enqueue()
        drain(app)

    assert [(State.SUCCEEDED, 2), (State.DEAD, 1)] == [
        (job.refresh().state, len(job.attempts)) for job in (later, never)
    ]
    assert timedelta(seconds=70) == took


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (answer(503, retry_after_ms="1500"), ("HTTP_503", Stage.IN_FLIGHT, timedelta(seconds=1.5), False)),
        (answer(429), ("HTTP_429", Stage.ANSWERED, None, False)),
        (answer(404), ("HTTP_404", Stage.ANSWERED, None, True)),
        (answer(429, x_should_retry="false"), ("HTTP_429", Stage.ANSWERED, None, True)),
        (answer(400, x_should_retry="true"), ("HTTP_400", Stage.ANSWERED, None, False)),
        (RESET_AFTER, ("ERROR", Stage.IN_FLIGHT, None, False)),
    ],
    ids=["503", "429", "404", "forbidden", "asked", "lost"],
)
def test_the_errors_of_an_sdk_are_described(one, step, expected):
    """Errors of the SDKs are described wherever a policy meets them, also those of a plain client."""
    with HttpServer(step) as server, one.client(server.url, None) as client, pytest.raises(one.sdk.APIError) as raised:
        ask(client)
    failure = known.describe(raised.value)

    assert expected == (failure.reason, failure.stage, failure.hint, failure.lasting is not None)
    assert type(raised.value).__qualname__ == failure.error_type.rpartition(".")[2]


def test_an_answer_of_the_sdk_itself_is_no_failure_of_http():
    """An SDK's error about an answer with status 200 is not described as one of HTTP."""
    response = httpx2.Response(200, request=httpx2.Request("POST", "http://test/"))
    error = openai.APIResponseValidationError(response, None)

    assert "ERROR" == known.describe(error).reason


# -------------------------------------------------------------------------------------------------------- two packages


def test_an_older_sdk_is_served_by_httpx(one):
    """OpenAI's SDK also takes a client of httpx, with the transport for that."""
    transport = redrive.contrib.httpx.RetryTransport(redrive.contrib.httpx.for_models(POLICY))
    with (
        HttpServer(answer(503), good(openai)) as server,
        using(clock=one.clock),
        httpx.Client(transport=transport) as made,
    ):
        assert "m" == ask(openai.OpenAI(api_key="k", base_url=server.url, max_retries=0, http_client=made)).model


def test_the_packages_are_not_mixed():
    """A transport refuses requests, transports and clients of the other package, and names the module for it."""
    old, new = redrive.contrib.httpx, redrive.contrib.httpx2
    pattern = "this is for httpx2: use redrive.contrib.httpx$"
    with pytest.raises(TypeError, match=f"inner transport is a httpx.HTTPTransport, and {pattern}"):
        new.RetryTransport(None, httpx.HTTPTransport())
    with pytest.raises(TypeError, match="this is for httpx: use redrive.contrib.httpx2$"):
        old.AsyncRetryTransport(None, new.AsyncRetryTransport())
    with (
        pytest.raises(TypeError, match=f"request is a httpx.Request, and {pattern}"),
        httpx.Client(transport=new.RetryTransport()) as client,
    ):
        client.get("http://test/")
    with pytest.raises(TypeError, match=f"client is a httpx.Client, and {pattern}"), httpx.Client() as client:
        new.wrap(client)


# ---------------------------------------------------------------------------------------------------------- for_models


def test_for_models_is_idempotent_and_reads_the_headers():
    """`for_models` changes two fields of a policy, and keeps all others."""
    assert POLICY.with_(idempotent=True, hints="ai") == MODELS == for_models(MODELS)
    assert 6 == for_models("5 1s 1m").attempts


def test_for_models_takes_a_combination(one):
    """Limits of a policy stay limits, and its other part is made for models."""
    assert 2 == one.count(answer(503, x_should_retry="true"), policy=for_models(POLICY.at_least("2s")))
    assert 1 == one.count(answer(503, x_should_retry="false"), policy=for_models(POLICY.at_least("2s")))
    assert [2] == one.clock.waits


@pytest.mark.parametrize(
    ("policy", "error", "match"),
    [
        (Policy(idempotent=False), PolicyValueError, "the policy has idempotent=False"),
        (3, TypeError, r"for_models\(\) takes a policy or a directive, not 3"),
        ("five", redrive.errors.PolicySyntaxError, "five"),
    ],
)
def test_what_for_models_refuses(policy, error, match):
    """A policy that contradicts is refused, and so is what is no policy."""
    with pytest.raises(error, match=match):
        for_models(policy)
