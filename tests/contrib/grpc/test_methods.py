"""The idempotency that a `.proto` file declares for a method."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import grpc
import pytest

from redrive.contrib.grpc.interceptors import is_idempotent
from tests.contrib.grpc.conftest import AT_ONCE
from tests.contrib.grpc.rig.server import fail

LEVELS = {"test.Orders.Place": 0, "test.Orders.Read": 1, "test.Orders.Put": 2, "test.Orders.Later": 3}


class _Pool:
    """A descriptor pool with the methods of ``protobuf`` that are used."""

    def __init__(self, levels):
        self.levels = levels

    def FindMethodByName(self, name):  # noqa: N802 - the name of the library
        """Return the descriptor of a method, or raise KeyError as the library does."""
        options = SimpleNamespace(idempotency_level=self.levels[name])
        return SimpleNamespace(GetOptions=lambda: options)


@pytest.fixture
def declared(monkeypatch):
    """Return a function that puts declarations into the default descriptor pool."""

    def declare(levels):
        module = SimpleNamespace(Default=lambda: _Pool(levels))
        monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pool", module)

    return declare


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("/test.Orders/Place", False),
        ("/test.Orders/Read", True),
        ("/test.Orders/Put", True),
        ("/test.Orders/Later", False),
        ("/test.Orders/Missing", False),
    ],
)
def test_a_method_is_idempotent_if_it_is_declared_so(declared, method, expected):
    """Absent and unknown levels are no declaration."""
    declared(LEVELS)

    assert expected is is_idempotent(method)


def test_a_program_without_protobuf_declares_nothing(monkeypatch):
    """The module is looked up, and not imported."""
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pool", None)

    assert is_idempotent("/test.Orders/Read") is False


@pytest.mark.parametrize(
    ("level", "word", "calls"),
    [(0, None, 1), (1, None, 2), (2, None, 2), (2, False, 1), (0, True, 2)],
)
def test_a_channel_obeys_the_declaration_of_a_method(colour, server, declared, level, word, calls):
    """A policy that leaves it open is decided by the method; the policy's own word holds."""
    declared({"shop.Orders.Place": level})
    server.steps = [fail("UNAVAILABLE")]
    policy = AT_ONCE.with_(idempotent=word)

    if calls == 1:
        with pytest.raises(grpc.RpcError):
            colour.call(colour.channel(server.port, policy))
    else:
        colour.call(colour.channel(server.port, policy))

    assert calls == len(server.calls)
