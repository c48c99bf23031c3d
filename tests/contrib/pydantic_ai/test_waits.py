"""Approvals and answers from outside: an agent waits as its run waits for a signal."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelHTTPError, RunContext
from pydantic_ai.capabilities import RequestInput
from pydantic_ai.external_events import ExternalEventError, wait_for_external_event
from pydantic_ai.mcp import MCPToolset

from redrive import App, Flow
from redrive.contrib.pydantic_ai import Durability
from redrive.engine.lifecycle import FINAL
from redrive.testing import drain, replay
from tests.contrib.pydantic_ai.conftest import called, every_store, scripted


def buyer(done: list[str], *capabilities: Any, output: Any = str) -> Agent[None, Any]:
    """Return an agent that buys a ship if it may."""
    agent = Agent(
        scripted(done, called(("buy", {"what": "ship"})), "Bought."),
        name="buyer",
        output_type=output,
        capabilities=[Durability(), *capabilities],
    )

    @agent.tool_plain(requires_approval=True)
    async def buy(what: str) -> str:
        done.append(f"bought {what}")
        return f"a {what}"

    return agent


@every_store
def test_an_approval_is_a_signal_of_the_run(app: App, done: list[str]):
    """A tool that requires an approval is called after the signal, once, in a second run of the agent."""
    agent = buyer(done, output=[str, DeferredToolRequests])

    @app.workflow()
    async def shop(flow: Flow) -> str:
        result = await agent.run("Buy a ship.")
        while isinstance(result.output, DeferredToolRequests):
            approvals = {
                call.tool_call_id: await flow.wait_for(f"approve {call.tool_call_id}", bool)
                for call in result.output.approvals
            }
            result = await agent.run(
                message_history=result.all_messages(), deferred_tool_results=DeferredToolResults(approvals=approvals)
            )
        return result.output

    run = shop.start()
    drain(app)
    assert run.state not in FINAL
    assert ["model 0"] == done
    run.signal("approve c0", True)
    drain(app)

    assert run.result() == "Bought."
    assert ["model 0", "bought ship", "model 1"] == done
    replay(app, run.history())


@every_store
def test_a_token_of_the_agent_is_answered_by_a_signal(app: App, done: list[str]):
    """RequestInput asks once, in a step; the token ends with the name of the signal that answers."""
    tokens: list[str] = []

    def ask(_: RunContext[None], requests: DeferredToolRequests, token: str) -> None:
        done.append("asked")
        tokens.append(token)

    agent = buyer(done, RequestInput(ask=ask))

    @app.workflow()
    async def shop(flow: Flow) -> str:
        return (await agent.run("Buy a ship.")).output

    run = shop.start(id="s1")
    drain(app)
    assert ["shop/s1/deferred_tool_calls.1"] == tokens
    run.signal(tokens[0].rpartition("/")[2], {"approvals": {"c0": True}})
    drain(app)

    assert run.result() == "Bought."
    assert ["model 0", "asked", "bought ship", "model 1"] == done
    assert {"ask deferred_tool_calls.1", "deferred_tool_calls.1"} < {step.name for step in run.timeline()}
    replay(app, run.history())


def test_an_answer_that_is_late_is_an_error_of_the_wait(app: App, done: list[str]):
    """After the timeout the agent is told that no decision arrived, and the tool is not called."""
    agent = buyer(done, RequestInput(ask=lambda *_: None, timeout=timedelta(hours=1)))

    @app.workflow()
    async def shop(flow: Flow) -> str:
        return (await agent.run("Buy a ship.")).output

    run = shop.start()
    took = drain(app).took

    assert run.result() == "Bought."
    assert ["model 0", "model 1"] == done
    assert took >= timedelta(hours=1)


def test_an_answer_at_once_needs_no_signal(app: App, done: list[str]):
    """What `ask` returns is recorded as the answer; equal waits are told apart by their numbers."""

    async def body() -> list[Any]:
        early = [await wait_for_external_event("rule", ask=lambda _: done.append("rule") or 7) for _ in range(2)]
        with pytest.raises(ExternalEventError, match=r"no signal 'late.1' arrived"):
            await wait_for_external_event("late", ask=lambda _: None, timeout=timedelta(minutes=1))
        return early

    agent = Agent(scripted(done, "Fine."), name="asker", capabilities=[Durability()])

    @agent.instructions
    async def instruct() -> str:
        return str(await body())

    @app.workflow()
    async def ask(flow: Flow) -> str:
        return (await agent.run("hi")).output

    run = ask.start()
    drain(app)

    assert run.result() == "Fine."
    assert ["rule", "rule", "model 0"] == done


PATIENCE = 90.0
"""Seconds for a server that starts while the machine is busy."""

SERVER = """
import os
from pathlib import Path

from mcp.server.mcpserver import MCPServer

HERE = Path(__file__).parent
with (HERE / "starts").open("a") as file:
    file.write("start\\n")
server = MCPServer("calculator")


@server.tool()
def add(a: int, b: int) -> int:
    with (HERE / "calls").open("a") as file:
        file.write("add\\n")
    return a + b


server.run()
"""


@pytest.mark.realtime
@pytest.mark.parametrize("refusals", [0, 1])
def test_a_server_of_mcp_is_called_once_and_not_started_by_a_replay(
    app: App, done: list[str], tmp_path: Path, refusals: int
):
    """Its tools are listed and called in steps over its standard input; a pass that only replays starts no server.

    One that parks between both ends it, and starts it for the call.
    """
    (tmp_path / "server.py").write_text(SERVER)
    transport = StdioTransport(sys.executable, [str(tmp_path / "server.py")], keep_alive=False)
    refused = [ModelHTTPError(429, "m", headers={"retry-after": "100"})] * refusals
    agent = Agent(
        scripted(done, *refused, called(("add", {"a": 1, "b": 2})), "Three."),
        name="calculator",
        toolsets=[MCPToolset(transport, id="calc", init_timeout=PATIENCE, read_timeout=PATIENCE)],
        capabilities=[Durability()],
    )

    @app.workflow()
    async def ask(flow: Flow) -> str:
        output = (await agent.run("1 + 2")).output
        await flow.sleep("1h")
        return output

    run = ask.start()
    drain(app)

    assert run.result() == "Three."
    assert (tmp_path / "calls").read_text() == "add\n"
    names = {step.name for step in run.timeline()}
    assert {"calculator__mcp_server__calc.get_tools", "calculator__mcp_server__calc.call_tool"} <= names
    assert (tmp_path / "starts").read_text().count("start") == 1 + refusals
