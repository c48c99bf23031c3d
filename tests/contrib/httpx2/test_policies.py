"""`tests/contrib/httpx/test_policies.py` with httpx2."""

from __future__ import annotations

import pytest

from tests.contrib.httpx2.twin import twin

twin("test_policies", globals())

# The same source runs with httpx.
pytestmark = pytest.mark.night
