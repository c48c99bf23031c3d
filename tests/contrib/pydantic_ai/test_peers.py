"""The cases of other engines' integrations with Pydantic AI: what they promise, and what redrive does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    CancellationToken,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    UserError,
)
from pydantic_ai._agent_graph import _agent_graph_sleep
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets._dynamic import DynamicToolset

from redrive import App, Filter, Flow
from redrive.contrib.pydantic_ai import Durability
from redrive.engine.lifecycle import FINAL
from redrive.testing import drain, replay
from tests.contrib.pydantic_ai.conftest import called, scripted


def held_in(app: App, body: Any) -> Any:
    """Run a body as a workflow that sleeps behind it, so that it is replayed, and return its run."""

    @app.workflow(name="body")
    async def workflow(flow: Flow) -> Any:
        result = await body()
        await flow.sleep("1h")
        return result

    run = workflow.start()
    drain(app)
    replay(app, run.history())
    return run


@dataclass
class Deps:
    """Dependencies that cannot be written."""

    lock: Any


def test_dependencies_need_not_be_written(app: App, done: list[str]):
    """A step runs in the process of the body, so that dependencies may be any objects."""
    agent = Agent(scripted(done, called(("use", {})), "Fine."), name="a", deps_type=Deps, capabilities=[Durability()])

    @agent.tool
    def use(ctx: RunContext[Deps]) -> str:
        with ctx.deps.lock:
            done.append("used")
        return "used"

    async def body() -> str:
        return (await agent.run("hi", deps=Deps(Lock()))).output

    assert held_in(app, body).result() == "Fine."
    assert done.count("used") == 1


def test_a_dynamic_toolset_is_resolved_in_a_step(app: App, done: list[str]):
    """What a toolset offers is recorded, and its tools are steps."""

    def offer(_: RunContext[None]) -> FunctionToolset[None]:
        done.append("offered")

        def use() -> str:
            done.append("used")
            return "used"

        return FunctionToolset([use])

    agent = Agent(
        scripted(done, called(("use", {})), "Fine."),
        name="a",
        toolsets=[DynamicToolset(offer, id="dynamic")],
        capabilities=[Durability()],
    )

    async def body() -> str:
        return (await agent.run("hi")).output

    run = held_in(app, body)

    assert run.result() == "Fine."
    assert done.count("used") == 1
    before = list(done)
    replay(app, run.history())
    assert before == done
    assert {
        "a__dynamic_toolset__dynamic.get_tools",
        "a__dynamic_toolset__dynamic.call_tool:use",
        "a__model.request",
        "sleep",
    } == {step.name for step in run.timeline()}


def test_tools_that_are_given_to_a_run_are_refused(app: App, done: list[str]):
    """A toolset that the agent did not have when it was made would not be recorded: its tools are not called."""
    agent = Agent(scripted(done, called(("use", {})), "Fine."), name="a", capabilities=[Durability()])

    def use() -> str:
        done.append("used")
        return "used"

    async def body() -> str:
        with pytest.raises(UserError, match="cannot be added at runtime with redrive"):
            await agent.run("hi", toolsets=[FunctionToolset([use], id="late")])
        return "refused"

    assert held_in(app, body).result() == "refused"
    assert [] == done


def second(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Answer as another model."""
    return ModelResponse(parts=[TextPart("second")])


def test_a_model_of_a_run_is_one_that_was_registered(app: App, done: list[str]):
    """Another model is named by its id or by its instance; one that is unknown is refused."""
    other = FunctionModel(second)
    agent = Agent(scripted(done, "first"), name="a", capabilities=[Durability(models={"other": other})])

    async def body() -> list[str]:
        outputs = [(await agent.run("hi", model=model)).output for model in ("other", other)]
        with pytest.raises(UserError, match="was not registered"):
            await agent.run("hi", model=TestModel())
        return outputs

    assert held_in(app, body).result() == ["second", "second"]
    assert [] == done


@pytest.mark.parametrize("what", ["enqueue", "cancel"])
def test_what_a_step_cannot_record_is_refused_in_it(app: App, done: list[str], what: str):
    """A tool may neither add a message nor cancel the run of the agent: a replay would not do it again."""
    agent = Agent(scripted(done, called(("use", {})), "Fine."), name="a", capabilities=[Durability()])

    @agent.tool
    def use(ctx: RunContext[None]) -> str:
        getattr(ctx, what)(*(["later"] if what == "enqueue" else []))
        return "used"

    async def body() -> str:
        with pytest.raises(UserError, match="durable step"):
            await agent.run("hi")
        return "refused"

    assert held_in(app, body).result() == "refused"


def test_a_cancellation_token_is_refused(app: App, done: list[str]):
    """A token of this process would cancel a run of an agent where no replay does."""
    agent = Agent(scripted(done, "Fine."), name="a", capabilities=[Durability()])

    async def body() -> str:
        with pytest.raises(UserError, match="redrive"):
            await agent.run("hi", cancellation_token=CancellationToken())
        return "refused"

    assert held_in(app, body).result() == "refused"
    assert [] == done


async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
    """Answer in parts."""
    for word in ("one ", "two"):
        yield word


def test_a_stream_arrives_as_a_whole(app: App):
    """`run_stream` and `iter` work in a workflow: the answer is recorded, and then given in one part."""
    agent = Agent(FunctionModel(stream_function=stream), name="a", capabilities=[Durability()])

    async def body() -> list[str]:
        async with agent.run_stream("hi") as result:
            parts = [part async for part in result.stream_text(debounce_by=None)]
        async with agent.iter("hi") as run:
            async for node in run:
                if Agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as streamed:
                        parts += [part async for part in streamed.stream_text(debounce_by=None)]
        return parts

    assert held_in(app, body).result() == ["one two", "one two"]


class Answer(BaseModel):
    """A structured answer."""

    words: list[str]


def test_an_output_is_checked_anew_in_each_pass(app: App, done: list[str]):
    """A structured output is read from the recorded answer; `run_id` may be given."""
    agent = Agent(
        TestModel(custom_output_args={"words": ["a"]}), name="a", output_type=Answer, capabilities=[Durability()]
    )

    async def body() -> list[Any]:
        result = await agent.run("hi", run_id="mine")
        return [result.output.words, result.run_id]

    assert held_in(app, body).result() == [["a"], "mine"]


def test_a_cancelled_run_ends_the_agent(app: App, done: list[str]):
    """Cancelling a run whose agent waits for a tool ends it; the tool is not called again."""
    agent = Agent(scripted(done, called(("use", {})), "Fine."), name="a", capabilities=[Durability(tool_retry="5 1h")])

    @agent.tool_plain
    def use() -> str:
        done.append("used")
        raise OSError("down")

    @app.workflow()
    async def ask(flow: Flow) -> str:
        return (await agent.run("hi")).output

    run = ask.start()
    drain(app, within="30m")
    run.cancel("no longer needed")
    drain(app)

    assert run.state in FINAL
    assert run.state == "cancelled"
    assert ["model 0", "used"] == done


def test_a_paused_run_goes_on_where_it_was(app: App, done: list[str]):
    """An agent whose run is paused between two attempts of a tool does nothing twice when it is resumed."""
    agent = Agent(scripted(done, called(("use", {})), "Fine."), name="a", capabilities=[Durability(tool_retry="5 1h")])
    failures = [OSError("down")]

    @agent.tool_plain
    def use() -> str:
        if failures:
            raise failures.pop()
        done.append("used")
        return "used"

    @app.workflow()
    async def ask(flow: Flow) -> str:
        return (await agent.run("hi")).output

    run = ask.start()
    drain(app, within="30m")
    run.pause("maintenance")
    drain(app, within="5h")
    assert ["model 0"] == done
    run.resume()
    drain(app)

    assert run.result() == "Fine."
    assert ["model 0", "used", "model 1"] == done


def test_a_fork_repeats_what_follows_its_step(app: App, done: list[str]):
    """A fork from a tool call keeps the model's answer before it, and calls the tool and the model anew."""
    agent = Agent(scripted(done, called(("use", {})), "Fine.", "Fine."), name="a", capabilities=[Durability()])

    @agent.tool_plain
    def use() -> str:
        done.append("used")
        return "used"

    @app.workflow()
    async def ask(flow: Flow) -> str:
        return (await agent.run("hi")).output

    run = ask.start()
    drain(app)
    step = next(each for each in run.timeline() if "call_tool" in each.name)
    fork = run.fork(step.path)
    drain(app)

    assert fork.result() == "Fine."
    assert ["model 0", "used", "model 1", "used", "model 1"] == done


def test_a_dead_run_that_is_redriven_repeats_the_failed_tool_only(app: App, done: list[str]):
    """A tool that fails for good ends the run; after `redrive` it is called anew, and the model is not asked again."""
    agent = Agent(scripted(done, called(("use", {})), "Fine."), name="a", capabilities=[Durability()])
    failures = [OSError("down")]

    @agent.tool_plain
    def use() -> str:
        done.append("used")
        if failures:
            raise failures.pop()
        return "used"

    @app.workflow()
    async def ask(flow: Flow) -> str:
        return (await agent.run("hi")).output

    run = ask.start()
    drain(app)
    assert run.state == "dead"
    app.jobs.redrive(Filter(ids=(run.job.id,)))
    drain(app)

    assert run.result() == "Fine."
    assert ["model 0", "used", "used", "model 1"] == done


def test_what_is_replayed_makes_no_span_again(app: App, done: list[str]):
    """Each request to the model has one span, however often the body is replayed."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    settings = InstrumentationSettings(tracer_provider=provider)
    agent = Agent(
        scripted(done, called(("use", {})), "Fine."),
        name="a",
        capabilities=[Instrumentation(settings=settings), Durability(tool_retry="5 1h")],
    )
    failures = [OSError("down"), OSError("down")]

    @agent.tool_plain
    def use() -> str:
        if failures:
            raise failures.pop()
        return "used"

    async def body() -> str:
        return (await agent.run("hi")).output

    run = held_in(app, body)
    provider.shutdown()

    assert run.result() == "Fine."
    assert ["model 0", "model 1"] == done
    assert sum(span.name.startswith("chat") for span in spans.get_finished_spans()) == 2


def test_waits_of_the_agent_are_sleeps_of_the_run(app: App, done: list[str]):
    """Where Pydantic AI waits between two requests, the run holds no worker."""
    agent = Agent(scripted(done, "Fine."), name="a", capabilities=[Durability()])

    @agent.instructions
    async def instruct() -> str:
        await _agent_graph_sleep(3600)
        return "Wait."

    @app.workflow()
    async def ask(flow: Flow) -> str:
        return (await agent.run("hi")).output

    run = ask.start()
    took = drain(app).took

    assert run.result() == "Fine."
    assert took.total_seconds() >= 3600
    assert "a__sleep" in {step.name for step in run.timeline()}


def test_an_agent_in_a_tool_of_a_thread_belongs_to_the_step(app: App, done: list[str]):
    """A `def` tool runs in a thread; an agent that it runs there is an ordinary one."""
    inner = Agent(scripted(done, "inner"), name="inner", capabilities=[Durability()])
    outer = Agent(scripted(done, called(("delegate", {})), "outer"), name="outer", capabilities=[Durability()])

    @outer.tool_plain
    def delegate() -> str:
        return asyncio.run(inner.run("hi")).output

    async def body() -> str:
        return (await outer.run("hi")).output

    run = held_in(app, body)

    assert run.result() == "outer"
    assert not [step.name for step in run.timeline() if "inner" in step.name]
    assert done.count("model 0") == 2


def test_agents_run_in_branches_of_a_flow(app: App, done: list[str]):
    """Runs of one agent in `flow.gather`, one of which waits for an hour, do each thing once."""
    agent = Agent(
        TestModel(custom_output_text="Fine."), name="a", deps_type=str, capabilities=[Durability(tool_retry="5 1h")]
    )
    failures = [OSError("down")]

    @agent.tool
    async def use(ctx: RunContext[str]) -> str:
        if failures:
            raise failures.pop()
        done.append(ctx.deps)
        return "used"

    @app.workflow()
    async def ask(flow: Flow) -> list[str]:
        async def branch(deps: str) -> str:
            return (await agent.run("hi", deps=deps)).output

        return list(await flow.gather(branch("one"), branch("two"), branch("three")))

    run = ask.start()
    drain(app)

    assert run.result() == ["Fine."] * 3
    assert ["one", "three", "two"] == sorted(done)
    replay(app, run.history())


def test_a_time_limit_of_the_body_ends_the_agent_in_each_replay(app: App, done: list[str]):
    """A tool that is cut off by `asyncio.timeout` is dropped, and not called again."""
    agent = Agent(scripted(done, called(("use", {})), "Fine."), name="a", capabilities=[Durability()])

    @agent.tool_plain
    async def use() -> str:
        done.append("used")
        await asyncio.Event().wait()
        return "never"

    async def body() -> str:
        try:
            async with asyncio.timeout(0.5):
                await agent.run("hi")
        except TimeoutError:
            return "late"
        return ""

    run = held_in(app, body)

    assert run.result() == "late"
    assert ["model 0", "used"] == done
