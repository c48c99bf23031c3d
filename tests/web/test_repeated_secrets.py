"""Secrets that errors repeat: the list, the page and the search of jobs and runs remove the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import redrive
from redrive.testing import VirtualClock, drain
from redrive.web import NoAuth, Payloads, create_app
from tests.web.client import Client

SECRET = "hunter7secret"


@dataclass
class Paid:
    """The event of a payment."""

    password: str = ""


@dataclass
class Shipped:
    """The event of a parcel."""


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with jobs, runs and an instance that have failed with a secret in the error."""
    app = redrive.App("memory://", clock=VirtualClock())

    @app.task(retry="0")
    def progress(ctx: redrive.Context) -> None:
        """Report a secret, and repeat it."""
        ctx.heartbeat({"token": SECRET}, force=True)
        raise ConnectionError(f"401 for token={SECRET}")

    @app.task(retry="0")
    def mend(request: redrive.CatchRequest[Any]) -> None:
        """Fail with the secret of the other job."""
        raise ConnectionError(f"401 for token={SECRET}")

    @app.task(retry="0 catch mend")
    def caught(token: str) -> None:
        """Fail."""
        raise ConnectionError(f"401 for token={token}")

    def login() -> dict[str, str]:
        """Return a secret."""
        return {"token": SECRET}

    @app.workflow(retry="0")
    async def checkout(flow: redrive.Flow) -> None:
        """Repeat the result of a step in an error."""
        found = await flow.step(login)
        raise ConnectionError(f"401 for token={found['token']}")

    @app.workflow(retry="0")
    async def waiting(flow: redrive.Flow) -> None:
        """Repeat a value, or a signal, in an error."""
        flow.set("login", {"token": SECRET})
        found = await flow.wait_for("login", dict[str, str])
        raise ConnectionError(f"401 for token={found['token']}")

    payment = app.machine("payment", data=dict)

    @payment.start(retry="0")
    def paid(event: Paid, ctx: redrive.Context) -> None:
        """Keep a secret."""
        ctx.set_data({"token": event.password})

    @payment.state(after=[paid], retry="0")
    def shipped(event: Shipped) -> None:
        """Repeat it."""
        raise ConnectionError(f"401 for token={SECRET}")

    app.open()
    progress.enqueue()
    caught.enqueue(SECRET)
    checkout.start(id="a")
    waiting.start(id="b").signal("login", {"token": SECRET})
    for event in (Paid(SECRET), Shipped()):
        payment.send("c", event)
        # The catch task is tried again for ever.
        drain(app, within=0)
    yield app
    app.close()


PATHS = ["/jobs", "/jobs?q=state:dead", "/runs", "/runs/checkout/a", "/runs/waiting/b", "/machines/payment"]


@pytest.mark.parametrize("payloads", [Payloads.REDACTED, Payloads.HIDDEN])
def test_lists_pages_and_searches_remove_the_same_secrets(app: redrive.App, payloads: Payloads):
    """A secret of the progress, a caught job, a run or an instance is in no list, on no page, and is not found."""
    client = Client(create_app(app, auth=NoAuth(), payloads=payloads))
    failed = client.get("/api/v1/jobs?q=error:token").json()["items"]
    numbers = {each["task"]: each["id"] for each in failed}
    pages = [*PATHS, "/machines/payment/c", *(f"/jobs/{number}" for number in numbers.values())]

    assert {"progress", "caught", "mend", "checkout", "waiting"} < set(numbers)
    assert 6 == len(failed)
    assert ["401 for token=[redacted]"] * 6 == [each["error"] for each in failed]
    for path in pages:
        for prefix in ("", "/api/v1"):
            answer = client.get(prefix + path)
            assert 200 == answer.status_code
            assert (path, False) == (path, "hunter7" in answer.text)
    assert [] == client.get("/api/v1/jobs?q=error:hunter7").json()["items"]
    assert failed == client.get("/api/v1/jobs?q=error:token=[redacted]").json()["items"]
