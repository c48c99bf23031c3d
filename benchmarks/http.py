"""``python -m benchmarks.http [--rounds N] [--calls N]``: what an adapter costs a call of HTTP, beside the bare client.

A server in a process of its own answers each request over a kept connection at once. Each client makes its calls bare
and through its adapter, in turns, and the medians of the rounds are printed. Nothing fails, so no policy decides.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import aiohttp
import httpx
import httpx2
import requests
from rich.console import Console
from rich.table import Table

import redrive.contrib.aiohttp
import redrive.contrib.httpx
import redrive.contrib.httpx2
import redrive.contrib.requests

__all__ = ["main"]

DIRECTIVE = "3 100ms 2s"

SERVER = """
import asyncio

async def answer(reader, writer):
    while await reader.readuntil(b"\\r\\n\\r\\n"):
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def _server() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
    finally:
        process.kill()
        process.wait()


def _timed(call: Callable[[], object], calls: int) -> float:
    call()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls * 1e6


def _httpx(url: str, calls: int, *, adapted: bool) -> float:
    transport = redrive.contrib.httpx.RetryTransport(DIRECTIVE) if adapted else httpx.HTTPTransport()
    with httpx.Client(transport=transport, trust_env=False) as client:
        return _timed(lambda: client.get(url).text, calls)


def _httpx2(url: str, calls: int, *, adapted: bool) -> float:
    transport = redrive.contrib.httpx2.RetryTransport(DIRECTIVE) if adapted else httpx2.HTTPTransport()
    with httpx2.Client(transport=transport, trust_env=False) as client:
        return _timed(lambda: client.get(url).text, calls)


def _requests(url: str, calls: int, *, adapted: bool) -> float:
    with requests.Session() as session:
        session.trust_env = False
        if adapted:
            session.mount("http://", redrive.contrib.requests.RetryAdapter(DIRECTIVE))
        return _timed(lambda: session.get(url).text, calls)


def _aiohttp(url: str, calls: int, *, adapted: bool) -> float:
    async def run() -> float:
        middlewares = (redrive.contrib.aiohttp.retry(DIRECTIVE),) if adapted else ()
        async with aiohttp.ClientSession(middlewares=middlewares) as session:

            async def call() -> str:
                async with session.get(url) as answer:
                    return await answer.text()

            await call()
            began = time.perf_counter()
            for _ in range(calls):
                await call()
            return (time.perf_counter() - began) / calls * 1e6

    return asyncio.run(run())


CLIENTS = {"httpx": _httpx, "httpx2": _httpx2, "requests": _requests, "aiohttp": _aiohttp}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.http", description="Calls of HTTP, bare and through an adapter.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=2_000)
    chosen = parser.parse_args()
    table = Table(title=f"µs a call, medians of {chosen.rounds} rounds")
    for heading in ("client", "bare", "adapter", "added", "ratio"):
        table.add_column(heading, justify="left" if heading == "client" else "right")
    with _server() as url:
        for name, measure in CLIENTS.items():
            rounds = []
            for number in range(chosen.rounds):
                order = (False, True) if number % 2 == 0 else (True, False)
                rounds.append({adapted: measure(url, chosen.calls, adapted=adapted) for adapted in order})
            bare, adapter = (statistics.median(each[kind] for each in rounds) for kind in (False, True))
            ratio = statistics.median(each[True] / each[False] for each in rounds)
            table.add_row(name, f"{bare:.0f}", f"{adapter:.0f}", f"{adapter - bare:.0f}", f"{ratio:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
