"""Servers from Debian packages: tests install them where that is possible and name them where it is not."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

__all__ = ["needed", "program"]

_PLACES = ("/usr/bin", "/usr/local/bin", "/usr/sbin")
_QUIET = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # at run level 1 a package does not start its service


def program(name: str) -> str | None:
    """Return the path of a program, if it is installed."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_PLACES]))


def needed(package: str, find: Callable[[], str | None]) -> str:
    """Return the path that `find` returns, after installing the package if it returns None.

    If the package cannot be installed, the test is skipped with the reason; in CI it fails.
    """
    found = find() or (_install(package) and find())
    if found:
        return found
    reason = f"{package} is not installed: apt-get install {package}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@functools.cache
def _install(package: str) -> bool:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    # Another process of the tests may be installing a package.
    options = ["--yes", "-qq", "-o", "DPkg::Lock::Timeout=300", "--no-install-recommends"]
    install = ["apt-get", "install", *options, package]
    for command in (install, ["apt-get", "update", "-qq"], install):
        done = subprocess.run(command, check=False, capture_output=True, env={**os.environ, **_QUIET})
        if command is install and done.returncode == 0:
            return True
    return False
