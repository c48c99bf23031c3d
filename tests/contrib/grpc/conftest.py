"""Fixtures for gRPC: a real server, a proxy in front of it, and sync and async channels."""

from __future__ import annotations

import asyncio
import inspect

import grpc
import pytest

from redrive.contrib.grpc import aio_channel, channel
from redrive.policy import Backoff, Policy
from redrive.retrying import isolated
from tests.contrib.grpc.rig.server import GrpcServer
from tests.proxy import Proxy

AT_ONCE = Policy(attempts=4, backoff=Backoff.constant(0))
QUICK = [
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.use_local_subchannel_pool", 1),
]


@pytest.fixture
def server():
    """Start a server."""
    with GrpcServer() as server, isolated():
        yield server


@pytest.fixture
def proxy(server):
    """Start a proxy in front of the server."""
    with Proxy((Proxy.host, server.port)) as proxy:
        yield proxy


class SyncChannels:
    """Tests in sync code."""

    make = staticmethod(channel)

    def __init__(self):
        self.channels = []

    def channel(self, port, policy=AT_ONCE, **options):
        """Open a channel under a policy."""
        made = self.done(self._made(port, policy, options))
        self.channels.append(made)
        return made

    def _made(self, port, policy, options):
        return self.make(f"127.0.0.1:{port}", policy, options=[*QUICK, *options.pop("options", [])], **options)

    def call(self, channel, request=b"order", *, method="/shop.Orders/Place", **options):
        """Make a call and wait for its response."""
        return self.done(channel.unary_unary(method)(request, **options))

    def collect(self, channel, requests, **options):
        """Make a call with many requests."""
        return self.done(channel.stream_unary("/shop.Orders/Collect")(requests, **options))

    def stream(self, channel, request=b"order", **options):
        """Make a call with many responses; return them and the error at its end."""
        got = []
        try:
            for message in channel.unary_stream("/shop.Orders/Stream")(request, **options):
                got.append(message)  # noqa: PERF402 - what came before the error counts
        except grpc.RpcError as error:
            return got, error
        return got, None

    def done(self, answer):
        """Return the response."""
        return answer

    def close(self):
        """Close the channels."""
        for each in self.channels:
            self.done(each.close())


class AsyncChannels(SyncChannels):
    """Tests in async code."""

    make = staticmethod(aio_channel)

    def __init__(self):
        super().__init__()
        self._runner = asyncio.Runner()

    async def _made(self, port, policy, options):
        return super()._made(port, policy, options)

    def stream(self, channel, request=b"order", **options):
        """Make a call with many responses; return them and the error at its end."""

        async def read_all():
            """Read the stream to its end."""
            got = []
            try:
                async for message in channel.unary_stream("/shop.Orders/Stream")(request, **options):
                    got.append(message)  # noqa: PERF401 - the same
            except grpc.RpcError as error:
                return got, error
            return got, None

        return self.done(read_all())

    def done(self, answer):
        """Await and return the response."""

        async def wait():
            """Await the response."""
            return await answer if inspect.isawaitable(answer) else answer

        return self._runner.run(wait())

    def close(self):
        """End the channels and the loop."""
        super().close()
        self._runner.close()


@pytest.fixture(params=[SyncChannels, AsyncChannels], ids=["sync", "async"])
def colour(request):
    """Provide the sync API, then the async one."""
    made = request.param()
    yield made
    made.close()
