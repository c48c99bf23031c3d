"""A dashboard behind a real port, in a thread, and the commands of a page that call it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def served(application: Any) -> Iterator[str]:
    """Serve an application on a free port of this machine, and return its address."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        server = uvicorn.Server(uvicorn.Config(application, log_level="critical", lifespan="off"))
        # The listening socket accepts connections from now on; they wait until the server has started.
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{place.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def curl(page: str, url: str) -> list[Any]:
    """Run the curl commands of a page, and return their answers."""
    commands = re.findall(r"^\$ (curl .*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert commands
    return [msgspec.json.decode(_run(each, url)) for each in commands]


def _run(command: str, url: str) -> bytes:
    environment = {**os.environ, "URL": url}
    words = [os.path.expandvars(word) for word in shlex.split(command.replace("$URL", url))]
    assert not any("$" in word for word in words)
    return subprocess.run(words, check=True, capture_output=True, env=environment, timeout=20).stdout
