"""What all tests share; as little as possible.

Fixtures of one subject live in the nearest ``conftest.py`` below. The folders of tests are no packages (see
CONTRIBUTING.md), so helpers are imported by their path from the root: ``from tests.architecture.source import ROOT``.
"""

from __future__ import annotations

import os

from hypothesis import settings

# No test measures real time, Hypothesis's own deadline included: it would fail on a busy machine, and only there.
# In CI the examples are the same each time, so that a red run is about the change and not about luck; everywhere else
# they are new ones, which is where laws find what nobody thought of.
settings.register_profile("redrive", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("redrive")
