"""Tests for `redrive.policy.stage`: how far a call got, as exceptions prove it."""

from __future__ import annotations

import asyncio
import concurrent.futures.process
import errno
import http.client
import imaplib
import multiprocessing
import smtplib
import socket
import ssl
import subprocess
import urllib.error
from functools import partial

import pytest
import requests
import urllib3

from redrive.errors import CircuitOpen, StoreOutcomeUnknown, UnambiguousTimeout
from redrive.policy import Failure, History, Policy, Stage
from redrive.policy.classify import described
from redrive.policy.failure import forbid_repetition, names_of_class
from redrive.policy.stage import stage_of_class
from tests.policy.strategies import START

NOT_SENT, IN_FLIGHT, ANSWERED = Stage.NOT_SENT, Stage.IN_FLIGHT, Stage.ANSWERED


class _LostOrder(ConnectionResetError):
    """An error of a program, derived from a built-in one."""


STAGES = [
    (ConnectionRefusedError(), NOT_SENT),
    (socket.gaierror(-2, "Name or service not known"), NOT_SENT),
    (socket.herror(1, "Unknown host"), NOT_SENT),
    (ssl.SSLCertVerificationError(), NOT_SENT),
    (TimeoutError(), IN_FLIGHT),
    (ConnectionResetError(), IN_FLIGHT),
    (BrokenPipeError(), IN_FLIGHT),
    (ConnectionAbortedError(), IN_FLIGHT),
    (ssl.SSLError(), IN_FLIGHT),
    (ssl.SSLEOFError(), IN_FLIGHT),
    (http.client.IncompleteRead(b""), IN_FLIGHT),
    (http.client.RemoteDisconnected(), IN_FLIGHT),
    (http.client.BadStatusLine("?"), IN_FLIGHT),
    (http.client.LineTooLong("header line"), IN_FLIGHT),
    (http.client.UnknownProtocol("HTTP/3"), IN_FLIGHT),
    (http.client.HTTPException("got more than 100 headers"), IN_FLIGHT),
    (http.client.InvalidURL(), ANSWERED),
    (http.client.CannotSendRequest(), ANSWERED),
    (http.client.NotConnected(), ANSWERED),
    (requests.exceptions.ConnectionError(http.client.HTTPException("got more than 100 headers")), IN_FLIGHT),
    (urllib3.exceptions.ProtocolError("Connection aborted.", http.client.HTTPException("too many")), IN_FLIGHT),
    (urllib.error.ContentTooShortError("got 1 of 2 bytes", b""), IN_FLIGHT),
    (multiprocessing.TimeoutError("pool"), IN_FLIGHT),
    (subprocess.TimeoutExpired("book", 5), IN_FLIGHT),
    (subprocess.CalledProcessError(1, "book"), ANSWERED),
    (concurrent.futures.process.BrokenProcessPool(), IN_FLIGHT),
    (imaplib.IMAP4.abort("socket error: EOF"), IN_FLIGHT),
    (imaplib.IMAP4.error("no such mailbox"), ANSWERED),
    (OSError(errno.EHOSTUNREACH, "No route to host"), IN_FLIGHT),
    (OSError(errno.ENETUNREACH, "Network is unreachable"), IN_FLIGHT),
    (OSError(errno.ENETRESET, "Network dropped connection on reset"), IN_FLIGHT),
    (OSError(errno.ENOTCONN, "Transport endpoint is not connected"), IN_FLIGHT),
    (OSError(errno.ENOSPC, "No space left on device"), ANSWERED),
    (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), ANSWERED),
    (urllib.error.URLError(OSError(errno.EHOSTUNREACH, "No route to host")), IN_FLIGHT),
    (asyncio.IncompleteReadError(b"", 4), IN_FLIGHT),
    (asyncio.LimitOverrunError("too long", 9), IN_FLIGHT),
    (smtplib.SMTPServerDisconnected("Connection unexpectedly closed"), IN_FLIGHT),
    (_LostOrder(), IN_FLIGHT),
    (CircuitOpen("open"), NOT_SENT),
    (StoreOutcomeUnknown("lost"), IN_FLIGHT),
    (UnambiguousTimeout("read"), ANSWERED),
    (OSError("disk"), ANSWERED),
    (ConnectionError("mine"), ANSWERED),
    (ValueError(), ANSWERED),
    (urllib.error.URLError("unknown url type"), ANSWERED),
    (urllib.error.URLError(ConnectionRefusedError()), NOT_SENT),
    (urllib.error.URLError(socket.gaierror()), NOT_SENT),
    (urllib.error.URLError(TimeoutError()), IN_FLIGHT),
    (ExceptionGroup("", [ConnectionRefusedError(), socket.gaierror()]), NOT_SENT),
    (ExceptionGroup("", [ConnectionRefusedError(), ValueError()]), ANSWERED),
    (ExceptionGroup("", [ConnectionRefusedError(), ExceptionGroup("", [TimeoutError()])]), IN_FLIGHT),
]


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """Return an error with an explicit cause."""
    error.__cause__ = cause
    return error


def raised(function):
    """Return the exception that a function raises."""
    with pytest.raises(Exception) as found:
        function()
    return found.value


@pytest.mark.parametrize(("error", "stage"), STAGES, ids=[repr(error) for error, _ in STAGES])
def test_an_exception_has_a_stage(error, stage):
    """Built-in exceptions have the stage that they mean, for `Failure.of` and for `Policy.classify`."""
    assert stage is Failure.of(error).stage
    assert stage is Policy(on=OSError).classify(error).stage


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (caused(ValueError(), TimeoutError()), IN_FLIGHT),
        (caused(ValueError(), ConnectionRefusedError()), NOT_SENT),
        (caused(ValueError(), KeyError()), ANSWERED),
        (caused(ValueError(), caused(KeyError(), BrokenPipeError())), IN_FLIGHT),
        (caused(ValueError(), urllib.error.URLError(TimeoutError())), IN_FLIGHT),
        (caused(ValueError(), KeyError("aborted", BrokenPipeError())), IN_FLIGHT),
        (caused(ConnectionRefusedError(), TimeoutError()), IN_FLIGHT),
        (caused(TimeoutError(), ConnectionRefusedError()), IN_FLIGHT),
    ],
)
def test_the_origins_of_an_exception_count(error, stage):
    """If one of the origins was in flight, the call was."""
    assert stage is Failure.of(error).stage


def test_a_circle_of_causes_has_an_end():
    """Each exception is looked at once."""
    first, second = KeyError(), ValueError()
    caused(first, second)
    caused(second, first)

    assert ANSWERED is Failure.of(first).stage


def test_an_exception_that_was_only_being_handled_is_no_origin():
    """The context of an exception may come from outside of the call."""
    error = ValueError()
    error.__context__ = TimeoutError()

    assert ANSWERED is Failure.of(error).stage


def test_a_given_stage_is_kept():
    """Integrations know more than the class of an exception shows."""
    assert [ANSWERED, NOT_SENT] == [Failure.of(TimeoutError(), stage=stage).stage for stage in (ANSWERED, NOT_SENT)]
    assert IN_FLIGHT is Failure.of(ValueError(), stage=IN_FLIGHT).stage
    group = Failure.of(ExceptionGroup("", [TimeoutError()]), stage="answered")
    assert {ANSWERED} == {each.stage for each in (group, *group.leaves)}
    group = Failure.of(ExceptionGroup("", [TimeoutError()]), stage=NOT_SENT)
    assert {NOT_SENT} == {each.stage for each in (group, *group.leaves)}


def full_server() -> tuple[socket.socket, list[socket.socket]]:
    """Return a listening socket that accepts no connection any more, and those that fill its queue."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    waiting = []
    for _ in range(4):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(server.getsockname())
        waiting.append(client)
    return server, waiting


async def opening(address):
    """Wait for a connection that does not come about."""
    await asyncio.wait_for(asyncio.open_connection(*address), 0.01)


@pytest.mark.parametrize(
    "connect",
    [
        lambda address: socket.create_connection(address, timeout=0.01),
        lambda address: http.client.HTTPConnection(*address, timeout=0.01).request("POST", "/"),
        lambda address: asyncio.run(opening(address)),
    ],
    ids=["socket", "http.client", "asyncio"],
)
def test_a_timeout_while_connecting_was_not_sent(connect):
    """The traceback proves that there was no connection."""
    server, waiting = full_server()
    try:
        error = raised(partial(connect, server.getsockname()))
    finally:
        for each in (server, *waiting):
            each.close()

    assert (True, NOT_SENT) == (isinstance(error, TimeoutError), Failure.of(error).stage)
    assert NOT_SENT is Failure.of(urllib.error.URLError(error)).stage


def test_a_network_that_is_lost_while_connecting_was_not_sent(monkeypatch):
    """The number of the error is one of a lost connection, too; the traceback proves that there was none."""

    def connect(*_):
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    monkeypatch.setattr(socket.socket, "connect", connect)
    error = raised(partial(socket.create_connection, ("127.0.0.1", 9)))

    assert NOT_SENT is Failure.of(error).stage
    assert NOT_SENT is Failure.of(urllib.error.URLError(error)).stage


class Declined(Exception):
    """An error of a program."""


@pytest.mark.parametrize("reason", [None, "DECLINED"])
@pytest.mark.parametrize(
    "error",
    [
        Declined(TimeoutError()),
        Declined("late", ConnectionRefusedError()),
        ExceptionGroup("", [Declined(TimeoutError())]),
    ],
    ids=repr,
)
def test_the_arguments_of_other_exceptions_are_no_origins(error, reason):
    """A retry in process does not look into each exception; `raise ... from` makes an origin."""
    assert ANSWERED is Failure.of(error, reason=reason).stage


def test_a_timeout_while_reading_was_in_flight():
    """There was a connection, so something may have been sent."""
    near, far = socket.socketpair()
    near.settimeout(0.01)
    with near, far:
        assert IN_FLIGHT is Failure.of(raised(partial(near.recv, 1))).stage


def test_the_class_alone_suffices_for_most_exceptions():
    """Only those whose stage may differ are looked at one by one, so that retries stay fast."""
    sure = [names_of_class(kind)[1:] for kind in (OSError, ConnectionRefusedError, TimeoutError)]

    assert [(True, ANSWERED), (True, NOT_SENT), (False, IN_FLIGHT)] == sure
    assert (ANSWERED, False) == stage_of_class(("requests.exceptions.RequestException", "builtins.OSError"))


# --------------------------------------------------------------------------------------------------------- decisions


def decided(policy: Policy, error: BaseException) -> str:
    """Return the rule of the decision after the first failure in process."""
    policy = policy.in_process()
    return policy.decide(History(1, START), policy.classify(error), START, 0.5).rule


@pytest.mark.parametrize("idempotent", [None, False, True])
@pytest.mark.parametrize(("error", "stage"), STAGES, ids=[repr(error) for error, _ in STAGES])
def test_a_call_in_flight_is_repeated_only_if_it_is_idempotent(error, stage, idempotent):
    """All other failures that the policy names are retried; so is a certificate only by its own name."""
    policy = Policy(on=(Exception, ssl.SSLCertVerificationError), idempotent=idempotent)

    assert decided(policy, error) == ("backoff" if stage is not IN_FLIGHT or idempotent else "not_idempotent")
    assert "backoff" == policy.durable().decide(History(1, START), Failure.of(ValueError()), START, 0.5).rule


def test_the_reason_of_the_end_names_the_remedy():
    """The note on the error says what allows a repetition."""
    end = Policy(on=TimeoutError).decide(History(1, START), Failure.of(TimeoutError()), START, 0.5)

    assert "idempotent=True" in end.why


@pytest.mark.parametrize("wrap", [lambda error: error, urllib.error.URLError], ids=["plain", "urllib"])
def test_a_certificate_is_not_trusted_a_second_later(wrap):
    """A policy retries it only under its own name; jobs, which may wait for days, retry it like any exception."""
    error = wrap(ssl.SSLCertVerificationError())

    assert "not_matched" == decided(Policy(on=OSError), error)
    assert "backoff" == decided(Policy(on=("ssl.SSLCertVerificationError", OSError)), error)
    assert "backoff" == decided(Policy(on=lambda _: True), error)
    assert "backoff" == Policy(idempotent=False).decide(History(1, START), Failure.of(error), START, 0.5).rule


# ----------------------------------------------------------------------------------------------- the callee's word


def test_the_stricter_of_both_declarations_holds():
    """A function declared not idempotent is not repeated in flight, whatever the policy around it allows."""
    policy = Policy(on=Exception, idempotent=True)
    lost, refused = TimeoutError(), ConnectionRefusedError()
    for error in (lost, refused):
        forbid_repetition(error, "bank.charge", 0.0)

    assert ["not_idempotent", "backoff"] == [decided(policy, error) for error in (lost, refused)]
    assert "not_idempotent" == decided(policy, caused(ValueError(), lost))
    assert "not_idempotent" == decided(policy, ExceptionGroup("", [lost]))
    assert "bank.charge" == Failure.of(lost).once


def test_the_word_of_the_callee_is_read_beside_a_classifier():
    """A classifier that returns a whole failure describes the exception, and not the function that raised it."""
    error = ValueError()
    forbid_repetition(error, "bank.charge", 0.0)
    told = Failure((), "lost", stage=IN_FLIGHT)

    assert "bank.charge" == described(error, told, None).once
    assert "other" == described(error, told._replace(once="other"), None).once
    assert False is described(error, told._replace(candidate=False), None).candidate
