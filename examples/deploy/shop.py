"""The App that these files run: replace it by your own."""

from __future__ import annotations

import os

import redrive

app = redrive.App(os.environ.get("DATABASE_URL", "sqlite:///shop.db"))


@app.task(retry="5 1s 1m")
def send_receipt(order: int) -> str:
    """Send a receipt."""
    return f"receipt of order {order}"
