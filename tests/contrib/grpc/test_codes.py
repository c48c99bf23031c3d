"""gRPC's status codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from redrive.contrib.grpc import Code
from redrive.contrib.grpc.progress import NEVER_LEFT, NOT_PROCESSED
from redrive.errors import PolicyValueError
from redrive.policy import Stage
from redrive.policy.reason import GRPC_REASONS


@pytest.mark.parametrize("given", [14, 14.0, "UNAVAILABLE", "unavailable", "Unavailable"])
def test_a_code_is_read_in_every_form(given):
    """Codes are numbers, also whole floats, or names in any case."""
    assert Code.UNAVAILABLE is Code.of(given)


@pytest.mark.parametrize("code", Code)
def test_codes_are_read_back(code: Code):
    """Each code is found by its number and by its name."""
    assert code is Code.of(code) is Code.of(code.value) is Code.of(code.name.lower())


@pytest.mark.parametrize(
    "given", [17, -1, 1.5, True, False, None, "", "NOPE", "14", "unava\u0131lable", float("nan"), [14]]
)
def test_an_invalid_code_is_refused(given):
    """Numbers and texts that are not a code are refused, with the valid forms."""
    with pytest.raises(PolicyValueError, match="is not a status code of gRPC: give a number from 0 to 16, or a name"):
        Code.of(given)


def test_a_code_is_a_reason():
    """Each code has a name that policies and rules can use."""
    assert "GRPC_DEADLINE_EXCEEDED" == Code.DEADLINE_EXCEEDED.reason


def test_policies_know_the_reasons_of_failures():
    """The names that a policy accepts are those of the codes but OK, and the two kinds of transparent retries."""
    assert {code.reason for code in Code if code is not Code.OK} | {NEVER_LEFT, NOT_PROCESSED} == set(GRPC_REASONS)


def test_only_answers_of_the_application_are_answers():
    """Codes that libraries generate prove nothing."""
    unproved = {
        "CANCELLED",
        "UNKNOWN",
        "DEADLINE_EXCEEDED",
        "RESOURCE_EXHAUSTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
    }

    assert unproved == {code.name for code in Code if code.stage is Stage.IN_FLIGHT}


def test_only_channels_need_the_library():
    """Every name except the channels can be imported without ``grpcio``."""
    code = "import sys; sys.modules['grpc'] = None; import redrive.contrib.grpc as found; print(len(found.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
