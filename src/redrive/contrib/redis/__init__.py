"""Redis commands under a policy: which ones may be repeated after a lost reply, and a client that repeats only those.

With its defaults redis-py sends any command again if its reply is lost, so that one ``INCR`` may count twice. `wrap`
returns a client without redis-py's retries, which retries under a policy instead:

=================================================  =========  ======================================================
event                                              stage      retried
=================================================  =========  ======================================================
no connection: refused, handshake, exhausted pool  not sent   any command
connection lost, or timeout                        in flight  if a second execution does no harm (`repetition_of`)
refused by the server (`REPLIES`)                  answered   depends on the code: ``LOADING`` yes, ``WRONGTYPE`` no
a pipeline that was executed in part               in flight  if each of its commands may be repeated
=================================================  =========  ======================================================

A lost ``INCR`` is therefore applied at most once, and the error is raised with a note that it is unknown whether the
command took effect. A policy with ``idempotent=True`` repeats all commands, one with ``idempotent=False`` no command
that was in flight; otherwise the table of commands decides.

These are not retried: ``pubsub()``, which loses messages with its connection in any case, ``monitor()``, and clients
for clusters, because their own retries cannot be disabled.
"""

from __future__ import annotations

from redrive.contrib.redis.client import wrap
from redrive.contrib.redis.commands import COMMANDS, Repetition, repetition_of
from redrive.contrib.redis.replies import REPLIES, Reply, failure_of

__all__ = ["COMMANDS", "REPLIES", "Repetition", "Reply", "failure_of", "repetition_of", "wrap"]
