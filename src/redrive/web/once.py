"""Actions with an ``Idempotency-Key``: a repeated request has the answer of the first one, and no second effect."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from redrive.app.app import App
from redrive.errors import RedriveError, StoreOutcomeUnknown, StoreUnreachable
from redrive.operate.exchange import Refusal, Request
from redrive.stores.operations import requests
from redrive.stores.operations.requests import StoredRequest

#: The header of a request.
HEADER: Final = "idempotency-key"

#: The header of an answer that was given before.
REPEATED: Final = "Idempotency-Replayed"


class Answered(msgspec.Struct, frozen=True, gc=False):
    """A stored response."""

    status: int
    body: msgspec.Raw
    location: str | None = None


def key_of(text: str | None, longest: int) -> str | None:
    """Return the key of a request; None without one.

    Raises:
        Refusal: 400, it has no characters or too many, or others than visible ones of ASCII.
    """
    if text is None:
        return None
    if not 0 < len(text) <= longest or not all("!" <= each <= "~" for each in text):
        detail = f"Idempotency-Key has 1 to {longest} visible characters of ASCII"
        raise Refusal(HTTPStatus.BAD_REQUEST, detail)
    return text


async def once(app: App, given: Request, key: str, respond: Callable[[], Awaitable[Response]]) -> Response:
    """Carry a request out, unless its sender has sent it before.

    Raises:
        Refusal: 422, the key belongs to another request; 409, the first request has not ended.
    """
    store, actor, digest = app.store, given.user.name, _digest(given)
    before = await store.arun(requests.begin(actor, key, digest, now=app.now()))
    if before is not None:
        return _repeated(before, digest)
    try:
        response = await respond()
    except (StoreUnreachable, StoreOutcomeUnknown):
        # It may have had an effect.
        raise
    except (Refusal, RedriveError):
        await store.arun(requests.forget(actor, key))
        raise
    answer = Answered(response.status_code, msgspec.Raw(bytes(response.body)), response.headers.get("location"))
    await store.arun(requests.answered(actor, key, msgspec.json.encode(answer)))
    return response


def _digest(given: Request) -> str:
    content = msgspec.json.encode([given.path, given.query, given.form], order="deterministic")
    return hashlib.sha256(content).hexdigest()


def _repeated(before: StoredRequest, digest: str) -> Response:
    if before.digest != digest:
        detail = "this Idempotency-Key belongs to another request of yours: use a new key"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    if before.answer is None:
        detail = (
            "a request with this Idempotency-Key has begun and not ended, or its process died: read what it was to "
            "change, and use a new key if it has not"
        )
        raise Refusal(HTTPStatus.CONFLICT, detail)
    found = msgspec.json.decode(before.answer, type=Answered)
    headers = {REPEATED: "true"} | ({} if found.location is None else {"Location": found.location})
    return Response(bytes(found.body), found.status, headers, media_type="application/json")
