"""What a task under a policy refuses, when it is declared and when its worker starts."""

from __future__ import annotations

import pytest
from celery import Celery

from redrive.contrib.celery import PolicyTask
from redrive.contrib.celery.checks import check
from redrive.errors import CatchDefinitionError, ConfigurationError, PolicySyntaxError, PolicyValueError
from redrive.policy import Policy
from redrive.policy.breaker import BreakerSettings
from redrive.policy.budget import RatioBudget
from redrive.retrying.shared import breaker, budget, isolated


def charge(number: int) -> int:
    """Return the number."""
    return number


def app_of(broker="memory://", **settings):
    """Return an app that sends nothing."""
    app = Celery("tests", broker=broker, task_cls=PolicyTask, set_as_current=False)
    app.conf.update(settings)
    return app


def declared(app, retry="5 1s", name="shop.charge", **options):
    """Declare a task, and have Celery create it."""
    app.task(name=name, shared=False, retry=retry, **options)(charge)
    return app.tasks[name]


REFUSED = {
    "autoretry_for": (OSError,),
    "dont_autoretry_for": (OSError,),
    "retry_kwargs": {"max_retries": 5},
    "retry_backoff": True,
    "retry_backoff_max": 60,
    "retry_jitter": False,
    "max_retries": 5,
    "default_retry_delay": 5,
}


@pytest.mark.parametrize("option", REFUSED)
def test_options_of_celerys_own_retries_are_refused(option):
    """Two retries of one task would multiply or contradict each other."""
    with pytest.raises(ConfigurationError, match=f"task shop.charge: {option} contradicts retry="):
        declared(app_of(), **{option: REFUSED[option]})


@pytest.mark.parametrize("option", REFUSED)
def test_they_are_refused_in_annotations_of_the_configuration(option):
    """`task_annotations` reach a task after it was declared."""
    with pytest.raises(ConfigurationError, match=f"task shop.charge: {option} contradicts retry="):
        declared(app_of(task_annotations={"*": {option: REFUSED[option]}}))


@pytest.mark.parametrize("option", REFUSED)
def test_they_are_refused_in_a_base_class(option):
    """A base class of the program may have them, too."""
    base = type("Base", (PolicyTask,), {"abstract": True, option: REFUSED[option]})
    with pytest.raises(ConfigurationError, match=f"{option} contradicts retry="):
        declared(app_of(), base=base)


def test_a_value_that_is_the_default_is_refused_where_it_is_written():
    """`max_retries=3` beside `retry=` is a contradiction although 3 is the default of Celery."""
    with pytest.raises(ConfigurationError, match="max_retries contradicts retry="):
        declared(app_of(), max_retries=3)

    assert None is declared(app_of(), max_retries=None).max_retries


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"task_reject_on_worker_lost": True}, "reject_on_worker_lost=True"),
        ({"task_acks_on_failure_or_timeout": False}, "acks_on_timeout=False"),
    ],
)
def test_loops_without_a_count_are_refused(settings, option):
    """Options that return a message without an end are refused, also if they come from the configuration."""
    with pytest.raises(ConfigurationError, match=option):
        declared(app_of(**settings))


def test_they_are_refused_as_options_of_the_task():
    """The same options of one task are refused."""
    with pytest.raises(ConfigurationError, match="reject_on_worker_lost=True"):
        declared(app_of(), reject_on_worker_lost=True)
    with pytest.raises(ConfigurationError, match="acks_on_timeout=False"):
        declared(app_of(), acks_on_timeout=False)


@pytest.mark.parametrize(
    ("retry", "error", "message"),
    [
        ("5 1", PolicySyntaxError, "task shop.charge: "),
        (5, ConfigurationError, "retry=5 is neither a policy nor a directive"),
        (Policy(attempts=2, budget=object()), PolicyValueError, "task shop.charge: "),
    ],
)
def test_a_policy_that_cannot_be_read_names_the_task(retry, error, message):
    """The error names the task."""
    with pytest.raises(error, match=message):
        declared(app_of(), retry)


def test_limits_of_one_process_are_refused():
    """A budget or a breaker without a key would be another one in each process."""
    with isolated():
        shared = {
            "budget": budget("payments", RatioBudget(0.1)),
            "breaker": breaker("payments", BreakerSettings()),
        }
        for field, limit in shared.items():
            with pytest.raises(PolicyValueError, match=f"task shop.charge: {field}=.*register it under a key"):
                declared(app_of(), Policy(attempts=2, **{field: limit}))
            with pytest.raises(PolicyValueError, match="register it under a key"):
                declared(app_of(), Policy(attempts=2, **{field: limit}) & Policy(attempts=3))
        check(_with_task(Policy(attempts=2, budget="payments", breaker="payments")))
        with pytest.raises(PolicyValueError, match="'unknown' is not registered"):
            check(_with_task(Policy(attempts=2, breaker="unknown")))


async def _classify(error: BaseException) -> bool:
    return True


def test_coroutine_functions_are_refused():
    """A worker of Celery awaits nothing."""
    for field in ("on", "on_retry", "on_give_up"):
        with pytest.raises(PolicyValueError, match="is a coroutine function"):
            declared(app_of(), Policy(**{field: _classify}))


def _with_task(retry, **options):
    app = app_of()
    declared(app, retry, **options)
    return app


# ------------------------------------------------------------------------------------------------------------ defaults


def test_defaults_of_a_task_under_a_policy():
    """Messages are acknowledged late and repeated after a lost process, unless the task says otherwise."""
    task = declared(app_of())
    early = declared(app_of(task_acks_late=True), acks_late=False)
    alone = declared(app_of(), retry=None)

    assert (True, True, None) == (task.acks_late, task.retry_on_worker_lost, task.max_retries)
    assert (False, False) == (early.acks_late, early.retry_on_worker_lost)
    assert (False, False, 3) == (alone.acks_late, alone.retry_on_worker_lost, alone.max_retries)


def test_the_limit_of_an_attempt_is_a_soft_time_limit():
    """`attempt_timeout` of a policy is the soft time limit of a task that has none."""
    assert 30.0 == declared(app_of(), Policy(attempt_timeout="30s")).soft_time_limit
    assert 5 == declared(app_of(), Policy(attempt_timeout="30s"), soft_time_limit=5).soft_time_limit


def test_signatures_are_those_of_the_functions():
    """Celery checks the arguments of a call before it sends it."""
    task = declared(app_of())
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        task.delay()


# ------------------------------------------------------------------------------------------ at the start of a worker


def test_a_hop_must_be_below_half_of_the_visibility_timeout():
    """Redis delivers a message again that waits for longer: both numbers are named."""
    app = app_of("redis://", broker_transport_options={"visibility_timeout": 60})
    declared(app, hop="30s")
    with pytest.raises(
        ConfigurationError, match="hop='30s' is not below half of the visibility timeout of the broker, 1m:"
    ):
        check(app)

    for url in ("redis://", "amqp://"):
        usual = app_of(url)
        declared(usual)
        check(usual)
    fits = app_of("redis://", broker_transport_options={"visibility_timeout": 60})
    declared(fits, hop="29s")
    check(fits)


def test_the_hop_of_a_catch_task_is_checked_too():
    """A catch task that fails waits in the memory of a worker as well."""
    app = app_of("redis://", broker_transport_options={"visibility_timeout": 60})
    declared(app, "5 1s catch refund", hop="10s")
    declared(app, None, "shop.refund")
    with pytest.raises(ConfigurationError, match="task shop.refund: hop='10m' is not below half"):
        check(app)


def test_a_catch_task_must_exist_and_be_a_policy_task():
    """A worker does not start with a policy that no task could catch."""
    with pytest.raises(
        CatchDefinitionError, match="'shop.charge' is to be caught by 'refund', but there is no such task"
    ):
        check(_with_task("5 1s catch refund"))

    several = _with_task("5 1s catch refund")
    for name in ("a.refund", "b.refund"):
        declared(several, None, name)
    with pytest.raises(CatchDefinitionError, match="one of a.refund, b.refund"):
        check(several)

    plain = Celery("tests", broker="memory://", set_as_current=False)
    declared(plain, name="shop.charge", retry="5 1s catch refund", base=PolicyTask)
    plain.task(name="shop.refund", shared=False)(charge)
    with pytest.raises(CatchDefinitionError, match="'shop.refund', which is no PolicyTask"):
        check(plain)


def test_a_catch_task_is_acknowledged_late():
    """A worker that dies in a catch task must not lose it; the task may say otherwise."""
    app = _with_task("5 1s catch refund")
    late = declared(app, None, "shop.refund")
    own = _with_task("5 1s catch refund")
    early = declared(own, None, "shop.refund", acks_late=False)
    check(app)
    check(own)

    assert (True, True) == (late.acks_late, late.retry_on_worker_lost)
    assert not early.acks_late


def test_a_hard_limit_alone_is_a_warning(caplog):
    """After a hard time limit the policy is not asked, which the log says once for each task."""
    check(_with_task("5 1s", time_limit=5))
    check(_with_task("5 1s", time_limit=5, soft_time_limit=4))
    check(_with_task("5 1s"), hard=60)

    assert 2 == caplog.text.count("has a hard time limit")
