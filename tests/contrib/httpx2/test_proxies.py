"""`tests/contrib/httpx/test_proxies.py` with httpx2."""

from __future__ import annotations

from tests.contrib.httpx2.twin import twin

twin("test_proxies", globals())
