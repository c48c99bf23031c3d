"""The number of examples of the stores' state machine.

``pytest tests/stores/test_state_machine.py --hypothesis-profile=deep`` looks for many minutes, and elsewhere each time.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("deep", deadline=None, print_blob=True, max_examples=3000, stateful_step_count=80)
