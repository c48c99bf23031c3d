"""Tests of `redrive.policy.directive`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyError, PolicySyntaxError, PolicyValueError
from redrive.policy import Backoff, Policy, Rule, format_duration
from redrive.policy.directive import Directive, read_directive

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", Directive(10, 5 * SECOND, HOUR, None)),
        ("10 5s", Directive(10, 5 * SECOND, HOUR, None)),
        ("5s 10m", Directive(10, 5 * SECOND, 600 * SECOND, None)),
        ("10 5s 1m", Directive(10, 5 * SECOND, 60 * SECOND, None)),
        ("5s 5s", Directive(10, 5 * SECOND, 5 * SECOND, None)),
        ("2h", Directive(10, 2 * HOUR, 2 * HOUR, None)),
        ("3 100ms 2s", Directive(3, SECOND / 10, 2 * SECOND, None)),
        ("25h 100d", Directive(10, 25 * HOUR, 2400 * HOUR, None)),
        ("3 0s", Directive(3, 0 * SECOND, HOUR, None)),
        ("0", Directive(0, SECOND, HOUR, None)),
        ("0 catch t", Directive(0, SECOND, HOUR, "t")),
        ("0 1s catch t", Directive(0, SECOND, HOUR, "t")),
        ("5 1s catch recover", Directive(5, SECOND, HOUR, "recover")),
        ("1s catch payments.recover", Directive(10, SECOND, HOUR, "payments.recover")),
        ("1s catch catch", Directive(10, SECOND, HOUR, "catch")),
        ("  10 \t 5s\n1m ", Directive(10, 5 * SECOND, 60 * SECOND, None)),
        ("010 05s", Directive(10, 5 * SECOND, HOUR, None)),
    ],
)
def test_directives_are_read(text: str, expected: Directive):
    """Directives have retries, a minimum, a maximum and a catch, all optional but the minimum."""
    assert expected == read_directive(text)


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("", 0, "the retry directive is empty"),
        ("  ", 0, "the retry directive is empty"),
        ("10", 2, "a minimum backoff is missing"),
        ("10 catch recover", 2, "a minimum backoff is missing"),
        ("catch recover", 0, "a minimum backoff is missing"),
        ("10 5 s", 4, "there is a blank between 5 and its unit"),
        ("10 5 second", 4, "there is a blank between 5 and its unit"),
        ("10 5", 4, "the duration 5 has no unit"),
        ("5s 10", 5, "the duration 10 has no unit"),
        ("5 seconds", 2, "'seconds' is not a minimum backoff"),
        ("-1 5s", 0, "the number of retries is negative"),
        ("+1 5s", 0, "the number of retries has no sign"),
        ("1.5 5s", 0, "the number of retries is not whole"),
        ("10 -5s", 3, "a duration has no sign"),
        ("10 .5s", 3, "a duration takes whole numbers only"),
        ("10,5s", 2, "the number 10 has no unit"),
        ("1.5s", 1, "a duration takes whole numbers only"),
        ("10 5s1m", 6, "the unit 'm' comes after 's'"),
        ("5s 10m 20m", 7, "only a catch can follow, not '20m'"),
        ("5s foo", 3, "'foo' is not a maximum backoff or catch <task>"),
        ("abc", 0, "'abc' is not a minimum backoff"),
        ("- 5s", 0, "a duration has no sign"),
        ("٣s", 0, "a duration cannot contain '٣' here"),
        ("Catch foo", 0, "the keyword 'Catch' is not lower case"),
        ("5s CATCH foo", 3, "the keyword 'CATCH' is not lower case"),
        ("5s catch", 8, "the name of the catch task is missing"),
        ("5s catch a.b.c", 12, "a catch task is named by one name, or by a module and a name"),
        ("5s catch 1a", 9, "'1a' is not a name"),
        ("5s catch a.", 11, "'' is not a name"),
        ("5s catch foo bar", 13, "there is nothing after the catch task, but 'bar'"),
    ],
)
def test_faults_are_refused_with_their_place(text: str, at: int, message: str):
    """Unreadable directives are refused with the place of the fault."""
    with pytest.raises(PolicySyntaxError) as refused:
        read_directive(text)

    assert (text, at, message) == (refused.value.text, refused.value.at, refused.value.problem)


def test_a_duration_in_words_is_answered_with_the_short_form():
    """Blanks separate the parts of a directive, so that a duration in words has no place there."""
    with pytest.raises(PolicySyntaxError, match=r"write 1s: in a directive, blanks stand between durations"):
        read_directive("5 1 second 10 seconds")


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("0 5s", 2, "a backoff without retries and without a catch task has nothing to delay"),
        ("1m 1s", 3, "the maximum backoff 1s is shorter than the minimum"),
        ("9223372036854775808 1s", 0, "the number of retries is too large"),
    ],
)
def test_invalid_values_are_refused_with_their_place(text: str, at: int, message: str):
    """Readable directives with an invalid value are refused with the place of the fault."""
    with pytest.raises(PolicyValueError) as refused:
        read_directive(text)

    assert (text, at, message) == (refused.value.text, refused.value.at, refused.value.problem)


@pytest.mark.parametrize(
    "text",
    [
        "//ftl:retry 10 5s 1m catch recover",
        " ftl:retry  10 5s 1m catch recover",
        "+retry 10 5s 1m catch recover",
        "+retry attempts=10 min=5s max=1m catch=recover",
        "//ftl:retry max=1m catch=recover min-backoff=5s count=10",
    ],
)
def test_pasted_directives_are_read(text: str):
    """Directives may have the introduction that they have in FTL's sources, and then names for their parts."""
    assert Directive(10, 5 * SECOND, 60 * SECOND, "recover") == read_directive(text)


@pytest.mark.parametrize("introduction", ["//ftl:retry ", "+retry "])
def test_pasted_directives_are_read_strictly(introduction: str):
    """FTL's reading takes the introduction off, too, and counts columns behind it."""
    assert Policy.parse("10 5s 1m") == Policy.parse(f"{introduction}10 5s 1m", strict=True)
    with pytest.raises(PolicySyntaxError, match="^1:8: unexpected token"):
        Policy.parse(f"{introduction}x", strict=True)


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("+retry", 6, "the retry directive is empty"),
        ("+retry min=5s min=1s", 14, "'min=1s' is not a part with a name that is still free"),
        ("+retry min=5s 1m", 14, "'1m' is not a part with a name that is still free"),
        ("+retry min=", 7, "'min=' is not a part with a name that is still free"),
        ("+retry first=5s", 7, "'first=5s' is not a part with a name that is still free"),
        ("+retry attempts=10 min=5x", 24, "there is no unit 'x'"),
        ("+retry attempts=10", 18, "a minimum backoff is missing"),
        ("+retry catch recover", 7, "a minimum backoff is missing"),
        ("+retry catch=recover", 7, "a minimum backoff is missing"),
        ("+retry max=1m", 11, "a minimum backoff is missing"),
        ("+retry attempts=5 max=1m", 22, "a minimum backoff is missing"),
        ("+retry attempts=0 max=1m catch=recover", 22, "a minimum backoff is missing"),
        ("+retry min=10 max=5s", 13, "the duration 10 has no unit"),
        ("+retry max=10 min=5s", 13, "the duration 10 has no unit"),
        ("+retry attempts=5s min=1m", 16, "'5s' is not a number of retries"),
        ("+retry attempts=-1 min=1m", 16, "the number of retries is negative"),
        ("+retry min=catch max=recover", 11, "'catch' is not a minimum backoff"),
        ("+retry min=5s max=catch", 18, "'catch' is not a maximum backoff"),
        ("attempts=10 min=5s", 0, "'attempts=10' is not a minimum backoff"),
    ],
)
def test_faults_of_pasted_directives_have_their_place(text: str, at: int, message: str):
    """Faults of pasted directives are refused with their place; only pasted directives have names."""
    with pytest.raises(PolicySyntaxError) as refused:
        read_directive(text)

    assert (text, at, message) == (refused.value.text, refused.value.at, refused.value.problem)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("+retry max=1m", "min=5s"),
        ("+retry max=500ms", "min=500ms"),
        ("+retry attempts=10", "min=5s"),
        ("+retry catch=recover", "min=5s"),
        ("+retry min=10 max=1m", "10s"),
        ("+retry attempts=5s min=1m", "attempts=10"),
    ],
)
def test_errors_of_pasted_directives_have_a_valid_example(text: str, valid: str):
    """The example in an error is read where the part stands."""
    with pytest.raises(PolicySyntaxError, match=f"{valid}( for seconds)?$"):
        read_directive(text)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("count", [10**18, 2**63 - 2, 2**63 - 1])
def test_a_count_of_nineteen_digits_is_read(count: int, strict: bool):
    """Counts up to 2**63 - 1 are read, with any number of digits."""
    policy = Policy.parse(f"{count} 1s", strict=strict)

    assert count == policy.retries
    assert f"{count} 1s" == policy.directive()


@pytest.mark.parametrize("strict", [False, True])
def test_leading_zeros_do_not_count(strict: bool):
    """Ten thousand leading zeros change neither a count nor, in FTL's reading, a duration."""
    zeros = "0" * 10_000

    assert 7 == Policy.parse(f"{zeros}7 {zeros}5s", strict=strict).retries


@pytest.mark.parametrize("strict", [False, True])
def test_a_count_of_a_million_digits_is_refused(strict: bool):
    """Counts of a million digits are refused by their length, before they are computed."""
    with pytest.raises(PolicyError):
        Policy.parse(f"{'9' * 1_000_000} 1s", strict=strict)


def test_the_message_shows_what_would_be_valid():
    """Messages draw the directive and show a valid form."""
    with pytest.raises(PolicySyntaxError) as refused:
        Policy.parse("10")

    assert ("a minimum backoff is missing\n    10\n      ^ write a duration here, for example 5s") == str(refused.value)


@given(st.text(alphabet="0123456789dhms catch.-+_", max_size=20))
def test_a_text_is_read_or_refused_with_a_place(text: str):
    """Any text is a directive or is refused with an offset inside of it."""
    try:
        message = read_directive(text)
    except PolicyError as error:
        place = error.at
        assert place in range(len(text) + 1)
    else:
        assert message.minimum <= message.maximum


# --- the inverse

millis = st.integers(0, 10**9).map(lambda count: timedelta(milliseconds=count))


@given(st.integers(0, 10**6), millis, st.none() | millis, st.none() | st.sampled_from(["recover", "a.b"]))
def test_directives_are_written_back(retries: int, minimum: timedelta, more: timedelta | None, catch: str | None):
    """Policies that were read from a directive are written as an equal directive."""
    words = [str(retries)]
    if retries or catch:
        words += [format_duration(minimum)] + ([] if more is None else [format_duration(minimum + more)])
    policy = Policy.parse(" ".join(words + (["catch", catch] if catch else [])))

    assert policy == Policy.parse(policy.directive())


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("5s", "10 5s"),
        ("10  5s 1h", "10 5s"),
        ("5s 5s", "10 5s 5s"),
        ("2h", "10 2h"),
        ("0", "0"),
        ("0 catch t", "0 catch t"),
        ("0 1s catch t", "0 catch t"),
        ("0 5s catch t", "0 5s catch t"),
        ("0 1s 2s catch t", "0 1s 2s catch t"),
        ("3 100ms 2s catch a.b", "3 100ms 2s catch a.b"),
    ],
)
def test_directives_have_one_form(text: str, written: str):
    """Directives are written with their number, without the default maximum, in the shortest units."""
    assert written == Policy.parse(text).directive()


PROBLEMS = Policy.parse("10 5s 1m")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backoff": Backoff.constant(5)}, "because of backoff: the backoff of a directive doubles"),
        ({"backoff": Backoff.exponential(5, 60, 3)}, "because of backoff: the backoff of a directive doubles"),
        ({"backoff": Backoff.exponential(5)}, "because of backoff: the backoff of a directive doubles"),
        ({"backoff": Backoff.exponential(0.0001, 60)}, "because of backoff: a duration takes whole numbers only"),
        ({"backoff": Backoff.exponential(1e-9, 60)}, "because of backoff: a directive has whole milliseconds"),
        ({"attempts": 1}, "because of backoff: a backoff without retries"),
        ({"attempts": None, "catch": "x"}, "because of attempts: a directive has a number of retries"),
        ({"catch": "a.b.c"}, "because of catch: a directive names one task"),
        ({"deadline": "1m"}, "because of deadline: a directive always means deadline=None"),
        ({"deadline": ...}, "because of deadline: a directive always means deadline=None"),
        ({"on": OSError}, "because of on: a directive always means on=None"),
        ({"jitter": "full"}, "because of jitter"),
        ({"rules": [Rule(OSError)]}, "because of rules"),
        ({"idempotent": True}, "because of idempotent"),
        ({"max_hint": 5}, "because of max_hint"),
        ({"hedge": "x"}, "because of hedge"),
    ],
)
def test_policies_that_a_directive_cannot_express_are_refused(changes: dict[str, object], message: str):
    """Policies that a directive cannot express are refused with the field that prevents it."""
    with pytest.raises(PolicyValueError) as refused:
        PROBLEMS.with_(**changes).directive()

    assert str(refused.value).startswith(f"a directive cannot express this policy, {message}")


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("5 minutes", "write 5m, or with the number of retries before it, for example: 10 5m"),
        ("10 5 minutes", "write 5m"),
        ("10 5minutes", "write 5m"),
        ("five 1s", "write numbers in digits: 5"),
        ("5 apples", "write [<retries>] <min-backoff>"),
        ("5s minutes", "write [<retries>] <min-backoff>"),
    ],
)
def test_words_are_refused_with_what_they_mean(text: str, valid: str):
    """Messages about numbers and durations in words have them as a directive has them."""
    with pytest.raises(PolicyError) as refused:
        read_directive(text)

    assert str(refused.value).splitlines()[-1].strip().startswith(f"^ {valid}")
