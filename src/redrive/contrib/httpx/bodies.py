"""Bodies: of requests, which may have to be sent twice, and of answers, which may have to be read early.

**A request's body** is read from its beginning each time that it is sent, or not at all:

=============================================  =================================================================
``content=b"..."``, ``json=``, ``data=``       bytes: always
a list or tuple of bytes                       always
a file that can seek                           from where it stood; httpx by itself would send the rest, or nothing
``files=`` with files that can seek            always (httpx goes to their beginning)
a generator, a file that cannot seek, others   once; that nothing of it was read yet is as good as new
=============================================  =================================================================

**An answer's body** is on the connection until it is read, and the connection belongs to it that long. So what is small
is read at once. The answer of an attempt that is retried must not hold a connection while the call waits, and may yet
be the last one and be wanted whole; so of a failed answer as much is read as a small body may have, and the rest is
there for the reader if there is one. What is not read before the next attempt is closed with its connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any, TypeAlias

import httpx

__all__ = ["SHORT", "Body", "Part", "aread", "aread_whole", "is_short", "read", "read_whole"]

SHORT = 64 * 1024
"""Bytes of a body that is read at once: what a connection of httpcore reads in one go."""

_DIGITS = 20  # of a length in 64 bits; Python refuses to read very long numbers

_Stream: TypeAlias = Any
"""Of either colour: httpx's types have nothing in common but the name."""
_File: TypeAlias = Any
"""Something with ``read``."""


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a request that can be asked whether it was read, and begins anew each time if it can.

    Args:
        stream: httpx's own, or somebody's; bytes need no such care.

    Attributes:
        begun: something of it has been read.
    """

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self._rewind = _rewinder(stream)
        self.begun = False

    @property
    def spent(self) -> bool:
        """Whether it cannot be sent any more."""
        return self.begun and self._rewind is None

    def _begin(self) -> None:
        if self.begun:
            if self._rewind is None:
                raise httpx.StreamConsumed
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
    """What brings a body back to where it stands now; None if nothing does."""
    if not type(stream).__module__.startswith("httpx."):
        return None  # somebody's own, which may be anything
    fields = getattr(stream, "fields", None)  # a multipart body goes to the beginning of its files by itself
    if isinstance(fields, list):
        files = [field.file for field in fields if hasattr(field, "file")]
        return _nothing if all(isinstance(file, bytes | str) or _can_seek(file) for file in files) else None
    source: _File = getattr(stream, "_stream", None)  # what httpx was given as `content`; it has no public name
    if hasattr(source, "read"):
        if not _can_seek(source):
            return None
        place = source.tell()
        return lambda: source.seek(place)
    return _nothing if isinstance(source, Collection) else None


def _can_seek(file: _File) -> bool:
    return hasattr(file, "seekable") and bool(file.seekable())


def _nothing() -> None:
    """Some bodies begin anew by themselves."""


class Part(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer of which some has been read: that, and then what follows.

    Args:
        chunks: what has been read.
        stream: where it comes from; it is to be closed.
        rest: what has not been read, if there is more.
        error: what came instead.
    """

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


def is_short(response: httpx.Response, limit: int | None) -> bool:
    """Whether the body of an answer is to be read at once.

    Args:
        response: its head.
        limit: the most bytes; None: any body is.
    """
    length = response.headers.get("content-length", "")
    return limit is None or (length.isascii() and length.isdigit() and len(length) < _DIGITS and int(length) <= limit)


def read(response: httpx.Response, limit: int | None) -> Exception | None:
    """Read the body of an answer, or as much of it as is allowed; its stream has it then.

    Args:
        response: its head.
        limit: so many bytes, or one chunk more; None for all.

    Returns:
        What the body ended with, if it broke off. Whoever reads the body gets it, too.
    """
    stream: _Stream = response.stream
    chunks: list[bytes] = []
    rest, room = iter(stream), limit
    try:
        for chunk in rest:
            chunks.append(chunk)
            room = None if room is None else room - len(chunk)
            if room is not None and room < 0:
                response.stream = Part(chunks, stream, rest)
                return None
    except Exception as error:  # noqa: BLE001 - handed on
        response.stream = Part(chunks, stream, error=error)
        return error
    stream.close()
    response.stream = Part(chunks, stream)
    return None


def read_whole(response: httpx.Response) -> None:
    """Read the body of an answer to its end.

    Args:
        response: its head.

    Raises:
        Exception: the body broke off.
    """
    error = read(response, None)
    if error is not None:
        raise error


async def aread(response: httpx.Response, limit: int | None) -> Exception | None:
    """The same for an async answer."""
    stream: _Stream = response.stream
    chunks: list[bytes] = []
    rest, room = aiter(stream), limit
    try:
        async for chunk in rest:
            chunks.append(chunk)
            room = None if room is None else room - len(chunk)
            if room is not None and room < 0:
                response.stream = Part(chunks, stream, rest)
                return None
    except Exception as error:  # noqa: BLE001 - handed on
        response.stream = Part(chunks, stream, error=error)
        return error
    await stream.aclose()
    response.stream = Part(chunks, stream)
    return None


async def aread_whole(response: httpx.Response) -> None:
    """The same for an async answer."""
    error = await aread(response, None)
    if error is not None:
        raise error
