"""What memcached 1.6.18 answers: the ground that the rig stands on."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from uuid import NAMESPACE_URL, uuid5

import pytest

from tests.contrib.couchbase.rig.frames import REQUEST, Frame, Opcode, read_frame
from tests.contrib.couchbase.rig.server import Memcached

pytestmark = pytest.mark.acceptance

SET_EXTRAS = struct.pack(">II", 0, 0)


def request(opcode, key=b"", extras=b"", value=b"", **fields):
    """Return a request with a recognisable opaque."""
    return Frame(REQUEST, opcode, key, extras, value, opaque=0xC0FFEE, **fields)


def put(key, value):
    """Return a request that stores a value."""
    return request(Opcode.SET, key, SET_EXTRAS, value)


def ask(server, *frames):
    """Send requests one by one over one connection; their responses."""

    async def _steps():
        reader, writer = await asyncio.open_connection(server.host, server.port)
        replies = []
        for frame in frames:
            writer.write(frame.encode())
            replies.append(await read_frame(reader))
        writer.close()
        await writer.wait_closed()
        return replies

    return asyncio.run(_steps())


def status(server, *frames):
    """Return the status of the last response."""
    return ask(server, *frames)[-1].status


@pytest.fixture
def key(request):
    """Return a key that no other test uses."""
    return uuid5(NAMESPACE_URL, request.node.nodeid).hex.encode()


@pytest.mark.case("memcached_1_6_18/noop")
def test_noop_succeeds(memcached):
    """NOOP succeeds and returns its opaque."""
    [reply] = ask(memcached, request(Opcode.NOOP))

    assert (0, 0xC0FFEE) == (reply.status, reply.opaque)


@pytest.mark.case("memcached_1_6_18/get_missing")
def test_a_missing_key_is_not_found(memcached, key):
    """GET of a key that is not there answers 0x01."""
    assert 0x01 == status(memcached, request(Opcode.GET, key))


@pytest.mark.case("memcached_1_6_18/get_vbucket_17_ignored")
def test_the_vbucket_is_ignored(memcached, key):
    """GET finds a key whatever vbucket the request names."""
    assert 0x00 == status(memcached, put(key, b"1"), request(Opcode.GET, key, status=17))


@pytest.mark.case("memcached_1_6_18/add_existing")
def test_adding_what_exists_is_refused(memcached, key):
    """ADD of a key that is there answers 0x02."""
    assert 0x02 == status(memcached, put(key, b"1"), request(Opcode.ADD, key, SET_EXTRAS, b"2"))


@pytest.mark.case("memcached_1_6_18/replace_missing")
def test_replacing_what_is_missing_is_refused(memcached, key):
    """REPLACE of a key that is not there answers 0x01."""
    assert 0x01 == status(memcached, request(Opcode.REPLACE, key, SET_EXTRAS, b"2"))


@pytest.mark.case("memcached_1_6_18/set_bad_cas")
def test_a_wrong_cas_is_refused(memcached, key):
    """SET with another CAS than the key's answers 0x02."""
    assert 0x02 == status(memcached, put(key, b"1"), replace(put(key, b"2"), cas=12345))


@pytest.mark.case("memcached_1_6_18/incr_non_numeric")
def test_only_numbers_are_incremented(memcached, key):
    """INCREMENT of a text answers 0x06."""
    extras = struct.pack(">QQI", 1, 0, 0)

    assert 0x06 == status(memcached, put(key, b"text"), request(Opcode.INCREMENT, key, extras))


@pytest.mark.case("memcached_1_6_18/append_missing")
def test_appending_to_what_is_missing_is_not_stored(memcached, key):
    """APPEND to a key that is not there answers 0x05."""
    assert 0x05 == status(memcached, request(Opcode.APPEND, key, value=b"2"))


@pytest.mark.case("memcached_1_6_18/touch", "memcached_1_6_18/gat")
def test_touch_succeeds(memcached, key):
    """TOUCH and GET_AND_TOUCH of a key that is there succeed."""
    extras = struct.pack(">I", 60)
    touches = [request(opcode, key, extras) for opcode in (Opcode.TOUCH, Opcode.GET_AND_TOUCH)]

    assert [0x00, 0x00] == [reply.status for reply in ask(memcached, put(key, b"1"), *touches)[1:]]


@pytest.mark.case("memcached_1_6_18/hello_value_only", "memcached_1_6_18/sasl_list_without_S")
def test_commands_of_couchbase_are_unknown_to_memcached(memcached):
    """HELLO without a key, and SASL where it is switched off, answer 0x81."""
    frames = [request(Opcode.HELLO, value=b"\x00\x07"), request(Opcode.SASL_LIST)]

    assert [0x81, 0x81] == [reply.status for reply in ask(memcached, *frames)]


@pytest.mark.case("memcached_1_6_18/get_locked_key_extras")
def test_an_unknown_opcode_with_a_key_drops_the_next_request(memcached):
    """After an unknown opcode with a key and extras no reply comes until as many bytes more have come."""
    unknown = request(Opcode.GET_LOCKED, b"k", bytes.fromhex("0000000f"))

    async def _steps():
        reader, writer = await asyncio.open_connection(memcached.host, memcached.port)
        writer.write(unknown.encode())
        writer.write(b"\x00" * 4)
        reply = asyncio.ensure_future(read_frame(reader))
        other_reader, other = await asyncio.open_connection(memcached.host, memcached.port)
        other.write(request(Opcode.NOOP).encode())
        await read_frame(other_reader)  # it has one thread, so by now it has read what came first
        other.close()
        await other.wait_closed()
        early = reply.done()
        writer.write(b"\x00")
        late = await reply
        writer.close()
        await writer.wait_closed()
        return early, late.status

    assert (False, 0x81) == asyncio.run(_steps())


@pytest.mark.case("memcached_1_6_18/set_when_full_-M_-m8")
def test_a_full_server_answers_out_of_memory(memcached_binary):
    """With -M a SET that finds no memory answers 0x82 instead of evicting."""
    with Memcached(memcached_binary, "-M", "-m", "8") as server:
        frames = [put(b"big%d" % number, b"x" * 500_000) for number in range(40)]

        assert 0x82 == status(server, *frames)


@pytest.mark.case("memcached_1_6_18/flex_magic_0x08")
def test_flexible_framing_is_not_understood(memcached):
    """Requests with Couchbase's flexible magic get no reply."""

    async def _steps():
        reader, writer = await asyncio.open_connection(memcached.host, memcached.port)
        writer.write(replace(request(Opcode.NOOP), magic=0x08).encode())
        writer.write_eof()
        rest = await reader.read()
        writer.close()
        await writer.wait_closed()
        return rest

    assert not asyncio.run(_steps()).startswith(b"\x81")
