"""The vocabulary: numbers, ordinals, days, months, units, and words that end a name."""

from __future__ import annotations

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = {
    word: 10 * place
    for place, word in enumerate(("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), 2)
}
# Numbers in words up to ninety-nine.
NUMBERS = {word: value for value, word in enumerate(_SMALL)} | _TENS
NUMBERS |= {f"{tens}-{_SMALL[ones]}": value + ones for tens, value in _TENS.items() for ones in range(1, 10)}

# The first twenty have a word; the others are written in digits.
ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
    "twentieth",
)  # fmt: skip
# Ordinals in words up to the last day of a month.
ORDINAL_VALUES = {word: value for value, word in enumerate(ORDINALS, 1)}
ORDINAL_VALUES |= {f"twenty-{word}": value + 20 for value, word in enumerate(ORDINALS[:9], 1)}
ORDINAL_VALUES |= {"thirtieth": 30, "thirty-first": 31}

DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT_DAYS = ("mon", "tue tues", "wed weds", "thu thur thurs", "fri", "sat", "sun")
# Days of the week by their names; 0 is Monday.
DAYS = {name.lower(): place for place, name in enumerate(DAY_NAMES)}
DAYS |= {f"{name}s": place for name, place in DAYS.items()}
DAYS |= {short: place for place, shorts in enumerate(_SHORT_DAYS) for short in shorts.split()}

MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
# Months by their names; 1 is January.
MONTHS = {name.lower(): place for place, name in enumerate(MONTH_NAMES, 1)}
MONTHS |= {name[:3]: place for name, place in MONTHS.items()} | {"sept": 9}

# The spellings of units of time.
UNITS = {
    spelling: unit
    for unit, spellings in {
        "week": "week weeks",
        "day": "day days",
        "hour": "hour hours hr hrs h",
        "minute": "minute minutes min mins m",
        "second": "second seconds sec secs s",
        "month": "month months",
        "quarter": "quarter quarters",
        "year": "year years",
        "fortnight": "fortnight fortnights",
    }.items()
    for spelling in spellings.split()
}

WORKDAYS: tuple[int, ...] = (0, 1, 2, 3, 4)
WEEKEND: tuple[int, ...] = (5, 6)

# Parts of a day: the hours that belong to them.
DAY_PARTS = {
    "morning": range(12),
    "afternoon": range(12, 19),
    "evening": range(16, 24),
    "night": (*range(18, 24), *range(6)),
}

# Words that have a meaning of their own, or would change that of a sentence, so that none can be part of a name.
_NO_NAMES = """
    m-f mo-fr mwf m-w-f tth t-th mo-su sa-su half-yearly
    a about after afterwards again ago all along also alternate alternately alternating always am an and
    annually another any anytime approx approx. approximately around as at attempt attempts away back because
    been before beginning besides between bi-monthly bi-weekly biannually biennially bimonthly biweekly both
    business but by ca circa constantly continually continuously daily day days do does during each early either
    email end ending enough even even-numbered eventually ever every everyday except except-for excluding
    failure failures few fewer first forever fortnight fortnightly frequently from give given gmt half hardly he
    hence her his holiday holidays hourly how however if immediately in including instead it its just keep last
    late later least less like limit many may maybe mid midday midnight might minus monthly more most much must
    never next night nightly no non-stop none nonstop noon nor not nothing notify now occasionally odd
    odd-numbered of off often on once one only or other otherwise out outside over past per perhaps please plus
    pm possible possibly quarter quarterly quite random randomly rarely regularly repeatedly retries retry
    roughly same seldom semi-monthly semi-weekly semimonthly semiweekly several should since so some sometime
    sometimes soon sooner start starting still stop such than that the their then there therefore these they
    this those though thrice through throughout till time timeout times to today together tomorrow tonight too
    twice under unless until unto up upon usually utc very via wait was weekday weekdays weekend weekends weekly
    weekly-ish weeknight weeknights when whenever where which whichever while with within without work working
    would yearly yesterday yet you zero
"""
NO_NAMES = frozenset(_NO_NAMES.split()) | {*NUMBERS, *ORDINAL_VALUES, *DAYS, *MONTHS, *UNITS, *DAY_PARTS}
