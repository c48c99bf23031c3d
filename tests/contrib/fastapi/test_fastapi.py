"""The dependency of FastAPI."""

from __future__ import annotations

from fastapi import FastAPI, WebSocket

import redrive
from redrive.contrib import fastapi, starlette
from redrive.contrib.fastapi import Jobs, jobs_of, lifespan
from tests.contrib.fastapi.asgi import ask, listen


def test_a_parameter_gets_the_app():
    """Parameters annotated with `Jobs` get the App, in routes and in WebSockets, and are no part of the API."""
    jobs = redrive.App("memory://")
    app = FastAPI(lifespan=lifespan(jobs))

    @app.get("/")
    def look(found: Jobs) -> bool:
        return found is jobs

    @app.websocket("/live")
    async def live(socket: WebSocket, found: Jobs) -> None:
        await socket.accept()
        await socket.send_json(found is jobs)
        await socket.close()

    assert True is ask(app).json()
    assert [True] == listen(app, "/live")
    assert [] == app.openapi()["paths"]["/"]["get"].get("parameters", [])


def test_the_app_can_be_overridden_in_tests():
    """Dependencies can be overridden, without a lifespan."""
    other = redrive.App("memory://")
    app = FastAPI()
    app.dependency_overrides[jobs_of] = lambda: other

    @app.get("/")
    def look(found: Jobs) -> bool:
        return found is other

    assert True is ask(app).json()


def test_names_for_starlette_are_exported_for_fastapi():
    """Names for Starlette can be imported from the module for FastAPI too."""
    assert {"Jobs", *starlette.__all__} == set(fastapi.__all__)
