"""`tests/contrib/httpx/test_answers.py` with httpx2."""

from __future__ import annotations

import pytest

from tests.contrib.httpx2.twin import twin

twin("test_answers", globals())

pytestmark = [
    # The same source runs with httpx.
    pytest.mark.night,
    # A stream of httpx2 that is closed early, also by a plain client, leaves that generator to the garbage collection.
    pytest.mark.filterwarnings(
        "ignore:Async generator 'httpcore2._async.connection_pool.PoolByteStream:ResourceWarning"
    ),
]
