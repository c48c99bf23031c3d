"""Durable agents: Pydantic AI inside a workflow.

::

    agent = Agent("openai:gpt-5", name="support", capabilities=[Durability(tool_retry={"lookup": "3 1s"})])


    @app.workflow(version=1)
    async def support(flow: redrive.Flow, question: str) -> str:
        return (await agent.run(question)).output

In the body of an ``async def`` workflow each model request, each tool call, each discovery of tools and each event for
a handler is a named step; elsewhere the agent is an ordinary one. May import: `redrive.runtime` and below, and
pydantic-ai (the extra ``pydantic-ai``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

from redrive.app.flows.flow import Flow, current_flow
from redrive.app.flows.flow_steps import step_policy
from redrive.app.loading import REFUSAL
from redrive.contrib import extra
from redrive.errors import ConfigurationError, FlowMisused, GiveUp, TimedOut
from redrive.errors.foreign import attribute, is_a
from redrive.observe.logs import logger
from redrive.policy import Failure, Policy, hints
from redrive.policy.failure import Lasting
from redrive.retrying import http
from redrive.runtime.runs.refused import BodyRefusal

with extra("pydantic-ai"):
    from pydantic_ai import Agent, AgentRunResult, ModelResponse, RunContext
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.capabilities import WrapRunHandler
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        DurabilityEngineSpec,
        DurableOperationId,
        ExternalEventError,
        ExternalEventWaiter,
        JournalCallableOperationBackend,
        RoleBasedOperationConfig,
        ToolsetCallToolId,
        ToolsetValidateToolArgumentsId,
        conversation_id_from_run_id,
        external_event_scope,
        record_durable_unit,
        replay_scope,
    )
    from pydantic_ai.exceptions import (
        AgentRunError,
        ConcurrencyLimitExceeded,
        ModelAPIError,
        ModelHTTPError,
        ModelQuotaExceededError,
        ModelRequestRejectedError,
        ModelRequestTimeout,
        UnexpectedModelBehavior,
        UserError,
    )
    from pydantic_ai.models import Model
    from pydantic_ai.tools import AgentDepsT, ToolDefinition

log = logger("redrive.agents")

__all__ = ["Durability", "failure_of"]

#: Errors that another attempt would meet again, and those of their subclasses that it may not meet.
_LASTING = (AgentRunError, UserError)
_PASSING = (ConcurrencyLimitExceeded, ModelAPIError, UnexpectedModelBehavior)
_REJECTED = (ModelQuotaExceededError, ModelRequestRejectedError, ModelRequestTimeout)


class Durability(BaseDurabilityCapability[AgentDepsT]):
    """A capability of an agent: in a workflow, the model requests and tool calls of the agent are steps of the run.

    What is recorded is not executed again. While a step waits for its next attempt, or the run for an approval, no
    worker is occupied. The name of the agent, the ids of its toolsets and the names of its tools are recorded names: if
    they change, runs that wait are held.

    Args:
        model_retry: the policy or directive of model requests. An answer that the next request would meet again, such
            as a 400, ends it at once, and hints of the service are obeyed; see `failure_of`. None: one attempt.
        tool_retry: the policy or directive of tool calls, or a mapping of names of tools to those; None, and a tool
            that the mapping does not name: one attempt, because the effects of the tool are unknown. A name that the
            agent has no tool for is a warning, after its first run in a workflow: tools may come from elsewhere.
        models: further models by their ids, for `Agent.run(model=...)`.
        event_stream_handler: receives the events of the agent. Those of a model's stream arrive inside of the step of
            the request: once, and again if the process dies in it. Each other event has a step of its own.
        name: the name of the agent in the names of steps; by default the agent's.

    Raises:
        PolicyValueError: a policy is not valid for a step.
        PolicySyntaxError: a directive cannot be read.
        ConfigurationError: ``tool_retry`` has a key that is not a name of a tool.
        TypeError: a policy is neither a policy nor a directive.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="redrive",
        durable_unit_noun="step",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        # What cannot be written as JSON cannot be written at the next attempt either.
        serialization_failure=lambda error: GiveUp(f"the result of a step cannot be written as JSON: {error}"),
        # The calls of tools that come with a run would not be recorded.
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        # The body starts no server: a pass that only replays needs none.
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
    )

    def __init__(
        self,
        *,
        model_retry: Policy | str | None = "5 1s 1m",
        tool_retry: Policy | str | Mapping[str, Policy | str] | None = None,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._model_retry = _policy(model_retry, "model_retry")
        named = tool_retry if isinstance(tool_retry, Mapping) else {}
        self._tool_retry = None if isinstance(tool_retry, Mapping) else _policy(tool_retry, "tool_retry")
        wrong = next((key for key in named if not isinstance(key, str) or not key), None)
        if wrong is not None:
            raise ConfigurationError(f"Durability: tool_retry: {wrong!r} is not the name of a tool")
        self._tool_retries = {tool: _policy(each, f"tool_retry[{tool!r}]") for tool, each in named.items()}
        self._unmet = set(self._tool_retries)
        self._offered: set[str] = set()

    @property
    def in_durable_context(self) -> bool:
        """True in the body of an ``async def`` workflow, and in its tasks."""
        return current_flow() is not None

    def get_default_run_id(self) -> str | None:
        """Return the id of the next agent run of a workflow, which is the same in each replay; None elsewhere."""
        flow = current_flow()
        return None if flow is None else f"{flow.workflow}/{flow.id}/{_numbered(flow, 'run')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return the id of the conversation that an agent run begins; None outside of a workflow."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def get_durable_operation_backend(self) -> _Steps:
        """Return what records the operations of the agent."""

        def of_tool(_id: DurableOperationId, _tool: object, name: str) -> Policy | None:
            return self._tool_retries.get(name, self._tool_retry)

        config: RoleBasedOperationConfig[Policy | None] = RoleBasedOperationConfig(
            model=self._model_retry, event=None, capability=None, tool=self._tool_retry, resolve_tool=of_tool
        )
        return _Steps(agent_name=self.name, default_model_id=self.default_model_id, config=config)

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Run the agent; in a workflow with durable waits, and without the telemetry of what is only replayed.

        Raises:
            FlowMisused: the workflow is a ``def``, which has no named steps.
        """
        flow = current_flow()
        if flow is None:
            if isinstance(REFUSAL.get(), BodyRefusal):
                raise FlowMisused(
                    f"the agent {self.name!r} runs in the body of a `def` workflow, which cannot record its steps: "
                    "write `async def`, and `await agent.run(...)`"
                )
            return await super().wrap_run(ctx, handler=handler)
        pause = flow.named(f"{self.name}__sleep")

        async def sleep(seconds: float) -> None:
            await pause.sleep(timedelta(seconds=seconds))

        with ExitStack() as scopes:
            scopes.enter_context(replay_scope())
            scopes.enter_context(external_event_scope(_Waiter(flow)))
            scopes.enter_context(Agent.using_sleep(sleep))
            result = await super().wrap_run(ctx, handler=handler)
        self._warn_of_unmet()
        return result

    async def prepare_tools(self, ctx: RunContext[AgentDepsT], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Note the names of the tools that the model is offered."""
        self._offered.update(each.name for each in tool_defs)
        return await super().prepare_tools(ctx, tool_defs)

    def _warn_of_unmet(self) -> None:
        """Warn once, after a whole run of the agent, of policies for tools that it does not have."""
        unmet, self._unmet = self._unmet - self._offered, set()
        if unmet:
            log.warning(
                "the agent %s has a policy for a tool that it was not offered: tool_retry names %s, its tools are %s",
                self.name,
                ", ".join(sorted(unmet)),
                ", ".join(sorted(self._offered)) or "none",
            )


class _Steps(JournalCallableOperationBackend[Policy | None]):
    """Executes each operation of an agent as a named step."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: Policy | None,
    ) -> object:
        """Execute an operation once, or return what is recorded of it."""
        flow = current_flow()
        assert flow is not None  # asked for in a durable context only
        # The cache key has clock times and objects of this process: what identifies a step is the same in each replay.
        is_call = isinstance(operation_id, ToolsetCallToolId | ToolsetValidateToolArgumentsId)
        inputs = _call(*cache_key) if is_call else None
        executed = False

        async def step() -> Any:  # noqa: ANN401 - as the codec has written it
            nonlocal executed
            executed = True
            return await body()

        try:
            result: object = await flow.named(name, inputs=inputs).step(step, retry=config)
        except Exception:
            record_durable_unit(executed=executed)
            raise
        record_durable_unit(executed=executed)
        return result


def _call(name: object, _arguments: object, ctx: object, *_: object) -> list[object]:
    """Return what identifies a tool call: the tool, the arguments as the model wrote them, and the id of the call.

    The checked arguments may have what differs in each replay: times of defaults, the order of a set.
    """
    assert isinstance(ctx, RunContext)
    calls = (
        part
        for message in reversed(ctx.messages)
        if isinstance(message, ModelResponse)
        for part in message.tool_calls
        if part.tool_call_id == ctx.tool_call_id
    )
    call = next(calls, None)
    return [name, None if call is None else call.args_as_json_str(), ctx.tool_call_id]


class _Waiter(ExternalEventWaiter):
    """Waits for an answer from outside as a run waits for a signal; the token ends with the name of the signal."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    async def wait(self, name: str, *, ask: Callable[[str], Awaitable[Any]], timeout: timedelta | None) -> Any:  # noqa: ANN401, ASYNC109 - as in the base
        """Ask for an answer in a step, and wait for it."""
        flow = self._flow
        event = f"{name}.{_numbered(flow, f'wait {name}')}"
        token = f"{flow.workflow}/{flow.id}/{event}"

        async def asked() -> Any:  # noqa: ANN401 - JSON
            return await ask(token)

        early = await flow.named(f"ask {event}").step(asked)
        if early is not None:
            return early
        try:
            return await flow.named(event).wait_for(event, timeout=timeout)
        except TimedOut as late:
            raise ExternalEventError(f"no signal {event!r} arrived within {timeout}") from late


#: What was counted in each pass that runs.
_counts: WeakKeyDictionary[Flow, Counter[str]] = WeakKeyDictionary()


def _numbered(flow: Flow, what: str) -> int:
    """Return 1 for the first of its kind in a pass, and so on; a replay counts alike."""
    counts = _counts.setdefault(flow, Counter())
    counts[what] += 1
    return counts[what]


def _policy(retry: object, option: str) -> Policy | None:
    if retry is None:
        return None
    if not isinstance(retry, Policy | str):
        raise TypeError(f"Durability: {option} takes a policy or a directive, not {retry!r}")
    return step_policy(retry, None, f"Durability: {option}")


def failure_of(error: BaseException) -> Failure | None:
    """Describe an error of Pydantic AI, for any policy that meets one; return None for other errors.

    The status and the headers of a `ModelHTTPError` are read as `redrive.contrib.http` reads those of AI services. A
    request that was rejected, a quota that is used up, a limit of usage and a `UserError` would come again: a policy
    without ``on`` does not retry them.
    """
    status = attribute(error, "status_code") if is_a(error, ModelHTTPError) else None
    if isinstance(status, int) and not is_a(error, ModelQuotaExceededError):
        headers = attribute(error, "headers") or ()
        found = http.failure_of("POST", status, headers, error=error, hints=hints.ai)
        if found is not None:
            return found
    is_lasting = is_a(error, _LASTING) and not is_a(error, _PASSING)
    if is_lasting or is_a(error, _REJECTED):
        failure = Failure.of(error)
        return failure._replace(lasting=Lasting(f"{type(error).__name__} would come again", failure.stage))
    return None
