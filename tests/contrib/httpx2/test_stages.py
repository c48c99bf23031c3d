"""`tests/contrib/httpx/test_stages.py` with httpx2."""

from __future__ import annotations

from tests.contrib.httpx2.twin import twin

twin("test_stages", globals())
