"""The table of commands, compared with a real server."""

from __future__ import annotations

import pytest
import redis

from redrive.contrib.redis.commands import COMMANDS, READS, Repetition, repetition_of, worst_of

BEFORE = (
    ("SET", "text", "old"),
    ("SET", "gone", "v", "EX", "1000"),
    ("RPUSH", "list", "a", "b"),
    ("SADD", "set", "a", "b"),
    ("SADD", "other", "b", "c"),
    ("HSET", "hash", "f", "v"),
    ("ZADD", "sorted", "1", "a", "2", "b"),
    ("PFADD", "log", "a"),
    ("XADD", "stream", "1-1", "f", "v"),
    ("XADD", "stream", "1-2", "f", "v"),
    ("XGROUP", "CREATE", "stream", "group", "0"),
    ("XREADGROUP", "GROUP", "group", "me", "COUNT", "1", "STREAMS", "stream", ">"),
)
"""What is there before each example."""

EXAMPLES = (
    ("CONFIG SET", "maxclients", "1000"),
    ("EXPIRE", "text", "1000"),
    ("EXPIREAT", "text", "9999999999"),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("GETEX", "text", "PXAT", "9999999999000"),
    ("HMSET", "hash", "f", "w"),
    ("LSET", "list", "0", "z"),
    ("MSET", "text", "new", "more", "x"),
    ("PEXPIRE", "text", "1000000"),
    ("PEXPIREAT", "text", "9999999999000"),
    ("PFMERGE", "merged", "log"),
    ("PSETEX", "text", "1000000", "new"),
    ("SCRIPT LOAD", "return 1"),
    ("SDIFFSTORE", "set", "set", "other"),
    ("SET", "text", "new"),
    ("SETEX", "text", "1000", "new"),
    ("SETRANGE", "text", "1", "x"),
    ("SINTERSTORE", "set", "set", "other"),
    ("SUNIONSTORE", "set", "set", "other"),
    ("COPY", "text", "copied"),
    ("DEL", "text"),
    ("GEOADD", "places", "13.4", "52.5", "Berlin"),
    ("HDEL", "hash", "f"),
    ("HSET", "hash", "g", "v"),
    ("HSETNX", "hash", "g", "v"),
    ("MSETNX", "a1", "x", "a2", "y"),
    ("PERSIST", "gone"),
    ("PFADD", "log", "b"),
    ("SADD", "set", "c"),
    ("SETBIT", "bits", "3", "1"),
    ("SETNX", "fresh", "x"),
    ("SMOVE", "set", "other", "a"),
    ("SREM", "set", "a"),
    ("UNLINK", "text"),
    ("XACK", "stream", "group", "1-1"),
    ("XDEL", "stream", "1-1"),
    ("ZADD", "sorted", "3", "c"),
    ("ZREM", "sorted", "a"),
    ("ZREMRANGEBYLEX", "sorted", "-", "+"),
    ("ZREMRANGEBYSCORE", "sorted", "1", "1"),
    ("SET", "fresh", "x", "NX"),
    ("SET", "text", "new", "GET"),
)
"""Each command that writes, so that it changes something the first time."""


def state(client):
    """Return all data, without the times to live."""
    return {key: (content(client, key), client.expiretime(key) > 0) for key in client.keys("*")}


def content(client, key):
    """Return the value of a key; the members of a set are sorted."""
    members = client.type(key) == b"set"
    return sorted(client.smembers(key)) if members else client.dump(key)


@pytest.fixture
def client(server):
    """Return a client of a server with data."""
    with redis.Redis(host=server.host, port=server.port) as client:
        for command in BEFORE:
            client.execute_command(*command)
        yield client


def test_the_servers_read_only_commands_are_the_ones_listed(client):
    """No read-only command is missing, and no other command is listed."""
    read_only = {
        name.upper() for name, info in client.execute_command("COMMAND").items() if "readonly" in info["flags"]
    }

    assert read_only == READS


@pytest.mark.parametrize("example", EXAMPLES, ids=" ".join)
def test_a_second_execution_changes_nothing(client, example):
    """Neither the data nor, for ``SAME``, the reply changes; for ``EFFECT`` the reply does."""
    client.response_callbacks = {}  # the server's own words

    first = client.execute_command(*example)
    once = state(client)
    second = client.execute_command(*example)

    assert once == state(client)
    assert (Repetition.SAME if first == second else Repetition.EFFECT) == repetition_of(*example)


def test_every_command_that_writes_has_an_example():
    """Every write command of the table is tested."""
    asked = {name for name in COMMANDS if COMMANDS[name] is Repetition.SAME and name not in READS}
    writing = {name for name in COMMANDS if COMMANDS[name] is Repetition.EFFECT} | {
        name for name in asked if name in {example[0] for example in EXAMPLES}
    }

    assert writing == {example[0] for example in EXAMPLES}


@pytest.mark.parametrize(
    "command", [("INCR", "n"), ("LPUSH", "l", "x"), ("GETDEL", "k"), ("EVAL", "return 1", 0), ("NOBODY.KNOWS",), ()]
)
def test_unlisted_commands_are_not_repeated(command):
    """Unlisted commands are ``UNKNOWN``."""
    assert repetition_of(*command) is Repetition.UNKNOWN


def test_a_name_is_read_in_any_form():
    """Names may be text or bytes, upper or lower case, in one word or two."""
    assert {Repetition.SAME} == {
        repetition_of(*command) for command in [(b"get", "k"), ("Config Get", "x"), ("CONFIG", "GET", "x")]
    }


def test_options_change_the_class():
    """Conditions change the reply, and INCR makes a ZADD count; values that look like options change nothing."""
    assert repetition_of("SET", "k", "v", "EX", 5, "XX") is Repetition.SAME
    assert repetition_of("SET", "k", "NX") is Repetition.SAME
    assert repetition_of("SET", "k", "v", b"nx") is Repetition.EFFECT
    assert repetition_of("EXPIRE", "k", 5, "NX") is Repetition.EFFECT
    assert repetition_of("ZADD", "k", "INCR", 1, "m") is Repetition.UNKNOWN


def test_several_commands_have_the_strictest_class():
    """Empty sequences are ``SAME``."""
    assert worst_of([Repetition.SAME, Repetition.UNKNOWN, Repetition.EFFECT]) is Repetition.UNKNOWN
    assert worst_of([]) is Repetition.SAME
