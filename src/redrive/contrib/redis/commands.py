"""The effect of executing a Redis command twice.

RFC 9110 calls a request idempotent if the effect of several is that of one. For Redis that is not enough, because
programs act on replies. If ``if client.sadd("seen", id): process(id)`` is sent twice, the command leaves the same set
but returns 0, and the item is never processed. So there are three classes:
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Repetition(Enum):
    """The effect of a second execution of a command."""

    SAME = "same"
    """No effect; the reply is the same."""
    EFFECT = "effect"
    """No effect on the data, but another reply."""
    UNKNOWN = "unknown"
    """Another effect, or one that is not listed."""


# The classes follow the documentation of each command. The reads are those that COMMAND of Redis 7.0 flags readonly;
# a test compares them with a real server.
READS = frozenset(
    """
    BITCOUNT BITFIELD_RO BITPOS DBSIZE DUMP EVALSHA_RO EVAL_RO EXISTS EXPIRETIME FCALL_RO GEODIST GEOHASH GEOPOS
    GEORADIUSBYMEMBER_RO GEORADIUS_RO GEOSEARCH GET GETBIT GETRANGE HEXISTS HGET HGETALL HKEYS HLEN HMGET HRANDFIELD
    HSCAN HSTRLEN HVALS KEYS LCS LINDEX LLEN LOLWUT LPOS LRANGE MGET PEXPIRETIME PFCOUNT PTTL RANDOMKEY SCAN SCARD SDIFF
    SINTER SINTERCARD SISMEMBER SMEMBERS SMISMEMBER SORT_RO SRANDMEMBER SSCAN STRLEN SUBSTR SUNION TOUCH TTL TYPE XLEN
    XPENDING XRANGE XREAD XREVRANGE ZCARD ZCOUNT ZDIFF ZINTER ZINTERCARD ZLEXCOUNT ZMSCORE ZRANDMEMBER ZRANGE
    ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION
    """.split()  # noqa: SIM905 - a hundred pairs of quotes would be harder to read
)
"""The commands that the server flags as read-only."""

_ADMINISTRATIVE = (
    *("COMMAND", "COMMAND COUNT", "COMMAND DOCS", "COMMAND GETKEYS", "COMMAND INFO", "COMMAND LIST"),
    *("CLIENT GETNAME", "CLIENT ID", "CLIENT INFO", "CLIENT LIST", "CLUSTER INFO", "CLUSTER NODES", "CONFIG GET"),
    *("ECHO", "INFO", "LASTSAVE", "MEMORY USAGE", "OBJECT ENCODING", "OBJECT FREQ", "OBJECT IDLETIME"),
    *("OBJECT REFCOUNT", "PING", "PUBSUB CHANNELS", "PUBSUB NUMPAT", "PUBSUB NUMSUB", "ROLE", "SCRIPT EXISTS"),
    *("SLOWLOG GET", "SLOWLOG LEN", "TIME", "WATCH", "UNWATCH", "XINFO CONSUMERS", "XINFO GROUPS", "XINFO STREAM"),
)
_SAME = (
    *("CONFIG SET", "EXPIRE", "EXPIREAT", "FLUSHALL", "FLUSHDB", "GETEX", "HMSET", "LSET", "MSET", "PEXPIRE"),
    *("PEXPIREAT", "PFMERGE", "PSETEX", "SCRIPT LOAD", "SDIFFSTORE", "SET", "SETEX", "SETRANGE", "SINTERSTORE"),
    "SUNIONSTORE",
)
# A time to live that starts at the execution (EXPIRE, SET ... EX) counts as the same, although it ends a little later.
# Not listed on purpose: GETDEL and the pops (the reply is lost with the effect), RENAME (the second one fails), LTRIM
# (it counts from the new ends), ZUNIONSTORE and BITOP (the destination may be a source), and scripts except _RO forms.
_EFFECT = (
    *("COPY", "DEL", "GEOADD", "HDEL", "HSET", "HSETNX", "MSETNX", "PERSIST", "PFADD", "SADD", "SETBIT", "SETNX"),
    *("SMOVE", "SREM", "UNLINK", "XACK", "XDEL", "ZADD", "ZREM", "ZREMRANGEBYLEX", "ZREMRANGEBYSCORE"),
)

COMMANDS: Mapping[str, Repetition] = MappingProxyType(
    {**dict.fromkeys((*READS, *_ADMINISTRATIVE, *_SAME), Repetition.SAME), **dict.fromkeys(_EFFECT, Repetition.EFFECT)}
)
"""The class of each command; all others are `Repetition.UNKNOWN`. Options may change it (`repetition_of`)."""

_CONDITIONS = frozenset({"NX", "XX", "GT", "LT"})
_OPTIONS: Mapping[str, tuple[int, Mapping[str, Repetition]]] = MappingProxyType(
    {
        # The first position of an option among the words of the command, and the class that an option leads to.
        "SET": (3, dict.fromkeys(("NX", "IFEQ", "IFNE", "IFDEQ", "IFDNE", "GET"), Repetition.EFFECT)),
        "ZADD": (2, {"INCR": Repetition.UNKNOWN}),
        **dict.fromkeys(
            ("EXPIRE", "EXPIREAT", "PEXPIRE", "PEXPIREAT"), (3, dict.fromkeys(_CONDITIONS, Repetition.EFFECT))
        ),
    }
)


def repetition_of(*words: object) -> Repetition:
    """Return the effect of a second execution of a command.

    Args:
        *words: the arguments of redis-py's ``execute_command``: the name of the command (one or two words, in any case,
            text or bytes) and its arguments.
    """
    name = _text(words[0]) if words else ""
    found = COMMANDS.get(name)
    if found is None and len(words) > 1:
        # Callers may pass CONFIG and GET as two words.
        found = COMMANDS.get(f"{name} {_text(words[1])}")
    if name in _OPTIONS:
        first, meanings = _OPTIONS[name]
        changes = [meanings[word] for word in map(_text, words[first:]) if word in meanings]
        found = max([found or Repetition.UNKNOWN, *changes], key=_severity)
    return found or Repetition.UNKNOWN


def worst_of(repetitions: list[Repetition]) -> Repetition:
    """Return the worst class of several commands; ``SAME`` if there are none."""
    return max(repetitions, key=_severity, default=Repetition.SAME)


_severity = list(Repetition).index


def _text(word: object) -> str:
    if isinstance(word, bytes):
        return word.decode("ascii", "replace").upper()
    return word.upper() if isinstance(word, str) else ""
