"""Celery: real brokers from Debian, and real workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import _state

from tests.contrib.celery.rig.rabbitmq import RabbitServer
from tests.contrib.celery.rig.workers import Shop
from tests.contrib.redis.rig.server import RedisServer
from tests.debian import needed, program

SWEEP = '{"visibility_timeout": 4, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}'
"""Options of Redis: a message that is not acknowledged within 4 s is delivered again; Redis looks each second."""


@pytest.fixture(autouse=True)
def own_tasks(monkeypatch: pytest.MonkeyPatch):
    """Leave out the tasks that other tests, and pages of the documentation, share with each app of this process."""
    finalizers = {each for each in _state._on_app_finalizers if each.__module__ == "celery.app.builtins"}
    monkeypatch.setattr(_state, "_on_app_finalizers", finalizers)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory):
    """Start RabbitMQ."""
    # The wrapper in the path changes the user, and its server has one folder.
    needed("rabbitmq-server", lambda: program("rabbitmq-server"))
    script = next(Path("/usr/lib/rabbitmq/lib").glob("*/sbin/rabbitmq-server"))
    with RabbitServer(str(script), tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """Start Redis."""
    binary = needed("redis-server", lambda: program("redis-server"))
    with RedisServer(binary, tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def open_shop(request, tmp_path):
    """Return a function that opens a shop on a broker; its workers are ended after the test."""
    opened = []

    def open_(broker: str, **environment: str) -> Shop:
        opened.append(_open(request, tmp_path, broker, environment))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


@pytest.fixture(scope="module", params=["rabbitmq", "redis"])
def running(request, tmp_path_factory):
    """Return a shop with a worker that several tests share, once on each broker."""
    shop = _open(request, tmp_path_factory.mktemp("shop"), request.param, {})
    shop.start("-c", "4")
    yield shop
    shop.close()


def _open(request, folder, broker, environment):
    if broker == "redis":
        server = request.getfixturevalue("redis_server")
        url = f"redis://127.0.0.1:{server.port}/0"
        backend = f"redis://127.0.0.1:{server.port}/1"
    else:
        url, results = request.getfixturevalue("rabbitmq").url, folder / "results"
        results.mkdir(exist_ok=True)
        backend = f"file://{results}"
    return Shop(folder, url, backend, **environment)


@pytest.fixture(params=["rabbitmq", "redis"])
def broker(request):
    """Provide both brokers."""
    return request.param
