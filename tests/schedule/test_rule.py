"""Recurrence rules are read strictly, and written as they were."""

from __future__ import annotations

import pytest

from redrive.errors import ScheduleError
from redrive.schedule import RecurrenceRule


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=DAILY",
        "FREQ=YEARLY;INTERVAL=2;UNTIL=20301231T235959Z;BYMONTH=1,12;BYMONTHDAY=-1;BYHOUR=0",
        "FREQ=MONTHLY;COUNT=3;BYDAY=MO,-1FR;BYSETPOS=-1,1",
        "FREQ=YEARLY;BYWEEKNO=-1,20;BYDAY=MO;WKST=SU",
        "FREQ=YEARLY;BYYEARDAY=-1,100",
        "FREQ=MINUTELY;INTERVAL=15;UNTIL=20301231T000000;BYDAY=MO,TU;BYHOUR=9,10",
    ],
)
def test_a_rule_is_written_as_it_was(text: str):
    """Rules in the usual order are written as they were read."""
    assert text == str(RecurrenceRule.parse(text))


def test_case_order_blanks_and_doubles_do_not_matter():
    """Rules are equal in lower case, with their name, in another order, and with a repeated value."""
    assert RecurrenceRule.parse("FREQ=DAILY;BYHOUR=6,16") == RecurrenceRule.parse(" RRULE:byhour=16,6,6;freq=daily; ")


def test_an_end_without_a_time_is_the_end_of_that_day():
    """UNTIL may be a date; the whole of that day belongs to it."""
    assert "FREQ=DAILY;UNTIL=20301231T235959" == str(RecurrenceRule.parse("FREQ=DAILY;UNTIL=20301231"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FREQ=DAILY;FREQ=DAILY", "FREQ is there twice"),
        ("BYHOUR=6", "FREQ is missing"),
        ("FREQ=DAILY\nCOUNT=2", "write one rule without other lines"),
        (" ; ", "it is empty"),
        ("FREQ=DAILY;BYSETPOS=1", "BYSETPOS chooses among what another BY... part gives"),
        ("FREQ=DAILY;INTERVAL=0", "'INTERVAL=0'"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20300101", "exclude each other"),
        ("FREQ=DAILY;UNTIL=tomorrow", "'UNTIL=tomorrow': an end is written"),
        ("FREQ=DAILY;BYDAY=XX", "'BYDAY=XX': days are MO"),
        ("FREQ=MONTHLY;BYDAY=60MO", "'BYDAY=60MO': days are MO"),
        ("FREQ=DAILY;BYMONTHDAY=0", "days of a month are numbers"),
        ("FREQ=DAILY;WKST=XX", "a week starts on"),
        ("FREQ=MONTHLY;BYWEEKNO=2", "BYWEEKNO belongs to FREQ=YEARLY"),
        ("FREQ=DAILY;BYYEARDAY=2", "BYYEARDAY does not go with"),
        ("FREQ=WEEKLY;BYMONTHDAY=2", "BYMONTHDAY does not go with FREQ=WEEKLY"),
        ("FREQ=WEEKLY;BYDAY=1MO", "a numbered day such as 1MO"),
        ("FREQ=YEARLY;BYWEEKNO=2;BYDAY=1MO", "a numbered day such as 1MO"),
        ("FREQ=DAILY;BYHOUR=6,16;BYSETPOS=3", "no period has more occurrences than 2"),
        ("FREQ=WEEKLY;BYDAY=MO;BYSETPOS=-2", "no period has more occurrences than 1"),
        ("FREQ=MONTHLY;BYDAY=MO;BYSETPOS=32", "no period has more occurrences than 31"),
        ("FREQ=MINUTELY;BYHOUR=6,16;BYSECOND=1,2;BYSETPOS=3", "no period has more occurrences than 2"),
    ],
)
def test_parts_that_a_rule_cannot_express_are_refused(text: str, message: str):
    """Errors contain the rule, the part, and the valid values."""
    with pytest.raises(ScheduleError, match=message):
        RecurrenceRule.parse(text)
