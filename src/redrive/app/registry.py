"""The tasks of an app: how functions become tasks, crons and refreshes, and whether those that name each other fit."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from redrive import errors
from redrive.app import arguments
from redrive.app.flows.workflow import Workflow
from redrive.app.loading import import_module
from redrive.app.payload import Signature
from redrive.app.protocol import AppProtocol
from redrive.app.recurring.cron import Cron
from redrive.app.recurring.refresh import Refresh
from redrive.app.tasks.catch import catches, check_catch
from redrive.app.tasks.enqueue import Options, durable_policy
from redrive.app.tasks.task import Executor, Task, Traits
from redrive.app.topics.subscription import Subscription
from redrive.app.topics.topic import Retention, Topic
from redrive.clock import SystemClock
from redrive.engine import topics
from redrive.engine.frozen import freeze
from redrive.engine.lease import limit_of
from redrive.engine.topics import DeadLetter
from redrive.policy import Policy
from redrive.policy.duration import Duration
from redrive.policy.fields import span
from redrive.schedule import Schedule
from redrive.stores.operations.topics.subscriptions import in_circle
from redrive.stores.urls import cleared

if TYPE_CHECKING:
    from redrive.app.machines.machine import Machine
    from redrive.app.machines.state import StateTask

K = TypeVar("K", bound=Task[Any, Any, Any])

# The options of a subscription that are those of a task.
_OF_SUBSCRIPTIONS = ("retry", "timeout", "soft_timeout", "idempotent", "keep_for", "search")

# The modules between a call of the user and its function here.
_OURS = ("redrive.app", "redrive.seams")

FOREVER = "forever"
"""The value of ``keep_for`` under which jobs are never deleted."""


class Declaration(msgspec.Struct, frozen=True):
    """The arguments of a decorator; see `redrive.App.task`."""

    retry: Policy | str | None = None
    queue: str = "default"
    timeout: Duration | None = None
    name: str | None = None
    priority: int = 0
    idempotent: bool | None = None
    soft_timeout: Duration | None = None
    keep_for: Duration | None = None
    aka: str | Iterable[str] = ()
    deadline: Duration | None = None
    executor: Executor = "thread"
    search: Iterable[str] = ()


class Registry:
    """The tasks of one app by name, and how functions become tasks.

    The modules of ``include`` are imported before the tasks are checked.
    """

    def __init__(self, app: AppProtocol, include: Iterable[str], *, default: Policy | str | None = None) -> None:
        self._app = app
        self._default = None if default is None else _read_default(default, "App(retry=...)")
        self._default_of: dict[str, Policy] = {}
        self.tasks: dict[str, Task[Any, Any, Any]] = {}
        self.machines: dict[str, Machine] = {}
        self.topics: dict[str, Topic[Any]] = {}
        self._include = arguments.checked_texts(include, "include")
        self._checked = 0
        self._served: frozenset[str] = frozenset()
        self._served_of: tuple[str, ...] = ()

    def task(self, function: Callable[..., Any], declaration: Declaration) -> Task[Any, Any, Any]:
        """Register a function as a task."""
        arguments.checked_function(function, "task", "@app.task or @app.task(retry=..., queue=...)")
        if declaration.executor != "thread":
            # Only few programs need it.
            from redrive.app.importable import checked_executor

            checked_executor(declaration.executor, function, declaration.name or function.__name__)
        return self._define(function, declaration, Task)

    def cron(self, function: Callable[..., Any], declaration: Declaration, **settings: object) -> Cron[Any, Any, Any]:
        """Register a function as a cron."""
        _check_function(function, "cron", declaration.name)
        cron: Cron[Any, Any, Any] = self._define(function, declaration, Cron, **settings)
        try:
            _ = cron.signature.hints
        except errors.TaskDefinitionError:
            pass  # annotations that name what is defined further down are checked at the first use
        else:
            cron.check_signature()
        self._warn_if_over(f"cron {cron.name!r}", cron.definition.schedule)
        from redrive.schedule.cron import uneven

        odd = uneven(cron.definition.pattern)
        if odd is not None:
            warnings.warn(f"cron {cron.name!r}: {odd}", RuntimeWarning, stacklevel=3)
        return cron

    def workflow(
        self, function: Callable[..., Any], declaration: Declaration, **settings: object
    ) -> Workflow[Any, Any, Any]:
        """Register a function as a workflow, or as another version of one."""
        _check_function(function, "workflow", declaration.name)
        made: Workflow[Any, Any, Any] = self._define(function, declaration, Workflow, **settings)
        try:
            _ = made.signature.hints
        except errors.TaskDefinitionError:
            pass  # annotations that name what is defined further down are checked at the first use
        else:
            made.check_flow()
        return made

    def refresh(
        self, function: Callable[..., Any], declaration: Declaration, **settings: object
    ) -> Refresh[Any, Any, Any]:
        """Register a function as a refresh."""
        _check_function(function, "refresh", declaration.name)
        refresh: Refresh[Any, Any, Any] = self._define(function, declaration, Refresh, **settings)
        self._warn_if_over(f"refresh {refresh.name!r}", refresh.refresh_policy.schedule)
        return refresh

    def machine(self, declaration: Declaration, name: str, *, keep_completed_for: Duration, **settings: Any) -> Machine:
        """Register a machine."""
        from redrive.app.machines.machine import Machine

        settings["keep_completed_for"] = retention_time(
            keep_completed_for, f"app.machine({name!r}, keep_completed_for=...)"
        )
        arguments.checked_text(name, "the name of a machine")
        arguments.check_printable(name, "the name of a machine")
        if "/" in name:
            raise errors.MachineDefinitionError(
                f"the machine {name!r} has a slash in its name, which separates the name from the key of an instance"
            )
        if declaration.retry is not None:
            _read_default(declaration.retry, f"app.machine({name!r}, retry=...)")
        place = _caller()
        other = self.machines.get(name)
        if other is not None:
            raise errors.MachineDefinitionError(
                f"two machines are called {name!r}, in {other.place} and in {place}: give one another name"
            )
        self.machines[name] = made = Machine(self._app, self, declaration, name, place=place, **settings)
        return made

    def state(
        self, function: Callable[..., Any], declaration: Declaration, changes: Mapping[str, Any], **settings: Any
    ) -> StateTask:
        """Register a function as a state of a machine; ``changes`` replace options of the machine."""
        from redrive.app.machines.state import StateTask

        machine, label = settings["machine"], settings["label"]
        made = replace(declaration, **changes, name=f"{machine.name}.{label}")
        return self._define(function, made, StateTask, **settings)

    def topic(self, name: str, kind: object, *, version: int, keep: Retention) -> Topic[Any]:
        """Register a topic."""
        topic: Topic[Any] = Topic(self._app, self, name, kind, version=version, keep=keep)
        _ = topic.types
        self._add_topic(topic)
        return topic

    def _add_topic(self, topic: Topic[Any]) -> None:
        if topic.name in self.topics:
            raise errors.TaskDefinitionError(f"two topics are called {topic.name!r}: give one another name")
        self.topics[topic.name] = topic

    def subscription(self, function: Callable[..., Any], **settings: Any) -> Subscription:
        """Register a function as a subscription of a topic."""
        topic, label = settings["topic"], settings.pop("label")
        options = {name: settings.pop(name) for name in _OF_SUBSCRIPTIONS}
        arguments.checked_function(function, "subscription", "@topic.subscribe(...) above a function")
        declaration = Declaration(queue=label, name=label, **options)
        found = self._define(function, declaration, Subscription, **settings)
        topic.subscriptions[found.definition.name] = found
        return found

    def _define(
        self, function: Callable[..., Any], declaration: Declaration, kind: Callable[..., K], **settings: object
    ) -> K:
        label = arguments.checked_text(
            arguments.function_name(function) if declaration.name is None else declaration.name,
            f"the name of the task {function.__module__}.{function.__qualname__}",
        )
        arguments.checked_flag(declaration.idempotent, f"task {label!r}: idempotent")
        # A refresh has a policy of its own kind.
        is_open = declaration.retry is None and "refresh" not in settings
        bare = declaration if is_open else None
        if is_open:
            declaration = self._with_default(declaration, label)
        policy = _policy(declaration, f"{function.__module__}.{function.__qualname__}")
        options = Options(declaration.queue, declaration.priority, freeze(policy), search=_search(declaration, label))
        task = kind(self._app, label, function, options, traits=_traits(label, declaration, policy), **settings)
        task.declaration = bare
        return self._add(task)

    # A policy of a task replaces the one of its queue, and that one replaces the one of the app; nothing is merged.
    def default_of(self, queue: str, retry: Policy | str) -> None:
        """Set the policy of the tasks of a queue that have none of their own."""
        where = f"app.queue({queue!r}, retry=...)"
        late = [name for name, task in self.tasks.items() if task.defaults.queue == queue and task.declaration]
        if queue in self._default_of or late:
            why = f"below its task {late[0]!r}; move it above its tasks" if late else "twice"
            raise errors.TaskDefinitionError(f"{where} is declared {why}")
        self._default_of[queue] = _read_default(retry, where)

    def options_of_unknown(self, name: str) -> Options:
        """Return the default options of the jobs of a task that this process does not have."""
        declaration = self._with_default(Declaration(), name)
        return Options(declaration.queue, declaration.priority, freeze(_policy(declaration, name)))

    def _with_default(self, declaration: Declaration, label: str) -> Declaration:
        """Return a declaration without a policy with the one of its queue or of the app."""
        default = self._default_of.get(declaration.queue, self._default)
        if default is None:
            return declaration
        if default.catch is not None and default.catch.rpartition(".")[2] == label:
            default = default.with_(catch=None)
        return replace(declaration, retry=default)

    def adopt(self, other: Registry, app: AppProtocol) -> None:
        """Register the tasks, topics and machines of a collection."""
        added = tuple(other.tasks.values())
        for topic in other.topics.values():
            topic.app, topic.registry = app, self
            self._add_topic(topic)
        for task in added:
            self._check_names(task)
        for name, machine in other.machines.items():
            if name in self.machines:
                raise errors.MachineDefinitionError(
                    f"two machines are called {name!r}, in {self.machines[name].place} and in {machine.place}: give "
                    "one another name"
                )
        for machine in other.machines.values():
            machine.adopted(app, self)
            self.machines[machine.name] = machine
        for task in added:
            policy = None
            if task.declaration is not None:
                declared = self._with_default(task.declaration, task.name)
                policy = freeze(_policy(declared, _place(task)))
            task.adopted(app, policy)
            self._add(task)

    def _warn_if_over(self, what: str, schedule: Schedule | None) -> None:
        # A warning, because an error would stop a program on the day after its last occurrence.
        if schedule is not None and schedule.next(self._app.now() or SystemClock().now()) is None:
            message = f"{what} has no occurrence any more: its schedule lies in the past"
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _add(self, task: K) -> K:
        other = self.tasks.get(task.name)
        if isinstance(task, Workflow) and isinstance(other, Workflow):
            task.join(other)
        else:
            self._check_names(task)
        if "using" in task.signature.parameters:
            raise errors.TaskDefinitionError(
                f"task {task.name!r}: a parameter cannot be called 'using', which enqueue() takes itself"
            )
        try:
            task.check_types()
        except errors.TaskDefinitionError:
            # Annotations that name what is defined further down are checked at the first use.
            if task.signature.resolved:
                raise
        if not isinstance(task, Workflow) or task.version == max(task.versions):
            self.tasks[task.name] = task
        self._check_catches_of(task)
        return task

    def _check_names(self, task: Task[Any, Any, Any]) -> None:
        for name in task.names:
            other = self._named(name)
            if other is not None:
                places = " and ".join(_place(each) for each in (other, task))
                renamed = "" if name == other.name == task.name else ", or leave it out of aka="
                raise errors.TaskDefinitionError(
                    f"two tasks are called {name!r}: {places}. Give one another name: @app.task(name=...){renamed}"
                )

    def find(self, name: str) -> Task[Any, Any, Any] | None:
        """Find a task by ``task`` or by ``module.task``; see `redrive.App.find`."""
        found = self.tasks.get(name) or self._named(name)  # hot path
        if found is None:
            module, _, short = name.rpartition(".")
            found = self._named(short)
            return found if found is not None and _in_module(found, module) else None
        return found

    def _named(self, name: str) -> Task[Any, Any, Any] | None:
        found = self.tasks.get(name)
        return found or next((task for task in tuple(self.tasks.values()) if name in task.traits.aka), None)

    def served(self) -> frozenset[str]:
        """Return every name under which a job of these tasks may be stored; see `redrive.App.served`."""
        known = tuple(self.tasks)
        if self._served_of != known:
            self._served = frozenset(name for task in tuple(self.tasks.values()) for name in _names(task))
            self._served |= {task.feeder for task in tuple(self.tasks.values()) if isinstance(task, Subscription)}
            self._served_of = known
        return self._served

    def check(self) -> None:
        """Check that all tasks exist and fit; see `redrive.App.check`."""
        if self._checked == len(self.tasks) and self._checked:
            return
        for module in self._include:
            _import(module)
        for task in self.tasks.values():
            task.check()
            if isinstance(task, Subscription) and self._named(task.feeder) is not None:
                raise errors.TaskDefinitionError(
                    f"a task is called {task.feeder!r}, which is the name of the feeder of the subscription "
                    f"{task.name!r}: give the task another name"
                )
        self._check_letters()
        self._checked = len(self.tasks)

    def _check_letters(self) -> None:
        """Check that the topics for dead events exist, and that no dead event would come back."""
        found = [each for each in self.tasks.values() if isinstance(each, Subscription)]
        letters = [(each, name) for each in found if (name := each.definition.dead_topic) is not None]
        for each, name in letters:
            topic = self.topics.get(name)
            if topic is None or DeadLetter.__name__ not in topic.types:
                has = "there is no such topic" if topic is None else f"that has events of {', '.join(topic.types)}"
                raise errors.TaskDefinitionError(
                    f"subscription {each.name!r} publishes dead events to the topic {name!r}, but {has}: declare "
                    f"app.topic({name!r}, redrive.DeadLetter)"
                )
            if each.policy.catch is not None:
                raise errors.TaskDefinitionError(
                    f"subscription {each.name!r} has a catch task, which gets its dead events: leave out "
                    f"dead='topic:{name}' or catch"
                )
        circle = topics.circle((each.definition.topic, name) for each, name in letters)
        if circle:
            raise in_circle(circle)

    def check_policy(self, policy: Policy, signature: Signature) -> None:
        """Check that the catch task of a policy exists and fits; see `redrive.App.check_policy`."""
        if policy.catch is None:
            return
        catch = self.find(policy.catch)
        if catch is None:
            known = ", ".join(sorted(self.tasks))
            raise errors.CatchDefinitionError(
                f"task {signature.name!r} is to be caught by {policy.catch!r}, but there is no such task; "
                f"known tasks: {known}"
            )
        _check_caught_by(signature, catch)

    def _check_catches_of(self, added: Task[Any, Any, Any]) -> None:
        """Check the catch tasks that are known and have annotations that can be resolved."""
        for task in self.tasks.values():
            catch = None if task.policy.catch is None else self.find(task.policy.catch)
            if catch is not None and added in (task, catch):
                try:
                    _check_caught_by(task.signature, catch)
                except errors.TaskDefinitionError:
                    continue


def _check_caught_by(signature: Signature, catch: Task[Any, Any, Any]) -> None:
    if catch.is_workflow:
        raise errors.CatchDefinitionError(
            f"task {signature.name!r} is to be caught by {catch.name!r}: {arguments.only_started(catch.name)}; "
            "let a task catch it, which calls that"
        )
    check_catch(signature, catch.signature)


def _caller() -> str:
    """Return the file and the line of the module that declares a machine."""
    frame = sys._getframe(1)  # as `warnings` finds the line of a caller
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '')}:{frame.f_lineno}"


def _read_default(retry: Policy | str, where: str) -> Policy:
    try:
        policy = Policy.parse(retry) if isinstance(retry, str) else retry
        if not isinstance(policy, Policy):
            raise errors.TaskDefinitionError(
                f"{where} takes a directive such as '5 1s' or a redrive.Policy, got {retry!r}"
            )
        policy.durable()
    except errors.PolicyError as error:
        raise error.within(where) from error
    return policy


def _import(module: str) -> None:
    try:
        import_module(module)
    except errors.RedriveError:
        raise
    except Exception as error:
        raise errors.ConfigurationError(
            f"include: importing {module!r} failed: {type(error).__name__}: {cleared(str(error))}"
        ) from error


def _names(task: Task[Any, Any, Any]) -> Iterator[str]:
    """Yield every name under which a job of a task may be stored."""
    yield from task.names
    # The module is None for code that was run by exec().
    module: str | None = task.function.__module__
    if module and catches(task.signature):
        # A policy may name its catch task with a part of its module.
        parts = module.split(".")
        yield from (".".join([*parts[first:], name]) for first in range(len(parts)) for name in task.names)


def _place(task: Task[Any, Any, Any]) -> str:
    return f"{task.function.__module__}.{task.function.__qualname__}"


def _in_module(task: Task[Any, Any, Any], module: str) -> bool:
    where = task.function.__module__
    return where == module or where.endswith(f".{module}")


def _search(declaration: Declaration, label: str) -> tuple[str, ...]:
    if not declaration.search:
        return ()
    # Only few programs need it.
    from redrive.app.tasks.searched import checked_search

    return checked_search(declaration.search, f"task {label!r}")


def _policy(declaration: Declaration, where: str) -> Policy:
    policy = durable_policy(declaration.retry, where, is_bounded=declaration.deadline is not None)
    changes: dict[str, Any] = {"idempotent": False} if declaration.idempotent is False else {}
    if declaration.timeout is not None:
        changes["attempt_timeout"] = declaration.timeout
    if declaration.deadline is not None:
        changes["deadline"] = declaration.deadline
    try:
        return policy.with_(**changes) if changes else policy
    except errors.PolicyError as error:
        raise error.within(f"task {where}") from error


def _traits(name: str, declaration: Declaration, policy: Policy) -> Traits:
    retry, idempotent = declaration.retry, declaration.idempotent
    traits = Traits(
        idempotent=retry.idempotent if idempotent is None and isinstance(retry, Policy) else idempotent,
        aka=arguments.earlier_names("task", name, declaration.aka),
        executor=declaration.executor,
    )
    if declaration.keep_for is not None:
        traits = replace(traits, keep_for=retention_time(declaration.keep_for, f"task {name!r}: keep_for"))
    if declaration.soft_timeout is not None:
        soft, hard = span(declaration.soft_timeout, f"task {name!r}: soft_timeout"), limit_of(policy)
        if not timedelta(0) < soft < hard:
            raise errors.TaskDefinitionError(
                f"task {name!r}: its soft timeout ({soft}) must be positive, and shorter than its timeout ({hard})"
            )
        traits = replace(traits, soft_timeout=soft)
    return traits


def _check_function(function: object, kind: str, name: str | None) -> None:
    checked = arguments.checked_function(function, kind, f"@app.{kind}(...) above a function")
    label = name or checked.__name__
    if isinstance(label, str) and "/" in label:
        raise errors.TaskDefinitionError(
            f"the {kind} {label!r} has a slash in its name, which separates the name from the key of an item"
        )


def retention_time(value: Any, where: str) -> timedelta | None:
    """Read how long jobs are kept: None for ever. Raise `ConfigurationError` unless the time is positive."""
    if value == FOREVER:
        return None
    kept = span(value, where)
    if kept <= timedelta(0):
        raise errors.ConfigurationError(f"{where} must be positive, got {value!r}; {FOREVER!r} keeps all")
    return kept
