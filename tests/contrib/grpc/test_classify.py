"""Classification of the errors of ``grpcio``."""

from __future__ import annotations

from datetime import timedelta

import grpc
import pytest

from redrive.contrib.grpc import describe
from redrive.contrib.grpc.classify import mark, retry_info
from redrive.policy import Stage
from redrive.policy.duration import LONGEST

TYPE = b"type.googleapis.com/google.rpc.RetryInfo"


class FakeRpcError(grpc.RpcError):
    """An error with the methods of ``grpcio``'s errors."""

    def __init__(self, code=grpc.StatusCode.UNAVAILABLE, details="", *, trailers=(), headers=()):
        super().__init__()
        self.code = lambda: code
        self.details = lambda: details
        self.trailing_metadata = lambda: trailers
        self.initial_metadata = lambda: headers


def field(number, content):
    """Return a protobuf field that holds bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def status(duration, kind=TYPE):
    """Return a ``google.rpc.Status`` with one detail and other fields that must be skipped."""
    detail = field(1, kind) + field(2, field(1, duration))
    skipped = b"\x08\x0e" + b"\x25aaaa" + b"\x29aaaaaaaa" + field(2, b"words")
    return [("other", "x"), ("grpc-status-details-bin", skipped + field(3, detail))]


@pytest.mark.parametrize(
    ("details", "connected", "stage"),
    [
        ("failed to connect to all addresses; last error: ...", False, Stage.NOT_SENT),
        ("errors resolving nowhere.example:1: [...]", False, Stage.NOT_SENT),
        ("failed to connect to all addresses; last error: ...", True, Stage.IN_FLIGHT),
        ("Socket closed", False, Stage.IN_FLIGHT),
        ("", False, Stage.IN_FLIGHT),
    ],
)
def test_only_details_and_channel_state_prove_a_refusal(details, connected, stage):
    """Details and channel state together prove that nothing was sent."""
    error = FakeRpcError(details=details)
    mark(error, connected=connected)

    assert describe(error).stage is stage


@pytest.mark.parametrize(
    ("address", "stage"), [("ipv4:10.0.0.7:443", Stage.NOT_SENT), ("ipv4:10.0.0.8:443", Stage.IN_FLIGHT)]
)
def test_details_with_the_channels_address_are_proof(address, stage):
    """Details with the channel's own address suffice: the channel may have reconnected since the failure."""
    error = FakeRpcError(details="failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.7:443: refused")
    mark(error, connected=True, address=address)

    assert describe(error).stage is stage


def test_without_a_redrive_channel_nothing_is_proved():
    """Errors of other channels lack the state of the channel."""
    assert describe(FakeRpcError(details="failed to connect to all addresses")).stage is Stage.IN_FLIGHT


def test_an_error_without_details_is_not_marked():
    """Errors without details, such as those of a user's interceptor, are not marked."""
    error = grpc.RpcError("mine")
    mark(error, connected=False)

    assert vars(error) == {}


def test_an_answer_is_one_by_its_code():
    """Codes that only applications use prove an answer, whatever the progress."""
    failure = describe(FakeRpcError(grpc.StatusCode.NOT_FOUND, "no such order"))

    assert (Stage.ANSWERED, "GRPC_NOT_FOUND", "NOT_FOUND: no such order") == (
        failure.stage,
        failure.reason,
        failure.message,
    )


@pytest.mark.parametrize(
    "error", [ValueError("x"), FakeRpcError(grpc.StatusCode.OK), grpc.RpcError(), FakeRpcError(None)]
)
def test_other_errors_are_not_described(error):
    """Other exceptions and successes have no description."""
    assert describe(error) is None


@pytest.mark.parametrize(
    ("duration", "span"),
    [
        (b"\x08\x05", timedelta(seconds=5)),
        (b"\x08\x81\x01", timedelta(seconds=129)),
        (b"\x10\x01", timedelta(microseconds=1)),
        (b"", timedelta(0)),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", None),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\x7f", LONGEST),
        (b"\x08", None),
        (b"\x0b", None),
        (b"\x0a\x7f", None),
    ],
    ids=["5 s", "129 s", "1 ns", "0", "-1 s", "very long", "cut", "a group", "too short"],
)
def test_a_retry_info_is_read(duration, span):
    """Round the time up; ignore negative and broken ones."""
    assert retry_info(status(duration)) == span


def test_other_details_are_ignored():
    """Other details, and bytes that are not a status, are ignored."""
    assert retry_info(status(b"\x08\x05", b"type.googleapis.com/google.rpc.Help")) is None
    assert retry_info([("grpc-status-details-bin", "text")]) is None
    assert retry_info([]) is None


class Odd(Exception):
    """An exception whose methods and attributes raise."""

    def code(self):
        """Fail."""
        raise KeyError("code")

    details = property(lambda _: {}["details"])


def test_an_exception_whose_methods_raise_is_no_error_of_grpc():
    """An exception that has only the names in common is no failure of a call, and can be marked."""
    error = Odd()
    mark(error, connected=True)

    assert describe(error) is None
