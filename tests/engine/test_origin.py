"""What a job is for, as a text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.origin import (
    Kind,
    Origin,
    of_batch,
    of_cron,
    of_feeder,
    of_machine,
    of_refresh,
    of_run,
    of_topic,
    read_origin,
)

NAMES = st.text(min_size=1).filter(lambda name: "/" not in name)
SPAN = (datetime(1970, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - Hypothesis wants naive bounds
INSTANTS = st.datetimes(*SPAN, timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7))]))


@given(NAMES, INSTANTS)
def test_an_occurrence_is_read_back(name: str, instant: datetime):
    """Origins of an occurrence contain the name of the cron and the instant, to the microsecond."""
    origin = read_origin(of_cron(name, instant))

    assert (Kind.CRON, name, instant) == (origin.kind, origin.name, origin.occurs_at)


@given(NAMES, st.text(min_size=1))
def test_the_origin_of_an_attempt_is_read_back(name: str, key: str):
    """Origins of an attempt contain the name of the refresh and the key, which may be any text, but no instant."""
    origin = read_origin(of_refresh(name, key))

    assert (Origin(Kind.REFRESH, name, key), None) == (origin, origin.occurs_at)
    assert of_refresh(name, key) == str(origin)


def test_an_origin_is_readable_text():
    """Origins are the kind, the name, and the instant in UTC or the key, as readable text."""
    local = datetime(2026, 3, 29, 6, tzinfo=timezone(timedelta(hours=3)))

    assert "cron:nightly/2026-03-29T03:00:00Z" == of_cron("nightly", local)
    assert "refresh:big_tables/customer-42" == of_refresh("big_tables", "customer-42")


@pytest.mark.parametrize("text", [None, "", "cron", "cron:nightly", "news:topic/7", "nightly/2026", "machine:payment/"])
def test_an_unknown_origin_is_none(text: str | None):
    """Jobs without an origin have none, and unknown origins are not guessed."""
    assert None is read_origin(text)


ORIGINS = {
    "machine:payment/invoice-42": (of_machine("payment", "invoice-42"), Origin(Kind.MACHINE, "payment", "invoice-42")),
    "topic:payments/processing#812": (
        of_topic("payments", "processing", 812),
        Origin(Kind.TOPIC, "payments", "processing#812"),
    ),
    "batch:job/42": (of_batch(42), Origin(Kind.BATCH, "job", "42")),
    "run:checkout/a/b": (of_run("checkout", "a/b"), Origin(Kind.RUN, "checkout", "a/b")),
}


@pytest.mark.parametrize("text", ORIGINS)
def test_every_kind_of_origin_is_read_back(text: str):
    """Origins of transitions, deliveries and runs are readable text that is read back."""
    written, origin = ORIGINS[text]

    assert (text, origin, None) == (written, read_origin(text), origin.occurs_at)


def test_an_origin_is_described():
    """Descriptions name what the job is for, and its part."""
    assert [
        "occurrence 2026-03-29T03:00:00Z of cron nightly",
        "attempt at customer-42 of refresh tables",
        "transition of invoice-42 of machine payment",
        "delivery of event 812 of topic payments to processing",
        "feeder of shard 0 of subscription processing of topic payments",
        "run order-42 of workflow checkout",
        "batch of job 42",
    ] == [
        origin.described
        for text in (
            "cron:nightly/2026-03-29T03:00:00Z",
            of_refresh("tables", "customer-42"),
            of_machine("payment", "invoice-42"),
            of_topic("payments", "processing", 812),
            of_feeder("payments", "processing", 0),
            of_run("checkout", "order-42"),
            of_batch(42),
        )
        if (origin := read_origin(text)) is not None
    ]
