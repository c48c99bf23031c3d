"""The question after a lost COMMIT, with answers that no server gives on demand."""

from __future__ import annotations

import pytest

from redrive.contrib.transactions.adapter import drive
from redrive.contrib.transactions.commit_status import PATIENCE, Receipt, transaction_status
from redrive.policy import Policy
from redrive.testing import VirtualClock, using

RECEIPT = Receipt("742", "7000/00000001")


class Oracle:
    """An adapter with a server that returns prepared answers."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def another(self):
        """Return this adapter."""
        return self

    def code_of(self, error):
        """Return the text of the error."""
        return str(error) or None

    def open(self):
        """Do nothing."""
        return
        yield

    def begin(self, isolation):
        """Do nothing."""
        return
        yield

    def ask(self, statement, value=None):
        """Return the next answer, or raise it if it is an exception; the last one is repeated."""
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return (answer,)
        yield

    def rollback(self, error):
        """Do nothing."""
        return False
        yield

    def close(self, *, usable):
        """Do nothing."""
        return
        yield


@pytest.mark.parametrize(
    ("answers", "expected", "asked"),
    [
        (["committed"], "committed", 1),
        (["aborted"], "aborted", 1),
        (["in progress", "in progress", "committed"], "committed", 3),
        ([OSError(), RuntimeError("57P03"), "aborted"], "aborted", 3),
        ([RuntimeError("22023"), "committed"], None, 1),
        ([RuntimeError("")], None, 1),
        ([None], None, 1),
    ],
)
def test_the_server_is_asked_until_it_answers(answers, expected, asked):
    """Repeat the query while the transaction is in progress or the server is away."""
    oracle = Oracle(*answers)

    with using(clock=VirtualClock()):
        assert expected == drive(transaction_status(oracle, RECEIPT, is_async=False))

    assert asked == oracle.asked


def test_the_wait_for_a_commit_status_is_bounded():
    """Sessions that hang in their COMMIT leave its outcome unknown."""
    clock = VirtualClock()

    with using(clock=clock):
        assert "in progress" == drive(transaction_status(Oracle("in progress"), RECEIPT, is_async=False))

    assert PATIENCE.total_seconds() - 1 < clock.monotonic() <= PATIENCE.total_seconds()


def test_a_deadline_shortens_the_wait_for_a_commit_status():
    """Deadlines shorten the wait for the outcome."""
    clock = VirtualClock()

    with using(clock=clock):
        policy = Policy(on=KeyError, deadline="2s", attempts=1)
        assert "in progress" == policy.call(
            lambda: drive(transaction_status(Oracle("in progress"), RECEIPT, is_async=False))
        )

    assert 1 <= clock.monotonic() <= 2


@pytest.mark.parametrize(("receipt", "expected"), [(Receipt(None, "x"), "aborted"), (Receipt("742", None), None)])
def test_some_receipts_need_no_query(receipt, expected):
    """Transactions without an id have written nothing; receipts of a standby prove nothing."""
    oracle = Oracle("committed")

    assert expected == drive(transaction_status(oracle, receipt, is_async=False))
    assert 0 == oracle.asked
