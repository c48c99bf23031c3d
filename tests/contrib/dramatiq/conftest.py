"""Dramatiq: real brokers from Debian, and real workers."""

from __future__ import annotations

import pytest

from tests.contrib.celery.conftest import rabbitmq, redis_server
from tests.contrib.dramatiq.rig.bazaars import Bazaar

__all__ = ["rabbitmq", "redis_server"]


@pytest.fixture
def open_bazaar(request, tmp_path):
    """Return a function that opens a queue on a broker; its workers are ended after the test."""
    opened = []

    def open_(broker: str, **environment: str) -> Bazaar:
        opened.append(_open(request, tmp_path, broker, environment))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


@pytest.fixture(scope="module", params=["rabbitmq", "redis"])
def running(request, tmp_path_factory):
    """Return a queue with a worker that several tests share, once on each broker."""
    bazaar = _open(request, tmp_path_factory.mktemp("bazaar"), request.param, {})
    bazaar.start()
    yield bazaar
    bazaar.close()


@pytest.fixture(params=["rabbitmq", "redis"])
def broker(request):
    """Provide both brokers."""
    return request.param


def _open(request, folder, broker, environment):
    if broker == "redis":
        url = f"redis://127.0.0.1:{request.getfixturevalue('redis_server').port}/0"
    else:
        url = request.getfixturevalue("rabbitmq").url.removesuffix("/") + "%2F"
    return Bazaar(folder, url, **environment)
