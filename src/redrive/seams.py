"""Seams: the calls from a lower layer to a higher one, all listed in this file.

Imports point downward only. A method such as ``policy.call(fn)`` nevertheless needs a higher layer that waits. The
lower layer declares a Protocol and calls a `Seam`, which imports the provider at the first call. A second ``Policy``
class in the higher layer would break equality and unpickling; registration at import would depend on what else has
been imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

__all__ = [
    "FAILURE_READERS",
    "Seam",
    "command_line",
    "composed_schedules",
    "in_process",
    "main",
    "policy_from_dict",
    "policy_operators",
    "policy_to_dict",
]


class Seam:
    """A reference to an object of a higher layer, imported at its first use.

    Args:
        provider: ``module:attribute``.
    """

    __slots__ = ("_found", "_provider")

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._found: Any = None

    def __call__(self) -> Any:
        """Return the object; its type is a Protocol of the calling layer."""
        if self._found is None:
            module, _, attribute = self._provider.partition(":")
            self._found = getattr(import_module(module), attribute)
        return self._found


# Carries out calls in this process: `redrive.policy.call_methods.Runner`.
in_process: Seam = Seam("redrive.retrying.runner:RUNNER")

# The operators on policies by their sign. Combinations are policies, so their module imports that of the policy.
policy_operators: Seam = Seam("redrive.policy.algebra:OPERATORS")

# Writes a policy as JSON-able data. The codec imports the policy, because it builds policies.
policy_to_dict: Seam = Seam("redrive.policy.codec:policy_to_dict")

# Reads a policy from JSON-able data.
policy_from_dict: Seam = Seam("redrive.policy.codec:policy_from_dict")

# The schedules made of schedules, by their kind. They are backoffs, so their module imports that of the backoff.
composed_schedules: Seam = Seam("redrive.policy.compose:COMPOSED")

# Describe the exceptions of a library, by its top-level module: `redrive.policy.known.Reader`.
FAILURE_READERS: Mapping[str, Seam] = {
    "aiohttp": Seam("redrive.contrib.aiohttp:failure_of"),
    "anthropic": Seam("redrive.contrib.http.models:failure_of"),
    "asyncpg": Seam("redrive.contrib.asyncpg:failure_of"),
    "couchbase": Seam("redrive.contrib.couchbase.sdk:failure_of"),
    "grpc": Seam("redrive.contrib.grpc.classify:describe"),
    "httpx": Seam("redrive.contrib.httpx:failure_of"),
    "httpx2": Seam("redrive.contrib.httpx2:failure_of"),
    "openai": Seam("redrive.contrib.http.models:failure_of"),
    "psycopg": Seam("redrive.contrib.psycopg:failure_of"),
    "psycopg_pool": Seam("redrive.contrib.psycopg:failure_of"),
    "pydantic_ai": Seam("redrive.contrib.pydantic_ai:failure_of"),
    "redis": Seam("redrive.contrib.redis.replies:failure_of"),
    "requests": Seam("redrive.contrib.requests:failure_of"),
    "sqlalchemy": Seam("redrive.contrib.sqlalchemy:failure_of"),
}

# The command line and its entry point. Django looks for the command of ``manage.py`` inside of its integration.
command_line: Seam = Seam("redrive.cli:cli")
main: Seam = Seam("redrive.cli:main")
