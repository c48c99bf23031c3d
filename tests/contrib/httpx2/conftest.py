"""`tests/contrib/httpx/conftest.py` with httpx2."""

from __future__ import annotations

from tests.contrib.httpx2.twin import twin

twin("conftest", globals())
