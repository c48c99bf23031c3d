"""Exceptions of the official SDK, built by the SDK's own code from data of its core."""

from __future__ import annotations

import os
from importlib import import_module

import pytest

__all__ = ["exceptions", "kv_error", "needed", "query_error", "service_error"]


def needed(name):
    """Skip the tests of a module without the SDK; in CI a missing SDK is a failure."""
    if os.environ.get("CI") == "true":
        return import_module(name)
    return pytest.importorskip(name, reason="the extra couchbase is not installed")


exceptions = needed("couchbase.exceptions")


class _FromTheCore:
    """What the C++ core hands to the SDK: an error code and a context."""

    def __init__(self, code, context, message):
        self._code, self._context, self._message = code, context, message

    def err(self):
        """Return the error code."""
        return self._code

    def error_context(self):
        """Return the context."""
        return self._context

    def error_info(self):
        """Return an empty dict."""
        return {}

    def err_category(self):
        """Return the category of the code."""
        return "couchbase.common"

    def strerror(self):
        """Return the text of the code."""
        return self._message


def kv_error(code, *, reasons=(), attempts=0, to="10.0.0.1:11210", message="some_error"):
    """Return the SDK's exception for a key-value operation that ended with a code."""
    context = {
        "context_type": "KeyValueErrorContext",
        "retry_attempts": attempts,
        "retry_reasons": set(reasons),
        "last_dispatched_to": to,
        "last_dispatched_from": None if to is None else "10.0.0.9:50000",
    }
    return exceptions.ErrorMapper.build_exception(_FromTheCore(code, context, message))


def query_error(code, *, http_status=400, body="", first=(0, "")):
    """Return the SDK's exception for a query that ended with a code."""
    return service_error("QueryErrorContext", code, http_status, body, first)


def service_error(context_type, code, http_status, body="", first=(0, "")):
    """Return the SDK's exception for a request to a service over HTTP."""
    context = {
        "context_type": context_type,
        "http_status": http_status,
        "http_body": body,
        "first_error_code": first[0],
        "first_error_message": first[1],
    }
    return exceptions.ErrorMapper.build_exception(_FromTheCore(code, context, "some_error"))
