"""The frames of memcached's binary protocol: 24 bytes, then extras, key and value.

Big-endian, the same for requests and responses but for two bytes, which are the vbucket of a request and the status of
a response::

    0 magic | 1 opcode | 2-3 key length | 4 extras length | 5 data type | 6-7 vbucket or status
    8-11 length of all that follows | 12-15 opaque | 16-23 CAS
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass

__all__ = ["HEADER", "REQUEST", "RESPONSE", "Frame", "Opcode", "read_frame"]

HEADER = struct.Struct(">BBHBBHIIQ")
REQUEST, RESPONSE = 0x80, 0x81


class Opcode:
    """What is used of the opcodes; Couchbase's HELLO and GET_LOCKED are not memcached's."""

    GET = 0x00
    SET = 0x01
    ADD = 0x02
    REPLACE = 0x03
    INCREMENT = 0x05
    NOOP = 0x0A
    APPEND = 0x0E
    TOUCH = 0x1C
    GET_AND_TOUCH = 0x1D
    HELLO = 0x1F
    SASL_LIST = 0x20
    GET_LOCKED = 0x94


@dataclass(frozen=True)
class Frame:
    """One request or response.

    Attributes:
        magic: which of the two.
        opcode: what is asked.
        key: of the document.
        extras: fixed fields of the operation.
        value: of the document, or a message.
        status: of a response; the vbucket of a request.
        opaque: comes back as it was sent.
        cas: version of the document.
    """

    magic: int
    opcode: int
    key: bytes = b""
    extras: bytes = b""
    value: bytes = b""
    status: int = 0
    opaque: int = 0
    cas: int = 0

    def encode(self) -> bytes:
        """Return the bytes of the frame."""
        body = self.extras + self.key + self.value
        head = HEADER.pack(
            self.magic,
            self.opcode,
            len(self.key),
            len(self.extras),
            0,
            self.status,
            len(body),
            self.opaque,
            self.cas,
        )
        return head + body


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """Read one frame.

    Raises:
        asyncio.IncompleteReadError: the stream has ended.
    """
    head = await reader.readexactly(HEADER.size)
    magic, opcode, keys, extras, _, status, length, opaque, cas = HEADER.unpack(head)
    body = await reader.readexactly(length)
    return Frame(magic, opcode, body[extras : extras + keys], body[:extras], body[extras + keys :], status, opaque, cas)
