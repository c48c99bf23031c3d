"""What a browser must send."""

from __future__ import annotations

import contextlib
from http import HTTPStatus

import pytest

from redrive.operate.exchange import Refusal
from redrive.web import guard


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8765", "127.0.0.1:80", "127.9.9.9", "[::1]:8765", "ops.example:1"]
)
def test_known_hosts_are_served(host: str):
    """This machine and the configured names are served, with any port."""
    guard.check_host(host, {"ops.example"})


@pytest.mark.parametrize(
    "host", [None, "", "evil.example", "ops.example.evil", "xops.example", "10.0.0.1", "localhost.evil"]
)
def test_other_hosts_are_refused(host: str | None):
    """Pages of another name that resolves to this machine read nothing."""
    with pytest.raises(Refusal) as caught:
        guard.check_host(host, {"ops.example"})

    assert HTTPStatus.MISDIRECTED_REQUEST == caught.value.status


ORIGINS = [
    # Sec-Fetch-Site, Origin, token, allowed
    ("same-origin", None, False, True),
    ("none", None, False, True),
    ("same-site", None, False, False),
    ("cross-site", None, False, False),
    ("cross-site", "http://own:8765", True, False),
    (None, "http://own:8765", False, True),
    (None, "http://own", False, False),
    (None, "https://own:8765", False, False),
    (None, "http://evil:8765", False, False),
    (None, "null", False, False),
    (None, "http://[bad", False, False),
    (None, None, True, True),
    (None, None, False, False),
]


@pytest.mark.parametrize(("site", "origin", "has_token", "allowed"), ORIGINS)
def test_changes_come_from_own_pages_or_with_a_token(
    site: str | None, origin: str | None, has_token: bool, allowed: bool
):
    """Forms of another site change nothing; a program needs a token."""
    headers = {"host": "own:8765"} | {
        name: value for name, value in (("sec-fetch-site", site), ("origin", origin)) if value is not None
    }
    refused = contextlib.nullcontext() if allowed else pytest.raises(Refusal, match="not sent by a page")
    with refused:
        guard.check_origin("POST", headers, scheme="http", has_token=has_token)


def test_reading_needs_no_origin():
    """Links from another site open a page."""
    guard.check_origin("GET", {"sec-fetch-site": "cross-site"}, scheme="http", has_token=False)


@pytest.mark.parametrize("name", ["host", "origin", "sec-fetch-site", "authorization", "x-forwarded-user"])
def test_headers_that_give_rights_occur_once(name: str):
    """A proxy may append its header to that of a client, and another reader might take the first one."""
    guard.check_single([name, "accept", "accept"], ["x-forwarded-user"])
    with pytest.raises(Refusal, match=f"{name} more than once"):
        guard.check_single([name, "accept", name], ["x-forwarded-user"])


def test_proxied_requests_need_authentication():
    """Behind a proxy each request comes from this machine, which proves nothing."""
    guard.check_direct({"host": "localhost"})
    with pytest.raises(Refusal, match="x-forwarded-for"):
        guard.check_direct({"x-forwarded-for": "10.0.0.1"})


@pytest.mark.parametrize("text", [None, "", "evil", "//evil", "/\\evil", "https://evil", "/a\nb", "\\/evil"])
def test_logins_lead_to_own_pages(text: str | None):
    """Addresses of another site are replaced by the first page."""
    assert "/" == guard.own_path(text)


def test_the_wanted_page_is_kept():
    """Path and query of an own page are kept."""
    assert "/jobs?q=state%3Adead" == guard.own_path("/jobs?q=state%3Adead")
