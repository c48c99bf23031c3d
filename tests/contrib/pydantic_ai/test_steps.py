"""Model requests and tool calls of agents as steps of a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import (
    Agent,
    AgentStreamEvent,
    FunctionToolset,
    ModelHTTPError,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelRetry,
    RunContext,
    TextPart,
    UsageLimits,
    UserError,
)
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from redrive import App, Flow, GiveUp, SyncFlow
from redrive.contrib.pydantic_ai import Durability
from redrive.engine.lifecycle import FINAL
from redrive.engine.runs import StepOutcome
from redrive.errors import FlowMisused
from redrive.testing import drain, replay
from tests.contrib.pydantic_ai.conftest import Cities, called, every_store, scripted


@every_store
def test_a_tool_that_waits_holds_no_worker_and_nothing_is_done_twice(app: App, weather: Cities, done: list[str]):
    """Of three tools at once one fails and is parked for an hour; the conversation goes on from what is recorded."""
    agent = weather()

    @app.workflow()
    async def ask(flow: Flow, question: str) -> list[Any]:
        result = await agent.run(question)
        done.append("end")
        # The body has other times in each pass.
        messages = ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json")
        return [result.output, [[part.get("content") for part in each["parts"]] for each in messages]]

    run = ask.start("Where is sun?")
    drain(app, within="30m")
    assert run.state not in FINAL
    waiting = list(done)
    drained = drain(app)

    assert {"model 0", "Rome", "Oslo is down", "Kyiv"} == set(waiting)
    assert ["Oslo", "model 1", "end"] == done[len(waiting) :]
    assert len(done) == len(set(done))
    output, messages = run.result()
    assert output == "Fine."
    assert ["sun in Rome", "sun in Oslo", "sun in Kyiv"] == messages[2]
    assert drained.took >= timedelta(minutes=29)
    replay(app, run.history())


@every_store
def test_a_refused_request_is_repeated_when_the_service_asks(app: App, done: list[str]):
    """Two answers 429 with Retry-After delay the third request by their spans; the run parks between them."""
    busy = [ModelHTTPError(429, "m", headers={"retry-after": str(seconds)}) for seconds in (100, 200)]
    agent = Agent(scripted(done, *busy, "Fine."), name="patient", capabilities=[Durability()])

    @app.workflow()
    async def ask(flow: Flow) -> str:
        done.append("pass")
        return (await agent.run("hi")).output

    run = ask.start()
    took = drain(app).took

    assert run.result() == "Fine."
    assert ["pass", "refused", "pass", "refused", "pass", "model 0"] == done
    assert timedelta(seconds=300) <= took < timedelta(seconds=302)


@pytest.mark.parametrize(
    "error",
    [
        ModelHTTPError(400, "m"),
        ModelHTTPError(401, "m"),
        ModelHTTPError(503, "m", headers={"x-should-retry": "false"}),
        UserError("no key"),
    ],
)
def test_a_request_that_was_rejected_is_not_repeated(app: App, done: list[str], error: Exception):
    """The first answer ends the request, and the workflow gets the original class of the error."""
    agent = Agent(scripted(done, error, "Fine."), name="rejected", capabilities=[Durability()])

    @app.workflow()
    async def ask(flow: Flow) -> str:
        try:
            return (await agent.run("hi")).output
        except type(error):
            await flow.sleep("1m")
            return "rejected"

    run = ask.start()
    drain(app)

    assert run.result() == "rejected"
    assert ["refused"] == done


def test_limits_of_usage_count_what_is_recorded(app: App, weather: Cities, done: list[str]):
    """A replay counts the recorded answers, so that a limit is reached where it was."""
    agent = weather()

    @app.workflow()
    async def ask(flow: Flow) -> str:
        try:
            await agent.run("hi", usage_limits=UsageLimits(request_limit=1))
        except UsageLimitExceeded as error:
            await flow.sleep("1m")
            return f"{error}"
        return ""

    run = ask.start()
    drain(app)

    assert "request_limit of 1" in run.result()
    assert "model 1" not in done
    replay(app, run.history())


@every_store
def test_a_handler_gets_each_event_once(app: App, done: list[str]):
    """A stream's events arrive in the step of the request, the other ones in a step each, and in no replay again."""

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        for word in ("one ", "two ", "three"):
            yield word

    async def handler(_: RunContext[None], events: AsyncIterator[AgentStreamEvent]) -> None:
        done.extend([type(event).__name__ async for event in events])

    agent = Agent(
        FunctionModel(stream_function=stream), name="streamer", capabilities=[Durability(event_stream_handler=handler)]
    )

    @app.workflow()
    async def ask(flow: Flow) -> str:
        output = (await agent.run("hi")).output
        await flow.sleep("1h")
        return output

    run = ask.start()
    drain(app)

    assert run.result() == "one two three"
    assert done.count("PartDeltaEvent") == 2
    assert done.count("FinalResultEvent") == 1
    assert "streamer__model.request_stream" in {step.name for step in run.timeline()}
    replay(app, run.history())


def test_what_a_tool_asks_of_the_model_is_recorded_and_not_repeated(app: App, done: list[str]):
    """ModelRetry is an answer to the model, and no failure of the step."""
    agent = Agent(
        scripted(done, called(("guess", {"number": 1})), called(("guess", {"number": 2})), "Fine."),
        name="guesser",
        capabilities=[Durability(tool_retry="5 1s")],
    )

    @agent.tool_plain
    def guess(number: int) -> str:
        done.append(f"guess {number}")
        if number == 1:
            raise ModelRetry("higher")
        return "right"

    @app.workflow()
    async def ask(flow: Flow) -> str:
        return (await agent.run("hi")).output

    run = ask.start()
    drain(app)

    assert run.result() == "Fine."
    assert ["model 0", "guess 1", "model 1", "guess 2", "model 2"] == done
    assert {1} == {step.tries for step in run.timeline()}


def test_a_tool_without_a_policy_is_called_once(app: App, weather: Cities, done: list[str]):
    """The failure of a tool is final by default, and the workflow gets it."""
    agent = weather(retry=None)

    @app.workflow()
    async def ask(flow: Flow) -> str:
        try:
            return (await agent.run("hi")).output
        except OSError as error:
            return f"failed: {error}"

    run = ask.start()
    drain(app)

    assert run.result() == "failed: no line to Oslo"
    assert done.count("Oslo is down") == 1
    outcomes = {step.outcome for step in run.timeline()}
    assert StepOutcome.FAILED in outcomes


def test_a_policy_for_a_tool_that_the_agent_has_not_is_a_warning(app: App, caplog: pytest.LogCaptureFixture):
    """It is said once, with the names of the tools."""
    agent = Agent(
        TestModel(), name="clerk", capabilities=[Durability[None](tool_retry={"lokup": "3 1m", "again": "3 1m"})]
    )

    @agent.tool_plain
    async def lookup(order: int) -> int:
        return order

    @agent.tool_plain
    async def again(order: int) -> int:
        return order

    @app.workflow()
    async def ask(flow: Flow) -> str:
        return (await agent.run("hi")).output

    for _ in range(2):
        ask.start()
        drain(app)

    (said,) = [each.getMessage() for each in caplog.records]
    assert said == (
        "the agent clerk has a policy for a tool that it was not offered: tool_retry names lokup, "
        "its tools are again, lookup"
    )


def test_agents_at_once_have_their_own_conversations(app: App, done: list[str]):
    """Two runs of one agent in tasks of a body get their own ids, which are the same in each pass."""
    ids: list[tuple[str, str]] = []
    agent = Agent(TestModel(custom_output_text="Fine."), name="twin", capabilities=[Durability()])

    @agent.tool_plain
    async def once(a: int) -> int:
        done.append("once")
        return a

    @app.workflow()
    async def ask(flow: Flow) -> list[str]:
        results = await asyncio.gather(agent.run("a"), agent.run("b"))
        await flow.sleep("1h")
        ids.extend((each.run_id, each.conversation_id) for each in results)
        return [each.output for each in results]

    run = ask.start(id="r")
    drain(app)
    drain(app)

    assert run.result() == ["Fine.", "Fine."]
    assert ["once", "once"] == done
    assert ["ask/r/1", "ask/r/2"] == [each for each, _ in ids]
    replay(app, run.history())
    assert ids[:2] == ids[2:]


def test_two_agents_of_a_workflow_have_different_ids(app: App, done: list[str]):
    """The ids of runs and conversations are those of one run of one agent."""
    agents = [Agent(scripted(done, "Fine."), name=name, capabilities=[Durability()]) for name in ("a", "b")]

    @app.workflow()
    async def ask(flow: Flow) -> list[str]:
        results = [await each.run("hi") for each in agents]
        return [each.run_id for each in results] + [each.conversation_id for each in results]

    run = ask.start(id="r")
    drain(app)

    assert ["ask/r/1", "ask/r/2"] == run.result()[:2]
    assert len(set(run.result())) == 4
    replay(app, run.history())


def test_an_agent_in_a_tool_belongs_to_the_step(app: App, done: list[str]):
    """An agent that a tool runs is an ordinary one: the step of the tool is what is recorded."""
    inner = Agent(scripted(done, "inner"), name="inner", capabilities=[Durability()])
    outer = Agent(scripted(done, called(("delegate", {})), "outer"), name="outer", capabilities=[Durability()])

    @outer.tool_plain
    async def delegate() -> str:
        return (await inner.run("hi")).output

    @app.workflow()
    async def ask(flow: Flow) -> str:
        return (await outer.run("hi")).output

    run = ask.start()
    drain(app)

    assert run.result() == "outer"
    assert not [step.name for step in run.timeline() if "inner" in step.name]


def test_an_agent_in_a_sync_workflow_is_refused(app: App, done: list[str]):
    """A `def` workflow could not record the steps; nothing is asked of the model."""
    agent = Agent(scripted(done, "Fine."), name="sync", capabilities=[Durability()])

    @app.workflow()
    def ask(flow: SyncFlow) -> str:
        return asyncio.run(agent.run("hi")).output

    run = ask.start()
    drain(app)

    assert FlowMisused.__name__ in (run.why or "")
    assert [] == done


def test_an_agent_outside_of_a_workflow_is_an_ordinary_one(done: list[str]):
    """Nothing is recorded, and a failure is not repeated."""
    agent = Agent(scripted(done, OSError("down"), "Fine."), name="plain", capabilities=[Durability()])

    with pytest.raises(OSError, match="down"):
        asyncio.run(agent.run("hi"))
    assert asyncio.run(agent.run("hi")).output == "Fine."


def test_a_result_that_cannot_be_written_ends_the_tool(app: App, done: list[str]):
    """What is no JSON is not tried again, although the tool has a policy."""
    agent = Agent(
        scripted(done, called(("make", {})), "Fine."), name="maker", capabilities=[Durability(tool_retry="5 1s")]
    )

    @agent.tool_plain
    def make() -> object:
        done.append("made")
        return object()

    @app.workflow()
    async def ask(flow: Flow) -> str:
        try:
            return (await agent.run("hi")).output
        except GiveUp as error:
            return f"{error}"

    run = ask.start()
    drain(app)

    assert "cannot be written as JSON" in run.result()
    assert done.count("made") == 1


numbers = iter(range(100))


class Order(BaseModel):
    """Arguments that a model writes in part."""

    words: set[str]
    number: int = Field(default_factory=lambda: next(numbers))


def test_arguments_that_differ_in_each_replay_are_no_other_call(app: App, done: list[str]):
    """A call is identified by what the model wrote: a default with the time of day holds no run."""
    agent = Agent(
        scripted(done, called(("order", {"order": {"words": ["a", "b", "c"]}})), "Fine."),
        name="orderer",
        capabilities=[Durability()],
    )

    @agent.tool_plain
    def order(order: Order) -> int:
        done.append("ordered")
        return order.number

    @app.workflow()
    async def ask(flow: Flow) -> str:
        output = (await agent.run("hi")).output
        await flow.sleep("1h")
        return output

    run = ask.start()
    drain(app)

    assert run.result() == "Fine."
    assert done.count("ordered") == 1
    replay(app, run.history())


@every_store
def test_a_tool_with_another_name_holds_the_run(app: App, weather: Cities, done: list[str]):
    """While a call of the tool is recorded, code without it runs nothing, and the text names both."""
    agents = [weather()]

    @app.workflow()
    async def ask(flow: Flow) -> str:
        return (await agents[-1].run("hi")).output

    run = ask.start()
    drain(app, within="30m")
    before = list(done)
    agents.append(weather(called(("forecast", {"city": "Rome"})), "Other.", tool="forecast"))
    drain(app, within="2h")

    assert before == done
    assert "call_tool:weather" in (app.runs.select(hold="held")[0].held or "")
    agents.append(weather())
    agents.pop(1)
    agents.pop()
    drain(app)
    assert run.result() == "Fine."
    assert len(done) == len(set(done))


class TestRecordedNames:
    """The names under which an agent records are data: changed ones hold all runs that wait."""

    def test_they_stay(self, app: App, done: list[str]):
        """All names of an agent with two toolsets, a validator, a handler and a second model."""

        async def handler(_: RunContext[None], events: AsyncIterator[AgentStreamEvent]) -> None:
            assert [each async for each in events]

        def second(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
            return ModelResponse(parts=[TextPart("second")])

        tools: FunctionToolset[None] = FunctionToolset(id="shop")

        @tools.tool_plain
        def buy(what: str) -> str:
            return what

        agent = Agent(
            TestModel(custom_output_text="first"),
            name="all",
            toolsets=[tools],
            capabilities=[Durability(models={"second": FunctionModel(second)})],
        )

        @agent.tool_plain
        def look(what: str) -> str:
            return what

        heard = Agent(TestModel(), name="heard", capabilities=[Durability(event_stream_handler=handler)])
        heard.tool_plain(look)

        @app.workflow()
        async def ask(flow: Flow) -> list[str]:
            outputs = [(await agent.run("hi")).output, (await agent.run("hi", model="second")).output]
            await heard.run("hi")
            return outputs

        run = ask.start()
        drain(app)

        assert run.result() == ["first", "second"]
        assert {
            "all__model.request",
            "all__model.request.second",
            "all__function_toolset__<agent>.call_tool:look",
            "all__function_toolset__shop.call_tool:buy",
            "heard__model.request_stream",
            "heard__function_toolset__<agent>.call_tool:look",
            "heard__event_stream_handler",
        } == {step.name for step in run.timeline()}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"model_retry": 3}, TypeError, "model_retry takes a policy or a directive, not 3"),
        ({"model_retry": "5 1q"}, Exception, "1q"),
        ({"tool_retry": 3}, TypeError, "tool_retry takes"),
        ({"tool_retry": {"look": 3}}, TypeError, r"tool_retry\['look'\] takes"),
        ({"tool_retry": {3: "3 1s"}}, Exception, "3 is not the name of a tool"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception], text: str):
    """A wrong option is refused where it is written."""
    with pytest.raises(error, match=text):
        Durability(**options)


def test_an_agent_needs_a_name(done: list[str]):
    """Steps are recorded under the name of the agent."""
    with pytest.raises(UserError, match="unique `name`"):
        Agent(scripted(done, "Fine."), capabilities=[Durability()])
