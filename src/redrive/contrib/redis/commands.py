"""Which commands of Redis may be executed twice although they were asked for once.

RFC 9110 calls a request idempotent if the effect of several is that of one. For Redis that is not enough: programs
build claims on answers. ``if client.sadd("seen", id): process(id)`` is such a claim: sent twice, it leaves the same set
and answers 0, and nobody processes anything. So there are three classes:

=====================  ===================================================  =======================================
class                  a second execution                                   as
=====================  ===================================================  =======================================
`Repetition.SAME`      same effect, same answer                             ``GET``, ``SET``, ``MSET``, ``EXPIREAT``
`Repetition.EFFECT`    same effect; the answer tells that it is the second  ``DEL``, ``SADD``, ``HSET``, ``SET NX``
`Repetition.UNKNOWN`   another effect, or a command that is not listed      ``INCR``, ``LPUSH``, ``EVAL``
=====================  ===================================================  =======================================

A retry after a lost reply is made for the first class, and for the second where the program says that it does not look
at such answers. "Same" means: if nobody else writes in between. That is RFC 9110's measure too, and a ``SET`` that is
repeated over somebody else's is a program's own race. A time to live that is counted from the execution (``EXPIRE``,
``SET ... EX``) is the same one, a little later.

The classes follow from the documentation of each command. The reads are what ``COMMAND`` of Redis 7.0 flags
``readonly``, with the administrative ones that change nothing; a test asks the real server. Not listed on purpose:
``GETDEL`` and the pops (the answer is lost with the effect), ``RENAME`` (the second one fails), ``LTRIM`` (it counts
from the new ends), ``ZUNIONSTORE`` and ``BITOP`` (the destination may be a source), and scripts, of which only the
``_RO`` forms promise anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

__all__ = ["COMMANDS", "READS", "Repetition", "repetition_of", "worst_of"]


class Repetition(Enum):
    """What a second execution of a command does."""

    SAME = "same"
    """Nothing: effect and answer are those of one."""
    EFFECT = "effect"
    """Nothing to the data, but its answer is that of a second one."""
    UNKNOWN = "unknown"
    """Something else, or nobody has said."""


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
"""The commands that the server itself calls read-only."""

_ASKING = (
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
_EFFECT = (
    *("COPY", "DEL", "GEOADD", "HDEL", "HSET", "HSETNX", "MSETNX", "PERSIST", "PFADD", "SADD", "SETBIT", "SETNX"),
    *("SMOVE", "SREM", "UNLINK", "XACK", "XDEL", "ZADD", "ZREM", "ZREMRANGEBYLEX", "ZREMRANGEBYSCORE"),
)

COMMANDS: Mapping[str, Repetition] = MappingProxyType(
    {
        **dict.fromkeys((*READS, *_ASKING, *_SAME), Repetition.SAME),
        **dict.fromkeys(_EFFECT, Repetition.EFFECT),
    }
)
"""What a second execution does, by the command's name; any other is `Repetition.UNKNOWN`. Options may say otherwise."""

_CONDITIONS = frozenset({"NX", "XX", "GT", "LT"})
_OPTIONS: Mapping[str, tuple[int, Mapping[str, Repetition]]] = MappingProxyType(
    {
        # the first place of an option among the words of the command, and what an option makes of it
        "SET": (3, dict.fromkeys(("NX", "IFEQ", "IFNE", "IFDEQ", "IFDNE", "GET"), Repetition.EFFECT)),
        "ZADD": (2, {"INCR": Repetition.UNKNOWN}),
        **dict.fromkeys(
            ("EXPIRE", "EXPIREAT", "PEXPIRE", "PEXPIREAT"), (3, dict.fromkeys(_CONDITIONS, Repetition.EFFECT))
        ),
    }
)


def repetition_of(*words: object) -> Repetition:
    """What a second execution of a command does.

    Args:
        *words: the command as redis-py's ``execute_command`` takes it: its name (of one or two words, in any case, text
            or bytes), and its arguments.
    """
    name = _text(words[0]) if words else ""
    found = COMMANDS.get(name)
    if found is None and len(words) > 1:
        found = COMMANDS.get(f"{name} {_text(words[1])}")  # ``CONFIG``, ``GET`` instead of ``CONFIG GET``
    if name in _OPTIONS:
        first, meanings = _OPTIONS[name]
        said = [meanings[word] for word in map(_text, words[first:]) if word in meanings]
        found = max([found or Repetition.UNKNOWN, *said], key=_worse)
    return found or Repetition.UNKNOWN


def worst_of(repetitions: list[Repetition]) -> Repetition:
    """What a second execution of several commands does; nothing, if there are none."""
    return max(repetitions, key=_worse, default=Repetition.SAME)


_worse = list(Repetition).index


def _text(word: object) -> str:
    if isinstance(word, bytes):
        return word.decode("ascii", "replace").upper()
    return word.upper() if isinstance(word, str) else ""
