"""A stand-in for a payment provider: a folder with a ledger, and with files that control its behaviour.

While a file ``slow`` exists it does not answer, and with a file ``out`` it refuses every request. It takes the money
for each idempotency key once, however often it is called.
"""

from __future__ import annotations

import os
import time

from django.conf import settings

PROVIDER = settings.HERE / "provider"


def charge(cents: int, *, key: str) -> None:
    """Take money.

    Args:
        cents: how much.
        key: the idempotency key.

    Raises:
        ConnectionError: he is out.
    """
    PROVIDER.mkdir(exist_ok=True)
    if (PROVIDER / "out").exists():
        raise ConnectionError("the provider is out")
    with (PROVIDER / "asked").open("a") as asked:
        asked.write(f"{key} {cents}\n")
        asked.flush()
        os.fsync(asked.fileno())
    while (PROVIDER / "slow").exists():
        time.sleep(0.02)
    (PROVIDER / f"taken-{key}").write_text(str(cents))
