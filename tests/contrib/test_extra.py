"""Packages of integrations that are not installed."""

from __future__ import annotations

import importlib
import sys

import pytest

MODULES = [
    ("redrive.contrib.aiohttp", "aiohttp", "aiohttp"),
    ("redrive.contrib.asyncpg", "asyncpg", "postgres"),
    ("redrive.contrib.celery", "celery", "celery"),
    ("redrive.contrib.dramatiq", "dramatiq", "dramatiq"),
    ("redrive.contrib.fastapi", "fastapi", "fastapi"),
    ("redrive.contrib.httpx", "httpx", "httpx"),
    ("redrive.contrib.httpx2", "httpx2", "httpx2"),
    ("redrive.contrib.otel", "opentelemetry", "otel"),
    ("redrive.contrib.prometheus", "prometheus_client", "prometheus"),
    ("redrive.contrib.psycopg", "psycopg", "postgres"),
    ("redrive.contrib.pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ("redrive.contrib.redis", "redis", "redis"),
    ("redrive.contrib.requests", "requests", "requests"),
    ("redrive.contrib.refresh.sqlalchemy", "sqlalchemy", "sqlalchemy"),
    ("redrive.contrib.sqlalchemy", "sqlalchemy", "sqlalchemy"),
    ("redrive.contrib.starlette", "starlette", "starlette"),
    ("redrive.contrib.structlog", "structlog", "structlog"),
    ("redrive.contrib.temporal", "temporalio", "temporal"),
]


@pytest.mark.parametrize(("module", "package", "extra"), MODULES)
def test_a_missing_package_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch, module, package, extra):
    """Report the command that installs the package."""
    # What the test loads anew must not replace what other tests have imported.
    for name in [each for each in sys.modules if each.startswith("redrive.contrib.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [package, *(each for each in sys.modules if each.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ModuleNotFoundError) as missing:
        importlib.import_module(module)

    assert f'pip install "redrive[{extra}]"' in str(missing.value)
    assert package == (missing.value.name or "").partition(".")[0]
