"""What the middleware refuses, where an actor is declared and when a worker starts, and how it says what is right."""

from __future__ import annotations

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import AgeLimit, Retries, ShutdownNotifications, TimeLimit

from redrive.contrib.dramatiq import PolicyRetries
from redrive.errors import ConfigurationError, PolicySyntaxError, PolicyValueError
from redrive.policy import Policy
from redrive.policy.breaker import BreakerSettings
from redrive.policy.budget import RatioBudget
from redrive.retrying.shared import breaker, budget, isolated


def broker_of(*middleware):
    """Return a broker in memory."""
    return StubBroker(middleware=[*middleware] or [PolicyRetries()])


def declare(broker, name="charge", **options):
    """Declare an actor."""

    @dramatiq.actor(broker=broker, actor_name=name, **options)
    def actor(number):
        return number

    return actor


def boot(broker):
    """Start a worker, and stop it."""
    worker = dramatiq.Worker(broker, worker_timeout=10, worker_threads=1)
    worker.start()
    worker.stop()


@pytest.mark.parametrize("option", ["max_retries", "min_backoff", "max_backoff", "retry_when", "throws", "retires"])
def test_options_of_dramatiqs_own_retries_are_unknown(option):
    """Dramatiq refuses options that no middleware reads."""
    with pytest.raises(ValueError, match=f"actor options are undefined: {option}"):
        declare(broker_of(), retry="1 1s", **{option: 3})


@pytest.mark.parametrize("order", [[Retries(), PolicyRetries()], [PolicyRetries(), Retries()]])
def test_dramatiqs_own_middleware_is_refused(order):
    """Both would send a message again; actors without a policy are refused, too."""
    with pytest.raises(
        ConfigurationError, match=r"own middleware Retries would send .* leave it out; .*PolicyRetries\(\)"
    ):
        declare(broker_of(*order))


def test_a_default_broker_with_the_middleware_added_is_refused():
    """A broker without a list has Retries; actors that exist already are found when a worker starts."""
    broker = StubBroker()
    declare(broker)
    broker.add_middleware(PolicyRetries())
    with pytest.raises(ConfigurationError, match="leave it out"):
        boot(broker)


def test_two_of_the_middleware_are_refused():
    """Two would decide about each message."""
    with pytest.raises(ConfigurationError, match="the broker has two middlewares PolicyRetries"):
        declare(broker_of(PolicyRetries(), PolicyRetries()), retry="1 1s")


@pytest.mark.parametrize("first", [TimeLimit(), ShutdownNotifications()])
def test_middleware_that_interrupts_must_stand_behind(first):
    """The hooks after a message run in reverse order, and the decision must not be interrupted."""
    with pytest.raises(ConfigurationError, match="stands behind TimeLimit or ShutdownNotifications: .* may be"):
        declare(broker_of(AgeLimit(), first, PolicyRetries()))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("5 1x", "actor charge: there is no unit"),
        (5, "actor charge: retry=5 is neither a policy nor a directive such as '5 1s 10m'"),
        (Policy(on_result=lambda result: False), "on_result has no effect: .* raise an exception in the actor"),
        (Policy(attempts=3) | Policy(on_result=bool, attempts=2), "on_result has no effect"),
        (Policy(attempt_timeout="3s"), "attempt_timeout needs the middleware TimeLimit: add it"),
    ],
)
def test_a_policy_that_cannot_hold_is_refused(given, text):
    """The text names the actor, and what would be right."""
    with pytest.raises(ConfigurationError, match=text):
        declare(broker_of(), retry=given)


@pytest.mark.parametrize("field", ["budget", "breaker"])
def test_a_shared_limit_without_a_key_is_refused(field):
    """Each process would have its own."""
    with isolated():
        limits = {"budget": budget("payments", RatioBudget(0.1)), "breaker": breaker("bank", BreakerSettings())}
        with pytest.raises(
            ConfigurationError, match=f"actor charge: {field}=.*register it under a key, and name the key"
        ):
            declare(broker_of(), retry=Policy(**{field: limits[field]}))


def test_coroutine_functions_in_a_policy_are_refused():
    """The middleware awaits nothing, also for asynchronous actors."""

    async def classify(error):
        """Answer, if awaited."""
        return True

    with pytest.raises(ConfigurationError, match="actor charge: on=.* is a coroutine function"):
        declare(broker_of(), retry=Policy(on=classify))


def test_the_policy_of_the_middleware_is_checked_as_well():
    """Errors appear where it is written."""
    with pytest.raises(PolicySyntaxError, match="PolicyRetries"):
        PolicyRetries(retry="many")
    with pytest.raises(PolicySyntaxError, match="soon"):
        PolicyRetries(hop="soon")
    with pytest.raises(PolicyValueError, match="hop"):
        PolicyRetries(hop="0s")


def test_a_catch_actor_that_does_not_exist_is_refused_when_a_worker_starts():
    """It may be declared after the actor that names it."""
    broker = broker_of()
    declare(broker, retry="1 1s catch refund")
    with pytest.raises(ConfigurationError, match="actor 'charge' is to be caught by 'refund', but no actor"):
        boot(broker)
    declare(broker, "refund")
    boot(broker)


def test_a_breaker_that_is_not_registered_is_refused_when_a_worker_starts():
    """A key without a breaker is a mistake."""
    broker = broker_of()
    declare(broker, retry=Policy(breaker="bank"))
    with isolated():
        with pytest.raises(ConfigurationError, match="actor charge: .*bank"):
            boot(broker)
        breaker("bank", BreakerSettings())
        boot(broker)
