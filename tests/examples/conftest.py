"""The webhook example's modules, importable under their own names as `python receiver.py` would find them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "webhooks"))
