"""Types of `redrive.contrib.pydantic_ai`, read by mypy and never run."""

from __future__ import annotations

from typing import assert_type

from pydantic_ai import Agent, AgentRunResult
from pydantic_ai.models.test import TestModel

import redrive
from redrive.contrib.pydantic_ai import Durability, failure_of
from redrive.policy import Failure, Policy

app = redrive.App("memory://")

agent = Agent(
    TestModel(),
    deps_type=int,
    name="typed",
    capabilities=[Durability[int](model_retry="5 1s 1m", tool_retry={"look": "3 1s", "buy": Policy(attempts=2)})],
)
plain = Agent(TestModel(), name="plain", capabilities=[Durability(tool_retry="3 1s", model_retry=None)])


@app.workflow(version=1)
async def ask(flow: redrive.Flow, question: str) -> str:
    """Return what the agent says."""
    result = await agent.run(question, deps=1)
    assert_type(result, AgentRunResult[str])
    assert_type((await plain.run(question)).output, str)
    return result.output


assert_type(failure_of(OSError()), Failure | None)
Durability(tool_retry=3)  # type: ignore[arg-type]
