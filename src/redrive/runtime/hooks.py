"""Runs the start and stop hooks of an app for one worker.

Start hooks run in the order of the code, before the worker claims anything. What they return or yield becomes the
resources of the handlers. At the end the stop hooks run, the last one first, and then the generators of the start hooks
continue behind their ``yield``, the last one first. A stop hook that fails is logged, and the next ones run.
Each hook runs in a copy of the context variables of the worker, both parts of a generator in the same one.

``async def`` hooks run on the event loop. All other hooks of a worker run in one thread, because some resources, such
as a connection of sqlite3, must be closed in the thread that has opened them.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, cast

from redrive.app.attempts.resources import Hooks, Resources, takes_resources
from redrive.app.tasks.failures import carried
from redrive.errors import StartHookError
from redrive.errors.foreign import summary, trace
from redrive.observe.logs import Block
from redrive.runtime import log

# Seconds that one hook may take when the worker stops.
STOP_LIMIT = 10.0

_Opened: TypeAlias = Generator[Any, None, Any] | AsyncGenerator[Any, None]

_END = object()


class HookRunner:
    """The hooks of one worker.

    Attributes:
        resources: what the start hooks have returned or yielded so far.
    """

    def __init__(self, hooks: Hooks) -> None:
        self.resources: Resources = Resources()
        self._hooks = hooks
        self._found: dict[str, Any] = {}
        self._opened: list[tuple[Callable[..., Any], _Opened, contextvars.Context]] = []
        self._context = contextvars.copy_context()
        # The name lets the command line see that a hook does not return.
        self._thread = ThreadPoolExecutor(1, "redrive-handler-hook")

    async def start(self) -> None:
        """Run the start hooks. Raise `StartHookError` if one fails; the others do not run then."""
        for hook in self._hooks.start:
            try:
                value = await self._open(hook)
                self._add(hook, value)
            except StartHookError:
                raise
            except Exception as error:
                raise StartHookError(f"start hook {_name(hook)} failed: {summary(error)}{_place(error)}") from error

    async def _open(self, hook: Callable[..., Any]) -> object:
        call, context = functools.partial(hook, self.resources) if takes_resources(hook) else hook, self._context.copy()
        if inspect.isasyncgenfunction(hook):
            agen: AsyncGenerator[Any, None] = call()
            self._opened.append((hook, agen, context))
            return await _in_task(anext(agen, _END), context)
        if inspect.isgeneratorfunction(hook):
            gen: Generator[Any, None, Any] = call()
            self._opened.append((hook, gen, context))
            return await self._in_thread(lambda: next(gen, _END), context)
        return await self._call(hook, call, context)

    async def _call(self, hook: Callable[..., Any], call: Callable[[], Any], context: contextvars.Context) -> object:
        value = call() if inspect.iscoroutinefunction(hook) else await self._in_thread(call, context)
        return await _in_task(value, context) if inspect.isawaitable(value) else value

    async def _in_thread(self, call: Callable[[], object], context: contextvars.Context) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._thread, context.run, lambda: carried(call))

    def _add(self, hook: Callable[..., Any], value: object) -> None:
        if value is _END:
            raise StartHookError(f"start hook {_name(hook)} has a yield, but ended without reaching it")
        if value is None:
            return
        if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
            raise StartHookError(
                f"start hook {_name(hook)} returned {type(value).__name__}; it returns nothing, or a dictionary of "
                'resources by name, such as {"pool": pool}'
            )
        twice = [each for each in value if each in self._found]
        if twice:
            raise StartHookError(f"start hook {_name(hook)} returned {twice[0]!r}, which an earlier hook has returned")
        self._found |= value
        self.resources = Resources(self._found)

    async def stop(self) -> None:
        """Run the stop hooks and close the generators of the start hooks; errors are logged."""
        for hook in reversed(self._hooks.stop):
            call = functools.partial(hook, self.resources) if takes_resources(hook) else hook
            await self._finish(hook, self._call(hook, call, self._context.copy()))
        for hook, opened, context in reversed(self._opened):
            await self._finish(hook, self._close(hook, opened, context))
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _close(self, hook: Callable[..., Any], opened: _Opened, context: contextvars.Context) -> None:
        if inspect.isasyncgen(opened):
            more = await _in_task(anext(opened, _END), context)
            await _in_task(opened.aclose(), context)
        else:
            generator = cast("Generator[Any, None, Any]", opened)
            more = await self._in_thread(lambda: next(generator, _END), context)
            await self._in_thread(generator.close, context)
        if more is not _END:
            log.error("start hook %s yields a second time; the worker reads the first yield only", _name(hook))

    async def _finish(self, hook: Callable[..., Any], running: Awaitable[object]) -> None:
        try:
            async with asyncio.timeout(STOP_LIMIT) as scope:
                await running
        except Exception as error:  # noqa: BLE001 - a hook of the user may raise anything
            if scope.expired():
                log.error("hook %s has not ended within %g s; the worker stops without it", _name(hook), STOP_LIMIT)
            else:
                why = summary(error)
                log.error("hook %s failed while the worker stopped: %s%s", _name(hook), why, Block(trace(error)))


async def _in_task(running: Awaitable[Any], context: contextvars.Context) -> object:
    async def run() -> object:
        return await running

    return await asyncio.create_task(run(), context=context)


def _name(hook: Callable[..., Any]) -> str:
    return f"{hook.__module__}.{hook.__qualname__}"


def _place(error: Exception) -> str:
    """Return the file and the line of an error, as an addition to a message."""
    steps = traceback.extract_tb(error.__traceback__)
    own = [each for each in steps if "/redrive/runtime/" not in each.filename.replace("\\", "/")]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
