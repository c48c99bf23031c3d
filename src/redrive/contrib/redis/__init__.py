"""Redis without surprises: what may be repeated after a lost reply, and a client that repeats nothing else.

redis-py retries by itself: with its defaults a command whose reply is lost is sent again, whatever it is, so that one
``INCR`` counts twice. `wrap` gives a client whose own retries are off, and which retries under a policy instead:

=================================================  =========  ======================================================
what happened                                      stage      a retry
=================================================  =========  ======================================================
no connection: refused, handshake, exhausted pool  not sent   of any command
the connection was lost, or the time was up        in flight  if a second execution does no harm (`repetition_of`)
the server refused it (`REPLIES`)                  answered   by the code: ``LOADING`` yes, ``WRONGTYPE`` no
a part of a pipeline was executed                  in flight  if each of its commands may be repeated
=================================================  =========  ======================================================

A lost ``INCR`` is therefore applied once at most, and raised: the note on the exception says that nobody knows whether
it took effect. A policy with ``idempotent=True`` repeats everything, one with ``idempotent=False`` nothing that was in
flight; without either the table of commands decides.

=============  ===================================================================
`commands`     which commands may be executed twice
`replies`      what an error of redis-py means
`client`       the client, in both colours
=============  ===================================================================

What it leaves alone: ``pubsub()``, whose messages are lost with a connection in any case, ``monitor()``, and clusters,
whose client has a retry of its own that cannot be switched off.
"""

from __future__ import annotations

from redrive.contrib.redis.client import wrap
from redrive.contrib.redis.commands import COMMANDS, Repetition, repetition_of
from redrive.contrib.redis.replies import REPLIES, Reply, failure_of

__all__ = ["COMMANDS", "REPLIES", "Repetition", "Reply", "failure_of", "repetition_of", "wrap"]
