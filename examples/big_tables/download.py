"""The work itself: fetch a page and count its lines. This code does not depend on schedules and retries."""

from __future__ import annotations

from dataclasses import dataclass

import httpx


@dataclass(frozen=True)
class Request:
    """What a worker is asked for."""

    big_table: int
    attempt_uid: str
    input_url: str


@dataclass(frozen=True)
class Result:
    """What it came to, with the token that came with the order.

    Attributes:
        big_table: which table.
        attempt_uid: which attempt.
        lines: the result, if there is one.
        hopeless: why there will never be one, for the customer.
        error: why there is none now.
    """

    big_table: int
    attempt_uid: str
    lines: int | None = None
    hopeless: str | None = None
    error: str | None = None


def answer_to(order: Request) -> Result:
    """Do what was ordered."""
    try:
        return Result(order.big_table, order.attempt_uid, lines=fetch(order.input_url))
    except LookupError:
        return Result(order.big_table, order.attempt_uid, hopeless=f"Provided URL is invalid: {order.input_url}")
    except Exception as error:  # noqa: BLE001 - whatever it is, the policy says what follows
        return Result(order.big_table, order.attempt_uid, error=str(error))


def fetch(url: str) -> int:
    """Count the lines of a page; LookupError if there is none."""
    page = httpx.get(url, follow_redirects=True, timeout=60)
    if page.status_code in {404, 410}:
        raise LookupError(url)
    return len(page.raise_for_status().text.splitlines())
