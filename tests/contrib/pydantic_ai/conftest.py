"""Agents with the models of Pydantic AI's tests, an app with time that jumps, and a record of what was executed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, models
from pydantic_ai.models.function import AgentInfo, FunctionModel

from redrive import App
from redrive.contrib.pydantic_ai import Durability
from redrive.testing import VirtualClock
from tests import postgres

models.ALLOW_MODEL_REQUESTS = False

every_store = pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
"""Runs a test on each store."""


@pytest.fixture
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """Yield an app with a virtual clock, in memory unless the test asks for another store."""
    kind = getattr(request, "param", "memory")
    files = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/runs.db?synchronous=normal"}
    with postgres.lent() if kind == "postgres" else contextlib.nullcontext(files[kind]) as url:
        app = App(url, clock=VirtualClock())
        yield app
        app.close()


@pytest.fixture
def done() -> list[str]:
    """Return an empty record of what was executed."""
    return []


def scripted(done: list[str], *answers: ModelResponse | str | Exception) -> FunctionModel:
    """Return a model that gives these answers one after the other; an exception is raised once, and not counted."""
    left = list(answers)
    given = [each for each in left if not isinstance(each, Exception)]

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(each, ModelResponse) for each in messages)
        if isinstance(left[0], Exception):
            done.append("refused")
            raise left.pop(0)
        left.pop(0)
        done.append(f"model {turn}")
        answer = given[turn]
        return ModelResponse(parts=[TextPart(answer)]) if isinstance(answer, str) else answer

    return FunctionModel(model)


def called(*calls: tuple[str, dict[str, object]]) -> ModelResponse:
    """Return an answer of a model that calls tools."""
    parts = [ToolCallPart(name, given, tool_call_id=f"c{number}") for number, (name, given) in enumerate(calls)]
    return ModelResponse(parts=parts)


Cities = Callable[..., Agent[None, str]]


@pytest.fixture
def weather(done: list[str]) -> Cities:
    """Return a function that makes an agent with a tool, which fails once for Oslo."""

    def make(*answers: ModelResponse | str | Exception, tool: str = "weather", retry: str | None = "5 1h") -> Agent:
        given = answers or (called(*[("weather", {"city": each}) for each in ("Rome", "Oslo", "Kyiv")]), "Fine.")
        durability = Durability(tool_retry={} if retry is None else {tool: retry})
        agent = Agent(scripted(done, *given), name="forecaster", capabilities=[durability])
        down = {"Oslo"}

        async def look(city: str) -> str:
            if city in down:
                down.discard(city)
                done.append(f"{city} is down")
                raise OSError(f"no line to {city}")
            done.append(city)
            return f"sun in {city}"

        agent.tool_plain(look, name=tool)
        return agent

    return make
