"""A support agent as a workflow: it looks an order up, refunds it, and writes to the customer."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic_ai import Agent, ModelMessage, ModelResponse, RunContext, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from redrive import App, Flow
from redrive.contrib.pydantic_ai import Durability

app = App(os.environ.get("SUPPORT_URL", "sqlite:///support.db"), heartbeat_every="500ms", lease_for="3s")

LEDGER = Path(os.environ.get("SUPPORT_LEDGER", "ledger.txt"))
"""Stands for the shop, the bank and the mail: what was done, one line each, and redrive knows nothing of it."""

PAUSE = float(os.environ.get("SUPPORT_PAUSE", "2"))
"""Seconds that each answer of the model takes: time to kill the worker."""


def done(line: str) -> None:
    """Write to the ledger."""
    with LEDGER.open("a") as file:
        file.write(f"{line}\n")


def script(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Answer as a model would, without a network; in a program of your own this is ``"openai:gpt-5"``."""
    time.sleep(PAUSE)
    answers = [part for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
    done(f"model: answer {len(answers) + 1}")
    order = str(messages[0].parts[0].content).rpartition("order ")[2].rstrip(".")
    if not answers:
        return ModelResponse(parts=[ToolCallPart("look_up", {"order": order})])
    if len(answers) == 1:
        return ModelResponse(parts=[ToolCallPart("refund", {"order": order, "cents": answers[0].content})])
    if len(answers) == 2:
        return ModelResponse(
            parts=[ToolCallPart("write", {"text": f"Your {answers[0].content} cents are on the way."})]
        )
    return ModelResponse(parts=[TextPart(f"Order {order} is refunded, and {answers[2].content}.")])


agent = Agent(
    FunctionModel(script),
    name="support",
    deps_type=str,
    instructions="Help the customer. Refund what arrived broken.",
    capabilities=[Durability(tool_retry={"look_up": "5 1s 10s"})],
)


@agent.tool_plain
def look_up(order: str) -> int:
    """Return the price of an order in cents."""
    done(f"shop: {order} was looked up")
    return 100 * len(order)


@agent.tool
def refund(ctx: RunContext[str], order: str, cents: int) -> str:
    """Give the money back; a bank takes the id of the call as the key that makes a repetition harmless."""
    done(f"bank: {cents} cents for {order} to {ctx.deps}")
    return "refunded"


@agent.tool
def write(ctx: RunContext[str], text: str) -> str:
    """Write to the customer."""
    done(f"mail: to {ctx.deps}: {text}")
    return f"{ctx.deps} has mail"


@app.workflow(version=1)
async def support(flow: Flow, customer: str, message: str) -> str:
    """Answer a customer; the agent records its steps in this run."""
    flow.set("customer", customer)
    return (await agent.run(message, deps=customer)).output
