"""Stands for a payment provider: a folder with a ledger. While there is a file ``slow`` in it, he does not answer.

He takes the money for each idempotency key once, however often he is asked.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

PROVIDER = Path(os.environ.get("SHOP_FOLDER", Path(__file__).parent)) / "provider"


def charge(cents: int, *, key: str) -> None:
    """Take money.

    Args:
        cents: how much.
        key: the idempotency key.
    """
    PROVIDER.mkdir(exist_ok=True)
    with (PROVIDER / "asked").open("a") as asked:
        asked.write(f"{key} {cents}\n")
        asked.flush()
        os.fsync(asked.fileno())
    while (PROVIDER / "slow").exists():
        time.sleep(0.02)
    (PROVIDER / f"taken-{key}").write_text(str(cents))
