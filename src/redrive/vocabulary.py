"""The words of other libraries, with those of redrive for the same: what errors about unknown names recommend.

The words are those of Celery, RQ, Dramatiq, Huey, arq, Procrastinate, Temporal, Prefect, tenacity and backoff. None of
them works here. Loaded by the errors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import FrameType
from typing import Any

from redrive.errors import PayloadError, TaskDefinitionError

# An option of redrive: how it is given.
_OPTIONS = {
    "aka": 'aka="old_name"',
    "at": "at=datetime(2027, 1, 1, tzinfo=UTC)",
    "attempt_timeout": 'attempt_timeout="10s"',
    "attempts": "attempts=6",
    "backoff": 'backoff=Backoff.exponential("1s", "10m")',
    "catch": 'catch="recover"',
    "deadline": 'deadline="10m"',
    "delay": 'delay="10s"',
    "expires": 'expires="1h"',
    "idempotency_key": 'idempotency_key="invoice-7"',
    "jitter": 'jitter="full"',
    "keep_for": 'keep_for="7d"',
    "key": 'key="invoice-7"',
    "name": 'name="charge"',
    "on": "on=ConnectionError",
    "on_give_up": "on_give_up=function",
    "on_result": "on_result=function",
    "on_retry": "on_retry=function",
    "partition": 'partition="tenant-7"',
    "priority": "priority=-1",
    "queue": 'queue="mail"',
    "retry": 'retry="5 1s 10m"',
    "soft_timeout": 'soft_timeout="9m"',
    "tags": 'tags="invoice"',
    "timeout": 'timeout="10m"',
}

# Where an option belongs that the call does not take: the first place that has it.
_PLACES: tuple[tuple[str, Collection[str]], ...] = (
    (
        "a job: {task}.options({option}).enqueue(...)",
        ("delay", "at", "expires", "key", "idempotency_key", "partition", "tags", "retry", "queue", "priority"),
    ),
    ("@app.task({option})", ("timeout", "soft_timeout", "keep_for", "name", "aka")),
    (
        "a policy: @app.task(retry=Policy({option}))",
        ("on", "attempts", "backoff", "jitter", "deadline", "catch", "on_result", "on_retry", "on_give_up"),
    ),
)

# Options of other libraries: those of redrive, of which the first one counts that the call takes.
_SAME = {
    "actor_name task_name job_name": "name",
    "aliases alias": "aka",
    "at_front": "priority",
    "autoretry_for exceptions exception retry_on retry_for throws dont_autoretry_for": "on",
    "countdown defer_by schedule_in delay_ms wait_for_seconds _defer_by": "delay",
    "default_retry_delay min_backoff max_backoff retry_backoff retry_backoff_max retry_delay wait interval": (
        "retry backoff"
    ),
    "eta run_at schedule_at delay_until defer_until not_before when _defer_until": "at",
    "job_timeout time_limit hard_time_limit execution_timeout start_to_close_timeout": "timeout attempt_timeout",
    "timeout": "attempt_timeout",
    "max_retries max_tries max_attempts retries tries stop attempt_limit": "retry attempts",
    "attempts": "retry",
    "link_error on_failure on_dead": "catch",
    "lock queueing_lock unique unique_for unique_by singleton": "key",
    "max_age ttl expire": "expires",
    "max_time max_delay stop_after_delay": "deadline",
    "on_backoff before_sleep": "on_retry",
    "on_giveup retry_error_callback": "on_give_up",
    "queue_name queue_class": "queue",
    "result_ttl result_expires failure_ttl": "keep_for",
    "retry_if_result on_predicate": "on_result",
    "retry_jitter": "jitter",
    "retry_strategy retry_policy retry_when policy": "retry",
    "soft_time_limit": "soft_timeout",
    "task_id job_id message_id idempotency": "idempotency_key",
}
# Options of other libraries that redrive has in another form.
_INSTEAD = {
    "bind pass_context context with_context ctx": (
        "a first parameter with the annotation redrive.Context receives the attempt"
    ),
    "acks_late reject_on_worker_lost ack_early": (
        "jobs of a worker that died run again; idempotent=False in @app.task(...) prevents that"
    ),
    "ignore_result store_results": "the result of a job is kept with it; a handler without a result returns None",
    "rate_limit": 'app.queue("mail", rate="100/1m") limits a queue',
    "crontab cron schedule repeat run_every": '@app.cron("*/5 * * * *") runs a function on a schedule',
    "depends_on link on_success pipeline_target chain": "@app.workflow() calls one step after the other",
    "args kwargs arguments": "the arguments of the function go to enqueue(...)",
    "clock time_source sleep": "a test has `with redrive.testing.using(clock=VirtualClock()):` around the call",
    "reraise": "the last exception of the function is always raised",
}

# Where the policy of a job stands, by the class of its task.
_POLICY_OF = {
    "Task": '@app.task(retry="5 1s 10m")',
    "Workflow": '@app.workflow(retry="5 1s 10m")',
    "Cron": '@app.cron(..., retry="5 1s 10m")',
    "Refresh": '@app.refresh("Refresh every 2 hours; retry every 5 minutes")',
    "StateTask": '@machine.state(retry="5 1s 10m")',
    "Subscription": '@topic.subscribe("mail", retry="5 1s 10m")',
}

# What a policy is for a call that takes none.
_POLICIES = {
    "@app.refresh": 'the retries of a refresh stand in its policy: "Refresh every 2 hours; retry every 5 minutes"',
    "RetryTransport": 'the policy is its first argument: RetryTransport("5 100ms 5s")',
    "@app.step": 'the retries of a step stand where it is called: flow.step(function, ..., retry="5 1s 10m")',
    "app.topic": '@topic.subscribe("mail", retry="5 1s 10m") has the retries',
}

# Calls whose options are those of a filter.
_FILTERED = ("app.jobs.select", "app.jobs.cancel", "app.jobs.redrive", "app.jobs.repolicy", "app.jobs.delete")

_ENQUEUE = "{name}.enqueue(...), or await {name}.aenqueue(...)"
_LATER = '{name}.options(delay="10s").enqueue(...)'
_MANY = "app.batch() for jobs and one that follows them; steps that follow one another are a workflow, @app.workflow()"
_RESULT = 'job.result(timeout="10s"), or await job.aresult(timeout="10s")'
_STATE = "job.refresh().state"
_CRON = '@app.cron("*/5 * * * *") above a function'
_TASK = "@app.task above a function"
_JOB = 'charge.enqueue(...) of a task, or app.named("charge").enqueue(...)'
_WORKER = "the command redrive worker module:app"
_STEP = "flow.step(function, ...)"
_APP = 'app = redrive.App("sqlite:///app.db")'
_OF_APP = f"of {_APP}"
_RETRY = '@redrive.retry("5 1s 10m", on=ConnectionError)'

# The attributes of other libraries, by what has them there.
ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "task": {
        "delay send defer push submit perform_async put async_ call_async schedule_now add": _ENQUEUE,
        "defer_async kiq": "await {name}.aenqueue(...)",
        "apply_async send_with_options configure set using_options": _LATER,
        "schedule enqueue_in apply_later perform_in call_later": _LATER,
        "enqueue_at perform_at": "{name}.options(at=datetime(2027, 1, 1, tzinfo=UTC)).enqueue(...)",
        "enqueue_call": _ENQUEUE,
        "apply call_local fn func run": "{name}(...), which runs the function here and now",
        "s si signature subtask message chunks map starmap group chord chain batch_defer": _MANY,
        "retry": 'raise redrive.RetryAfter("10s") in the handler; the policy is @app.task(retry="5 1s")',
        "max_retries": "{name}.policy.attempts",
        "queue": "{name}.defaults.queue",
        "priority": "{name}.defaults.priority",
    },
    "workflow": {
        "delay send defer push submit perform_async apply_async send_with_options run_async execute start_workflow": (
            "{name}.start(...), or await {name}.astart(...)"
        ),
        "signal query": '{name}.run(id), which has signal("name", value) and value("name")',
    },
    "job": {
        "get wait join latest_result return_value get_result await_result output": _RESULT,
        "ready successful failed status get_status is_finished is_failed is_queued is_started done finished": _STATE,
        "revoke abort stop terminate kill": "job.cancel()",
        "delete remove": "app.jobs.delete(redrive.Filter(ids=[job.id])); job.cancel() stops it, and keeps its row",
        "requeue redrive restart": "job.retry()",
        "exception traceback exc_info info": "job.attempts[-1], which has the error and its traceback",
        "meta save_meta progress_info": "job.progress, which ctx.heartbeat(details) sets",
        "forget": "nothing: @app.task(keep_for=...) sets how long jobs are kept",
        "args kwargs payload": "job.record, and redrive jobs show",
    },
    "run": {
        "get wait join output get_result": 'run.result(timeout="10s"), or await run.aresult(timeout="10s")',
        "ready status get_status is_finished done": "run.state",
        "revoke abort stop terminate": "run.cancel()",
        "send publish": 'run.signal("name", value)',
        "query": 'run.value("name"), which flow.set("name", value) stores',
    },
    "app": {
        "enqueue send_task enqueue_call enqueue_in enqueue_at enqueue_job defer add_job submit send call delay": _JOB,
        "shared_task db_task job_task actor register_task add_task actor_class function": _TASK,
        "periodic_task add_periodic_task db_periodic_task periodic schedule beat_schedule crontab every": _CRON,
        "beat scheduled_job interval timer": _CRON,
        "flow": "@app.workflow() above an async def, whose first parameter is a redrive.Flow",
        "group chain chord canvas signature": _MANY,
        "conf config configure settings": 'the arguments of App(...), and app.queue("mail", ...)',
        "autodiscover_tasks register_tasks discover import_paths": 'App(..., include=["shop.tasks"])',
        "control inspect monitor": "app.workers, app.queues, and the command redrive workers list",
        "AsyncResult fetch_job get_job get_result result": "app.job(id)",
        "worker worker_main run_worker run_worker_async create_consumer start run serve main": _WORKER,
        "subscriber subscribe consumer": '@topic.subscribe("name") of topic = app.topic("orders", Order)',
        "publish emit_event publisher": 'topic.publish(event) of topic = app.topic("orders", Order)',
        "activity": "@app.step above a function",
        "signal": 'workflow.run(id).signal("name", value)',
        "retry": "@redrive.retry(...) above a function, or @app.task(retry=...)",
        "middleware add_middleware use": "@app.around above a def with one yield, where the handler runs",
        "signals": "@app.around, @app.on_start, @app.on_stop, and redrive.observe",
        "open open_async connect": "nothing: the database is opened at its first use",
    },
    "context": {
        "retry": 'raise redrive.RetryAfter("10s"), or any exception under the policy of the task',
        "request message": "ctx itself: ctx.job_id, ctx.attempt, ctx.started_at",
        "retries job_try try_count": "ctx.attempt, from 1, or ctx.failures",
        "task_id id message_id": "ctx.job_id",
        "update_state update_progress set_progress save_meta send_event": "ctx.heartbeat(details)",
        "is_aborted should_abort is_cancelled cancelled": "ctx.should_stop",
        "abort cancel": "raise redrive.Cancel()",
        "state": "ctx.resources, which @app.on_start sets",
    },
    "flow": {
        "execute_activity execute_local_activity start_activity activity run_step call_step execute run task": _STEP,
        "enqueue submit emit publish": f"a step that does it: {_STEP}",
        "execute_child_workflow start_child_workflow child call_workflow run_workflow": "flow.call(workflow, ...)",
        "parallel all fan_out group join": "flow.gather(flow.step(...), flow.step(...))",
        "any race select": "flow.first(flow.step(...), flow.sleep(...))",
        "wait_for_signal wait_condition wait_for_external_event wait_signal receive recv signal on_signal": (
            'flow.wait_for("approved", bool), to which run.signal("approved", True) answers'
        ),
        "wait timer create_timer delay": 'flow.sleep("1h")',
        "continue_as_new": "flow.restart(...)",
        "time utcnow current_time": "flow.now()",
        "uuid4": "flow.uuid()",
        "retry": 'flow.step(function, ..., retry="5 1s 10m")',
        "info run_id": "flow.id, flow.workflow and flow.version",
    },
    "machine": {
        "trigger fire dispatch event process": 'machine.send("key", Event(...)), with an instance of the class',
        "add_transition transition add_state add_states on": (
            "@machine.state(after=[...]) above a function that takes the event"
        ),
    },
    "transport": {
        "handle_async_request __aenter__ __aexit__ aclose": "AsyncRetryTransport, for an httpx.AsyncClient",
        "handle_request __enter__ __exit__ close": "RetryTransport, for an httpx.Client",
    },
    "redrive": {
        "task job actor shared_task db_task job_task function background": f"{_TASK}, {_OF_APP}",
        "workflow flow dag pipeline": f"@app.workflow() above a function, {_OF_APP}",
        "step activity": "flow.step(function, ...) in a workflow; the function needs no decorator",
        "cron crontab periodic_task Schedule scheduled_job every repeat": f"{_CRON}, {_OF_APP}",
        "machine state": f'orders = app.machine("orders"), {_OF_APP}',
        "topic subscribe subscriber publish": f'orders = app.topic("orders", Order), {_OF_APP}',
        "Queue queue": f'app.queue("mail"), {_OF_APP}; a task has @app.task(queue="mail")',
        "Redrive Celery Client Huey Broker RedisBroker Procrastinate Scheduler SqliteHuey DBOS": _APP,
        "configure config settings setup init connect": f"the arguments of App: {_APP}",
        "Worker worker": "the command redrive worker module:app; in a program, redrive.runtime.worker.Worker",
        "chain group chord chunks signature": _MANY,
        "current_task current_job get_current_job CurrentMessage TaskContext": (
            "a first parameter of the handler with the annotation redrive.Context"
        ),
        "sleep": 'flow.sleep("1h") in a workflow, and raise redrive.Snooze("1h") in a handler',
        "Retry TryAgain": 'raise redrive.RetryAfter("10s") in a handler; its policy is @app.task(retry="5 1s 10m")',
        "retries": _RETRY,
        "stop_after_attempt stop_never": "attempts=6 of @redrive.retry(...), where None is no limit",
        "stop_after_delay stop_before_delay": 'deadline="10m" of @redrive.retry(...)',
        "wait_exponential wait_exponential_jitter wait_random_exponential wait_fixed wait_random wait_incrementing "
        "wait_chain wait_combine wait_none expo fibo constant": (
            f'backoff=Backoff.exponential("1s", "10m"), or a directive: {_RETRY}'
        ),
        "retry_if_exception_type retry_if_exception retry_if_not_exception_type on_exception": f"on=...: {_RETRY}",
        "retry_if_result retry_if_not_result on_predicate": "on_result=function of @redrive.retry(...)",
        "before_sleep_log before_log after_log": "on_retry=function of @redrive.retry(...); retries are logged anyway",
        "Retrying AsyncRetrying retry_context": "for attempt in Policy(...), and with attempt: in the loop",
        "RetryError MaxRetriesExceeded MaxRetriesExceededError": (
            "nothing: when the attempts are used up, the last exception of the function is raised as it is"
        ),
    },
}


def _found(words: Mapping[str, str], name: str) -> str | None:
    return next((text for names, text in words.items() if name in names.split()), None)


def advice(name: str, parameters: Collection[str] = (), *, task: str = "task", written: str = "") -> str | None:
    """Return what is right instead of an option, for a call with these parameters; None if that is unknown."""
    import difflib

    if written in _FILTERED:
        near = difflib.get_close_matches(name, parameters, n=1, cutoff=0.7)
        return f"did you mean {near[0]}=?" if near else f"conditions are those of a filter: {written}(Filter(...))"
    known = {word for names in (*_SAME, *_INSTEAD) for word in names.split()}
    word = name
    if name not in known and name not in _OPTIONS:
        # A misspelled word of another library means the same as the word.
        near = difflib.get_close_matches(name, [*parameters, *sorted(known)], n=1, cutoff=0.7)
        if near and near[0] in parameters:
            return f"did you mean {near[0]}=?"
        word = near[0] if near else name
    instead = _found(_INSTEAD, word)
    if instead is not None:
        return instead
    same = [word, *(_found(_SAME, word) or "").split()]
    own = next((each for each in same if each in parameters), None)
    if own is not None:
        whole = own == "attempt_timeout" and "deadline" in parameters
        also = ' for one attempt, or deadline="10m" for all of them' if whole else ""
        return f"write {_OPTIONS.get(own, f'{own}=...')}{also}"
    return _elsewhere(same, task, written)


def _elsewhere(same: list[str], task: str, written: str) -> str | None:
    """Return the place of the first of these options, which the call itself does not take."""
    if written in _POLICIES and "retry" in same:
        return _POLICIES[written]
    for each in same:
        for place, options in _PLACES:
            if each in options:
                return f"it is an option of {place.format(option=_OPTIONS[each], task=task)}"
    return None


def no_attribute(owner: object, kind: str, name: str, label: str | None = None) -> AttributeError:
    """Return the error about an attribute that an object does not have; ``label`` stands for it in the advice."""
    text = f"{type(owner).__name__!r} object has no attribute {name!r}"
    found = _found(ATTRIBUTES[kind], name)
    if found is None:
        # With them Python adds the attribute that has nearly the name.
        return AttributeError(text, name=name, obj=owner)
    return AttributeError(f"{text}; in redrive: {found.replace('{name}', label or kind)}", obj=owner)


def no_name(module: object, name: str, caller: FrameType) -> AttributeError | ImportError:
    """Return the error about a name that the package does not have.

    Of an `AttributeError` in ``from redrive import name`` the interpreter keeps nothing, so that it gets an
    `ImportError`. `hasattr` and `getattr` need the other one.
    """
    import opcode

    found = _found(ATTRIBUTES["redrive"], name)
    if found is None:
        return AttributeError(f"module 'redrive' has no attribute {name!r}", name=name, obj=module)
    if caller.f_code.co_code[caller.f_lasti] == opcode.opmap["IMPORT_FROM"]:
        return ImportError(f"cannot import name {name!r} from 'redrive'; in redrive: {found}", name="redrive")
    return AttributeError(f"module 'redrive' has no attribute {name!r}; in redrive: {found}", obj=module)


def unknown_argument(error: PayloadError, name: str, *, task: str) -> PayloadError:
    """Return an error about the arguments of a call, with advice on one that the function does not have."""
    found = advice(name, task=task)
    return PayloadError(f"{error}" + (f"; {found}" if found else ""))


def unknown_of_step(error: PayloadError, name: str, options: Collection[str]) -> PayloadError:
    """Return an error about the arguments of a step, with advice on the options of ``flow.step`` itself."""
    found = advice(name, options)
    return PayloadError(f"{error}" + (f"; of flow.step() itself: {found}" if found else ""))


def without_parentheses(written: str, example: str, function: object) -> TaskDefinitionError:
    """Return the error about a decorator that got the function as its argument."""
    name = getattr(function, "__qualname__", repr(function))
    return TaskDefinitionError(f"{written} needs its parentheses, and got the function {name}: write {example}")


def wrong_arguments(
    written: str, example: str | None, function: Callable[..., Any], given: Collection[str], error: TypeError
) -> TypeError:
    """Return the error about a call with arguments that the function does not take."""
    import inspect

    parameters = [
        name
        for name, each in inspect.signature(function).parameters.items()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    unknown = next((name for name in given if name not in inspect.signature(function).parameters), None)
    if unknown is None:
        if str(error).endswith("missing 1 required positional argument: 'function'"):
            return TypeError(f"{written} stands above a function, without parentheses")
        what = str(error).partition("() ")[2] or str(error)
        return TypeError(f"{written}() {what}" + (f"; write {example}" if example else ""))
    return unknown_option(written, unknown, parameters)


def unknown_option(written: str, name: str, parameters: Collection[str]) -> TypeError:
    """Return the error about an option that a call does not have."""
    known = ", ".join(f"{each}=" for each in parameters)
    found = advice(name, parameters, written=written)
    return TypeError(f"{written}() has no option {name}=: {found or f'its options are {known}'}")


def above_task(written: str, task: object) -> TypeError:
    """Return the error about a decorator for plain functions that stands above one that makes a task."""
    policy = _POLICY_OF.get(type(task).__name__)
    if written == "@redrive.retry" and policy is not None:
        right = f"the retries of its jobs are {policy}"
    else:
        right = f"write {written} below the decorator that makes it, directly above the def"
    return TypeError(f"{written} cannot decorate {task!r}, whose enqueue() and other methods would be lost: {right}")
