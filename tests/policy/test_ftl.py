"""Tests of `redrive.policy.ftl` beyond the cases of the conformance suite."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyError, PolicySyntaxError, PolicyValueError
from redrive.policy import Policy, ftl
from redrive.policy.directive import Directive
from redrive.policy.duration import LONGEST
from redrive.policy.ftl import Written

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
LIMIT, RETRY = "could not parse", "could not parse retry duration"
UNITS = "use 'd', 'h', 'm' or 's', eg '1d' or '30s'"
ORDER = "units need to be ordered from largest to smallest - eg '1d3h2m'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 5s 1m catch mod.verb", Written(10, "5s", "1m", "mod.verb")),
        ("0 ", Written(0, "", "", None)),
        ("0\n", Written(0, "", "", None)),
        ("1 catch retry", Written(1, "", "", "retry")),
        ("5s5", Written(None, "5s5", "", None)),
        ("1.5s", Written(None, "1.5s", "", None)),
        ("", Written(None, "", "", None)),
    ],
)
def test_shapes_are_read(text: str, expected: Written):
    """`parse` reads shapes only and leaves limits to the validation."""
    assert expected == ftl.parse(text)


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("10 5 s", '1:13: unexpected token "s"'),
        ("10", '1:10: unexpected token "<EOF>" (expected <ident>)'),
        ("5s 10 ", '1:14: unexpected token "<EOF>"'),
        ("5s catch a.", '1:19: unexpected token "<EOF>" (expected <ident>)'),
        ('5s "a b"', '1:11: unexpected token "a b"'),
        ("5s // why", '1:11: unexpected token "// why"'),
        ("5s ;", '1:11: invalid input text ";"'),
        ("5s ü" + "x" * 20, '1:11: invalid input text "ü' + "x" * 15 + '..."'),
        ('5s \\"', '1:12: invalid input text "\\""'),
        ("5s \x01", '1:11: invalid input text "\\x01"'),
        ("1.5 5s", 'MetadataRetry.Count: strconv.ParseInt: parsing "1.5": invalid syntax'),
        ("1.0 5s foo", 'MetadataRetry.Count: strconv.ParseInt: parsing "1.0": invalid syntax'),
        ("1.0 5s catch", '1:20: unexpected token "<EOF>" (expected <ident>)'),
    ],
)
def test_wrong_shapes_are_refused_with_the_text_of_ftl(text: str, schema: str):
    """Wrong shapes have the text of FTL's schema parser."""
    with pytest.raises(PolicySyntaxError) as refused:
        ftl.parse(text)

    assert schema == str(refused.value)


@pytest.mark.parametrize(
    ("text", "go"),
    [
        ("10 5 s", '1:16: unexpected token "s"'),
        ("10", '1:13: unexpected token "<EOF>" (expected <ident>)'),
        ("1.5 5s", 'DirectiveRetry.Count: strconv.ParseInt: parsing "1.5": invalid syntax'),
    ],
)
def test_go_message_has_the_text_of_the_go_parser(text: str, go: str):
    """`go_message` derives the text of FTL's other parser from the error."""
    with pytest.raises(PolicySyntaxError) as refused:
        ftl.parse(text)

    assert go == ftl.go_message(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "retry must have a minimum backoff"),
        (
            "5x",
            f'{LIMIT} min backoff duration: {RETRY}: duration has unknown unit "x" - {UNITS}',
        ),
        (
            "5s 1m1m",
            f'{LIMIT} max backoff duration: {RETRY}: duration has unit "m" out of order - {ORDER}',
        ),
        ("0s", "could not parse min backoff duration: retry must have a minimum backoff of 1s"),
        ("1s 25h", "could not parse max backoff duration: retry backoff can not be larger than 1d"),
    ],
)
def test_invalid_values_are_refused_with_the_text_of_ftl(text: str, problem: str):
    """Invalid values have the text of FTL's validation."""
    with pytest.raises(PolicyValueError) as refused:
        Policy.parse(text, strict=True)

    assert problem == str(refused.value)


def test_leading_zeros_are_no_overflow():
    """Long numbers with leading zeros do not overflow."""
    assert 7 == ftl.parse("0000000000000000000000000000007 5s").count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", Directive(10, 5 * SECOND, HOUR, None)),
        ("0 ", Directive(0, SECOND, HOUR, None)),
        ("0 catch x", Directive(0, SECOND, HOUR, "x")),
        ("1h 1d", Directive(10, HOUR, 24 * HOUR, None)),
    ],
)
def test_directives_get_the_defaults_of_ftl(text: str, expected: Directive):
    """Valid directives have FTL's defaults filled in."""
    assert expected == ftl.read_directive(text)


def test_a_count_below_zero_is_a_problem():
    """FTL's annotation for the JVM can have one, beside other problems."""
    negative, minimum = "retry count can not be negative", "retry must have a minimum backoff"
    assert [negative] == ftl.Written(-1, "1s", "", None).problems()
    assert [negative, minimum] == ftl.Written(-1, "", "", None).problems()


def test_all_problems_are_reported():
    """FTL reports two problems of one directive together."""
    problems = [
        "max backoff duration (1s) needs to be at least as long as initial backoff (5s)",
        "can not define a backoff duration when retry count is 0 and no catch is declared",
    ]

    assert problems == ftl.parse("0 5s 1s").problems()
    with pytest.raises(PolicyValueError) as refused:
        Policy.parse("0 5s 1s", strict=True)
    assert "; ".join(problems) == str(refused.value)


@pytest.mark.parametrize("text", ["x", "5", "5s1", "-5s", "5s 5s"])
def test_invalid_durations_are_refused_with_the_text_of_ftl(text: str):
    """Invalid durations are shown from the place of the fault."""
    with pytest.raises(PolicyValueError, match=r'unable to parse duration ".*" - expected duration in format like'):
        ftl.parse_duration(text)


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("1d1h1m1s", 90061), ("1m90s", 150), ("007s", 7)])
def test_durations_are_read(text: str, expected: int):
    """Durations have whole numbers of days, hours, minutes and seconds; an empty text is zero."""
    assert expected * SECOND == ftl.parse_duration(text)


def test_long_durations_do_not_overflow():
    """Durations that overflow FTL's nanoseconds are computed correctly, and cut at a thousand years."""
    assert 18446744075 * SECOND == ftl.parse_duration("18446744075s")
    assert LONGEST == ftl.parse_duration("9223372036854775807d")
    with pytest.raises(PolicyValueError, match="value out of range"):
        ftl.parse_duration("9223372036854775808d")


@given(st.text(alphabet='0123456789dhms catch.-\n"/', max_size=20))
def test_directives_of_ftl_are_valid_directives(text: str):
    """Whatever strict mode accepts, our own reading accepts with the same meaning."""
    try:
        policy = Policy.parse(text, strict=True)
    except PolicyError:
        return
    assert policy == Policy.parse(text)


def test_blanks_before_a_directive_are_skipped():
    """Blanks in front of a directive do not change it."""
    assert Policy.parse("5 1s", strict=True) == Policy.parse("  5 1s", strict=True)
