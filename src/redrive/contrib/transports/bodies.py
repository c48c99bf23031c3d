"""Bodies of requests, which may be sent twice, and of answers, which may be read early."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from redrive.contrib.http import held
from redrive.contrib.http.classify import Response
from redrive.contrib.transports.package import Package

_Stream: TypeAlias = Any
"""Of either colour: httpx's types have nothing in common but the name."""
_File: TypeAlias = Any
"""Something with ``read``."""


class Body:
    """The body of a request. It records that it was read, and starts again each time if it can."""

    #: The error of the package for a body that was read before.
    consumed: type[Exception]

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self._rewind = _rewinder(stream)
        #: True if a part of it has been read.
        self.begun: bool = False

    @property
    def spent(self) -> bool:
        """True if it cannot be sent any more."""
        return self.begun and self._rewind is None

    def _begin(self) -> None:
        if self.begun:
            if self._rewind is None:
                raise self.consumed
            self._rewind()
        self.begun = True

    def __iter__(self) -> Iterator[bytes]:
        self._begin()
        yield from self._stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._begin()
        async for chunk in self._stream:
            yield chunk


def _rewinder(stream: _Stream) -> Callable[[], object] | None:
    """Return a function that resets a body to its present position; None if that is impossible."""
    if not type(stream).__module__.startswith(("httpx.", "httpx2.")):
        # A user's class may do anything.
        return None
    # A multipart body goes to the beginning of its files by itself.
    fields = getattr(stream, "fields", None)
    if isinstance(fields, list):
        files = [field.file for field in fields if hasattr(field, "file")]
        return _nothing if all(isinstance(file, bytes | str) or _can_seek(file) for file in files) else None
    # What httpx was given as `content`; it has no public name.
    source: _File = getattr(stream, "_stream", None)
    if hasattr(source, "read"):
        if not _can_seek(source):
            return None
        place = source.tell()
        return lambda: source.seek(place)
    return _nothing if isinstance(source, Collection) else None


def _can_seek(file: _File) -> bool:
    return hasattr(file, "seekable") and bool(file.seekable())


def _nothing() -> None:
    """Do nothing, for bodies that start again by themselves."""


class Part:
    """The body of an answer of which a part has been read: that part, then the rest."""

    def __init__(
        self, chunks: list[bytes], stream: _Stream, rest: _Stream = None, error: Exception | None = None
    ) -> None:
        self._chunks = chunks
        self._stream = stream
        self._rest = rest
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks
        if self._error is not None:
            raise self._error
        if self._rest is not None:
            yield from self._rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        if self._error is not None:
            raise self._error
        if self._rest is not None:
            async for chunk in self._rest:
                yield chunk

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close the stream."""
        if self._rest is not None and hasattr(self._rest, "aclose"):
            await self._rest.aclose()
        await self._stream.aclose()


class Rest:
    """The body of an answer that the caller reads. A note on its errors explains why they are not retried."""

    def __init__(self, stream: _Stream, limit: int | None) -> None:
        self._stream = stream
        self._note = (
            f"not retried: the answer has begun, and the transport reads only bodies of a known length up to {limit} "
            "bytes within an attempt. RetryTransport(read=None), or AsyncRetryTransport, reads all others there, too, "
            "except streams of events"
        )

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except Exception as error:
            error.add_note(self._note)
            raise

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except Exception as error:
            error.add_note(self._note)
            raise

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


class Streams(NamedTuple):
    """The three classes as streams of a package, which accepts no others."""

    body: type[Body]
    part: type[Part]
    rest: type[Rest]


@cache
def streams(package: Package) -> Streams:
    """Return the classes of a package."""
    httpx = package.httpx

    def derived(kind: type, **attributes: object) -> Any:  # noqa: ANN401 - a class that is made here
        return type(kind.__name__, (kind, httpx.SyncByteStream, httpx.AsyncByteStream), attributes)

    return Streams(derived(Body, consumed=httpx.StreamConsumed), derived(Part), derived(Rest))


def leave(package: Package, response: Response, limit: int | None) -> None:
    """Leave the body of an answer to the caller."""
    if not isinstance(response.stream, package.httpx.ByteStream):
        response.stream = streams(package).rest(response.stream, limit)


def is_short(package: Package, response: Response, limit: int | None) -> bool:
    """Return True if the body of an answer should be read at once, and is not in memory; see `held.is_short`."""
    is_stream = not isinstance(response.stream, package.httpx.ByteStream)
    return is_stream and held.is_short(response.status_code, response.headers, limit)


def read(package: Package, response: Response, limit: int | None) -> Exception | None:
    """Read the body of an answer, or ``limit`` bytes and at most one chunk more, and keep it as the response's stream.

    Returns:
        The error that ended the body, if it broke off; a reader of the body gets it, too.
    """
    stream: _Stream = response.stream
    chunks: list[bytes] = []
    rest, room = iter(stream), limit
    try:
        for chunk in rest:
            chunks.append(chunk)
            room = None if room is None else room - len(chunk)
            if room is not None and room < 0:
                response.stream = streams(package).part(chunks, stream, rest)
                return None
    except Exception as error:  # noqa: BLE001 - handed on
        response.stream = streams(package).part(chunks, stream, error=error)
        return error
    stream.close()
    response.stream = streams(package).part(chunks, stream)
    return None


def read_whole(package: Package, response: Response) -> None:
    """Read the body of an answer to its end."""
    error = read(package, response, None)
    if error is not None:
        raise error


async def aread(package: Package, response: Response, limit: int | None) -> Exception | None:
    """Do the same as `read` for an async answer."""
    stream: _Stream = response.stream
    chunks: list[bytes] = []
    rest, room = aiter(stream), limit
    try:
        async for chunk in rest:
            chunks.append(chunk)
            room = None if room is None else room - len(chunk)
            if room is not None and room < 0:
                response.stream = streams(package).part(chunks, stream, rest)
                return None
    except Exception as error:  # noqa: BLE001 - handed on
        response.stream = streams(package).part(chunks, stream, error=error)
        return error
    await stream.aclose()
    response.stream = streams(package).part(chunks, stream)
    return None


async def aread_whole(package: Package, response: Response) -> None:
    """Do the same as `read_whole` for an async answer."""
    error = await aread(package, response, None)
    if error is not None:
        raise error
