"""What all tests share; as little as possible.

Fixtures of one subject live in the nearest ``conftest.py`` below. The folders of tests are no packages (see
CONTRIBUTING.md), so helpers are imported by their path from the root: ``from tests.architecture.source import ROOT``.
"""

from __future__ import annotations

from hypothesis import settings

# No test measures real time, Hypothesis's own deadline included: it would fail on a busy machine, and only there.
settings.register_profile("redrive", deadline=None, print_blob=True)
settings.load_profile("redrive")
