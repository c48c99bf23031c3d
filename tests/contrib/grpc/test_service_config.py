"""Service configs of gRPC: the policies of methods, and the throttle."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from redrive.contrib.grpc import read_service_config
from redrive.errors import PolicySyntaxError, PolicyValueError


def retry(attempts):
    """Return a retry policy."""
    return {
        "maxAttempts": attempts,
        "initialBackoff": "0.1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }


CONFIG = {
    "loadBalancingPolicy": "round_robin",
    "methodConfig": [
        {"name": [{}], "retryPolicy": retry(2)},
        {"name": [{"service": "shop.Orders"}], "retryPolicy": retry(3)},
        {
            "name": [{"service": "shop.Orders", "method": "Place"}, {"service": "shop.Orders", "method": "Pay"}],
            "timeout": "2.5s",
            "retryPolicy": retry(4),
        },
        {"name": [{"service": "shop.Stock", "method": "Take"}], "timeout": "1s"},
        {"name": [{"service": "shop.Stock", "method": "Look"}], "hedgingPolicy": {"maxAttempts": 2}},
        {"retryPolicy": retry(5)},
    ],
    "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.1},
}


@pytest.mark.parametrize("form", [dict, json.dumps, lambda document: json.dumps(document).encode()])
@pytest.mark.parametrize(
    ("method", "attempts"),
    [("/shop.Orders/Place", 4), ("shop.Orders/Pay", 4), ("/shop.Orders/List", 3), ("/shop.Carts/List", 2), ("odd", 2)],
)
def test_the_nearest_name_wins(form, method, attempts):
    """Entries of a method take precedence over those of its service, and these over the one for all methods."""
    assert attempts == read_service_config(form(CONFIG)).policy_for(method).attempts


def test_a_timeout_is_the_deadline():
    """Timeouts of a method bound all its attempts together."""
    config = read_service_config(CONFIG)

    assert timedelta(seconds=2.5) == config.policy_for("/shop.Orders/Place").deadline
    assert config.policy_for("/shop.Orders/List").deadline_given is False


def test_a_method_need_not_be_retried():
    """Methods without an entry, or with an entry that has neither policy, are not retried."""
    assert None is read_service_config(CONFIG).policy_for("/shop.Stock/Take")
    assert None is read_service_config({}).policy_for("/shop.Stock/Take")


def test_a_method_may_be_hedged():
    """Hedging policies are found in the same way."""
    assert 2 == read_service_config(CONFIG).policy_for("/shop.Stock/Look").hedge.attempts


def test_the_client_may_raise_the_bound():
    """Clients bound the attempts of all methods."""
    assert 3 == read_service_config(CONFIG, most=3).policy_for("/shop.Orders/Place").attempts


def test_the_server_may_have_a_throttle():
    """Throttles belong to the server, and are optional."""
    assert 100 == read_service_config(CONFIG).throttling.max_tokens
    assert None is read_service_config({}).throttling


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], r"the service config \[\] is not a JSON object"),
        ("[]", r"the service config \[\] is not a JSON object"),
        ({"methodConfig": {}}, r"methodConfig: {} is not a list"),
        ({"methodConfig": [1]}, r"methodConfig\[0\]: 1 is not a JSON object"),
        ({"methodConfig": [{}, {"retryPolicy": {}}]}, r"methodConfig\[1\].retryPolicy.maxAttempts: it is missing"),
        ({"methodConfig": [{"retryPolicy": retry(2), "hedgingPolicy": {}}]}, "exclude each other"),
        ({"methodConfig": [{"timeout": "0s"}]}, r"methodConfig\[0\].timeout: '0s' is not above zero"),
        ({"methodConfig": [{"timeout": 1}]}, r"methodConfig\[0\].timeout: 1 is not a duration"),
        ({"methodConfig": [{"name": {}}]}, r"methodConfig\[0\].name: {} is not a list of names"),
        ({"methodConfig": [{"name": ["a"]}]}, r"methodConfig\[0\].name\[0\]: 'a' is not of the form"),
        ({"methodConfig": [{"name": [{"service": 1}]}]}, r"methodConfig\[0\].name\[0\]: .* is not of the form"),
        ({"methodConfig": [{"name": [{"method": "M"}]}]}, "the method 'M' needs a service"),
        ({"methodConfig": [{"name": [{}]}, {"name": [{"service": ""}]}]}, "methodConfig: / is named more than once"),
    ],
)
def test_a_config_that_is_wrong_is_refused(config, message):
    """Errors in a config are reported with their place."""
    with pytest.raises(PolicyValueError, match=message):
        read_service_config(config)


def test_text_that_is_no_json_is_refused():
    """Text that is not JSON is a syntax error."""
    with pytest.raises(PolicySyntaxError, match="the service config is not JSON: .*line 1 column 2"):
        read_service_config("{")
