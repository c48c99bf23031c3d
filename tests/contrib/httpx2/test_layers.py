"""`tests/contrib/httpx/test_layers.py` with httpx2."""

from __future__ import annotations

import pytest

from tests.contrib.httpx2.twin import twin

twin("test_layers", globals())

# The same source runs with httpx.
pytestmark = pytest.mark.night
