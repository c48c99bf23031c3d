"""Redis commands under a policy: which ones may be repeated after a lost reply, and a client that repeats only those.

With its defaults redis-py sends any command again if its reply is lost, so that one ``INCR`` may count twice. `wrap`
returns a client without redis-py's retries, which retries under a policy instead:
"""

from redrive.contrib.redis.client import wrap
from redrive.contrib.redis.commands import COMMANDS, Repetition, repetition_of
from redrive.contrib.redis.replies import REPLIES, Reply, failure_of

__all__ = ["COMMANDS", "REPLIES", "Repetition", "Reply", "failure_of", "repetition_of", "wrap"]
