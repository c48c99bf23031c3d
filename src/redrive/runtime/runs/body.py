"""The calls that a body makes of its flow, each checked against the branch that makes it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from typing import Any, NoReturn

from redrive.app.flows.calls import GatherCall, Key, OneCall
from redrive.app.flows.flow_call import FlowCall
from redrive.app.flows.rng import FlowRandom
from redrive.app.loading import REFUSAL
from redrive.engine.outcome import Restarted
from redrive.engine.replay import StepRequest
from redrive.engine.runs import StepKind
from redrive.engine.steps import NewStep
from redrive.errors import FlowMisused, Parking
from redrive.runtime.runs.branches import CURRENT, IN_STEP, Branch, ExitInTask, carrying
from redrive.runtime.runs.conductor import Conductor


class BodyCalls:
    """The side of a conductor that `redrive.Flow` and `redrive.SyncFlow` call; see `ConductorProtocol`.

    Args:
        conductor: the pass of the body.
        carry_out: carries out what a branch asks for.
    """

    def __init__(
        self, conductor: Conductor, carry_out: Callable[[Conductor, Branch, OneCall], Coroutine[Any, Any, Any]]
    ) -> None:
        self._pass = conductor
        self._carry_out = carry_out

    @property
    def parking(self) -> bool:
        """True while the body is torn down."""
        return self._pass.waits.end is not None

    @property
    def in_step(self) -> bool:
        """True in the function of a step."""
        return IN_STEP.get() is not None

    @property
    def identity(self) -> tuple[str, str, int]:
        """The workflow, the id and the version of the run."""
        return self._pass.run_record.workflow, self._pass.run_record.id, self._pass.run_record.version

    def announce(self, call: FlowCall[Any]) -> None:
        """Record that the body has made a call that it must await."""
        self._pass.announced.add(call)

    async def perform(self, asked: OneCall, call: FlowCall[Any] | None = None) -> Any:
        """Carry out what a coroutine asks for."""
        if call is not None:
            if call not in self._pass.announced:
                raise FlowMisused(f"{asked.line}: a call of the flow can be awaited once")
            self._pass.announced.discard(call)
        if asked.key is not None:
            return await self._perform_named(asked, asked.key)
        branch = self._current(asked.line)
        # Steps write, and so does their record.
        refusal = REFUSAL.set(None)
        branch.calls = True
        try:
            return await self._carried(branch, asked)
        except asyncio.CancelledError:
            branch.cut_off = asked.line
            raise
        finally:
            branch.calls = False
            REFUSAL.reset(refusal)
            if isinstance(asked, GatherCall):
                for work in asked.branches:
                    self._pass.forget(work)

    async def _perform_named(self, asked: OneCall, key: Key) -> Any:
        """Carry out what any task of the body asks for."""
        parent = self._opener(asked.line)
        refusal = REFUSAL.set(None)
        try:
            with self._pass.name_calls().opened(parent, asked, key) as branch:
                token = CURRENT.set(branch)
                try:
                    return await self._carried(branch, asked)
                finally:
                    CURRENT.reset(token)
        finally:
            REFUSAL.reset(refusal)

    async def _carried(self, branch: Branch, asked: OneCall) -> Any:
        """Carry out what a branch asks for; beside named calls the end waits for its turn."""
        try:
            self._pass.check_open(branch)
            self._pass.receipts.goes_on(branch)
            value = await self._carry_out(self._pass, branch, asked)
        except BaseException as error:
            if self._pass.keyed is not None:
                await self._pass.keyed.failed(branch, error)
            raise
        if self._pass.keyed is not None:
            await self._pass.keyed.turn(branch)
        return value

    def perform_in_thread(self, asked: OneCall) -> Any:
        """Carry out what a thread asks for."""
        branch = self._current(asked.line)
        helper = carrying(self._in_helper(branch, asked))
        try:
            return asyncio.run_coroutine_threadsafe(helper, self._pass.loop).result()
        except ExitInTask as exit_in_task:
            raise exit_in_task.error from None

    async def _in_helper(self, branch: Branch, asked: OneCall) -> Any:
        # The task has a copy of the context of the body.
        REFUSAL.set(None)
        if branch.thread is None:
            # Its branch was cut off meanwhile.
            raise asyncio.CancelledError
        branch.task = helper = asyncio.current_task()
        assert helper is not None  # a coroutine runs in a task
        self._pass.helpers.add(helper)
        try:
            return await self._carried(branch, asked)
        finally:
            self._pass.helpers.discard(helper)

    def _current(self, line: str) -> Branch:
        """Return the branch that calls, or raise the reason why it must not."""
        branch = self._present(line)
        if branch is None or not branch.is_current or branch not in self._pass.branches:
            raise FlowMisused(
                f"{line}: called from a task or a thread outside the flow, so that the order of its steps "
                "would change; use flow.gather(), flow.map() or flow.first() in place of asyncio.create_task(), "
                "asyncio.gather() and threads, or flow.named(...) for calls from asyncio tasks"
            )
        return branch

    def _opener(self, line: str) -> Branch:
        """Return the branch of the task that makes a named call, or raise the reason why it must not."""
        branch = self._present(line)
        if branch is None or branch not in self._pass.branches or asyncio.get_running_loop() is not self._pass.loop:
            raise FlowMisused(
                f"{line}: called outside of the body of the workflow, or after the branch has ended in which its task "
                "was started"
            )
        return branch

    @staticmethod
    def _present(line: str) -> Branch | None:
        """Return the branch of the present context; raise if it is that of a step."""
        step = IN_STEP.get()
        if step is not None:
            raise FlowMisused(
                f"{line}: a step inside the step {step!r}: only the body and its branches call the flow; return from "
                "the step first"
            )
        return CURRENT.get()

    # ---------------------------------------------------------------- answers without a wait

    def set(self, name: str, raw: bytes) -> None:
        """Store a value of the run with its next row."""
        self._pass.writes.rows.set(name, raw)

    def now(self) -> datetime:
        """Return the time of the last row that the branch has reached."""
        return self._current("flow.now()").at

    def random(self) -> FlowRandom:
        """Return the random number generator of the branch."""
        return self._current("flow.random").random

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        """Return a block in which no cancellation is delivered."""
        branch = self._current("flow.shield()")
        branch.shields += 1
        try:
            yield
        finally:
            branch.shields -= 1

    def patched(self, name: str, line: str) -> bool:
        """Return True if the run takes a patch."""
        branch = self._current(line)
        self._pass.check_open(branch)
        request = StepRequest(StepKind.PATCH, name, line=line)
        answer = self._pass.replay.ask(branch.path, branch.position + 1, request)
        if answer.row is not None:
            branch.position = answer.position
            return True
        if not self._pass.replay.is_new(branch.path, answer.position) or branch.replay_only:
            return False
        branch.position = answer.position
        self._pass.writes.attach(branch, NewStep(answer.path, StepKind.PATCH, name, result=b"true"))
        return True

    def restart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """End this epoch of the run, and begin the next one with these arguments."""
        branch = self._current("flow.restart()")
        self._pass.check_open(branch)
        if branch.path:
            raise FlowMisused("flow.restart() belongs into the body itself, not into a branch")
        payload = self._pass.workflow.signature.write(args, kwargs)
        received = (*(each.row for each in branch.held), *self._pass.writes.rows.received())
        self._pass.waits.close(Restarted(payload, self._pass.writes.rows.changed_values(), received))
        raise Parking
