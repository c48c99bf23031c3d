"""The settings: SQLite beside this project, or PostgreSQL on the host in SHOP_POSTGRES."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

HERE = Path(os.environ.get("SHOP_FOLDER", Path(__file__).parents[1]))

SECRET_KEY = "not one, this shop has no visitors"  # noqa: S105
INSTALLED_APPS = ["redrive.contrib.django", "shop"]
if importlib.util.find_spec("django.tasks") is None:  # before Django 6.0
    INSTALLED_APPS.append("django_tasks")

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": HERE / "shop.db",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }
}
if "SHOP_POSTGRES" in os.environ:
    DATABASES["default"] = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["SHOP_POSTGRES"],
        "NAME": os.environ.get("SHOP_DATABASE", "shop"),
        "USER": os.environ.get("SHOP_USER", "postgres"),
    }

TASKS = {
    "default": {
        "BACKEND": "redrive.contrib.django.RedriveBackend",
        "QUEUES": ["default", "payments"],
        "OPTIONS": {"retry": "3 1s"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
