"""Agents in workflows; the workers of the tests import it.

Each execution of a tool writes one line with a token, and the token is part of its recorded answer: so the tests find
out if a tool was executed again although its answer was recorded."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from pathlib import Path

from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from redrive import App, Flow
from redrive.contrib.pydantic_ai import Durability

HERE = Path(os.environ.get("AGENTS_HOME", "."))
app = App(os.environ.get("AGENTS_URL", "memory://"), heartbeat_every="200ms", lease_for="3s")

RETRY = "80 50ms 500ms"


def note(*words: object) -> None:
    """Write one line to the ledger."""
    file = os.open(HERE / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)


def script(seed: int) -> list[list[tuple[str, int]]]:
    """Return the tools that the model calls in each turn of a conversation, with their arguments."""
    rng = random.Random(seed)
    turns = range(rng.randrange(3, 7))
    return [[(rng.choice(("look", "order")), rng.randrange(100)) for _ in range(rng.randrange(1, 4))] for _ in turns]


async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer as the script of the seed has it, which is the first word of the question; fail sometimes."""
    seed = int(str(messages[0].parts[0].content))
    turn, chance = sum(isinstance(each, ModelResponse) for each in messages), random.Random()
    await asyncio.sleep(chance.random() * 0.03)
    if chance.random() < 0.2:
        raise ConnectionError("the model is busy")
    turns = script(seed)
    if turn == len(turns):
        return ModelResponse(parts=[TextPart(" ".join(answers(messages)))])
    calls = enumerate(turns[turn])
    return ModelResponse(
        parts=[ToolCallPart(name, {"number": given}, tool_call_id=f"{turn}.{at}") for at, (name, given) in calls]
    )


def answers(messages: list[ModelMessage]) -> list[str]:
    """Return the answers of all tools in their order."""
    return [part.content for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]


clerk = Agent(
    FunctionModel(think), deps_type=int, name="clerk", capabilities=[Durability(model_retry=RETRY, tool_retry=RETRY)]
)


async def act(seed: int, call: str | None, name: str, number: int) -> str:
    """Have an effect, after some failures, and return what identifies it."""
    chance = random.Random()
    await asyncio.sleep(chance.random() * 0.03)
    if chance.random() < 0.2:
        raise OSError("flaky")
    token = uuid.uuid4().hex
    note(seed, call, os.getpid(), token)
    return f"{call}:{name}:{number}:{token}"


@clerk.tool
async def look(ctx: RunContext[int], number: int) -> str:
    """Look something up."""
    return await act(ctx.deps, ctx.tool_call_id, "look", number)


@clerk.tool
async def order(ctx: RunContext[int], number: int) -> str:
    """Order something."""
    return await act(ctx.deps, ctx.tool_call_id, "order", number)


@app.workflow()
async def talk(flow: Flow, seed: int) -> str:
    """Hold a conversation."""
    return (await clerk.run(str(seed), deps=seed)).output


def wanted(seed: int) -> list[list[str]]:
    """Return the calls of a conversation in their order: their ids, their tools and their arguments."""
    turns = enumerate(script(seed))
    return [[f"{turn}.{at}", name, str(given)] for turn, calls in turns for at, (name, given) in enumerate(calls)]


async def sell(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call a tool that needs an approval, and repeat its answer."""
    note("asked", len(messages))
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("buy", {"what": "ship"}, tool_call_id="c1")])
    return ModelResponse(parts=[TextPart(answers(messages)[-1])])


buyer = Agent(FunctionModel(sell), name="buyer", output_type=[str, DeferredToolRequests], capabilities=[Durability()])


@buyer.tool_plain(requires_approval=True)
async def buy(what: str) -> str:
    """Buy something."""
    note("bought", what)
    return f"bought {what}"


@app.workflow()
async def shop(flow: Flow) -> str:
    """Buy a ship, if that is approved."""
    result = await buyer.run("Buy a ship.")
    while isinstance(result.output, DeferredToolRequests):
        given = {
            call.tool_call_id: await flow.wait_for(f"approve {call.tool_call_id}", bool)
            for call in result.output.approvals
        }
        result = await buyer.run(
            message_history=result.all_messages(), deferred_tool_results=DeferredToolResults(approvals=given)
        )
    return result.output
