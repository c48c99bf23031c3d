"""The client, tested with a real server and a failing proxy by the commands that the server has applied."""

from __future__ import annotations

import contextlib

import pytest
import redis

from redrive import observe, retry
from redrive.contrib.redis import failure_of, wrap
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Policy, Stage
from tests.contrib.redis.conftest import AT_ONCE
from tests.proxy import FaultKind

LOST = (redis.ConnectionError, redis.TimeoutError, TimeoutError)


@contextlib.contextmanager
def healing(heal):
    """Call a function at the first retry, and record the reasons of all failures."""
    reasons = []

    def hear(event):
        if isinstance(event, observe.CallRetryScheduled):
            reasons.append(event.failure.reason)
            if len(reasons) == 1:
                heal()

    with observe.only(hear):
        yield reasons


def counted(server, key="n"):
    """Return the server's value of a counter."""
    return server.ask("GET", key)


# ------------------------------------------------------------------------------------------------------ lost replies


@pytest.mark.case("python_clients/redis_py_default_double_incr")
@pytest.mark.case("python_clients/redis_py_default_double_incr")
def test_redis_py_alone_applies_an_increment_twice(colour, server, proxy):
    """With redis-py's defaults an INCR runs again if its reply is lost: the reason for this package."""
    proxy.on(FaultKind.CUT_AFTER, when=b"INCR")

    assert colour.done(colour.plain(proxy.port).incr("n")) == 2
    assert counted(server) == "2"


@pytest.mark.case("python_clients/redis_py_default_double_incr")
@pytest.mark.case("python_clients/redis_py_default_double_incr")
@pytest.mark.parametrize(
    ("kind", "applied"), [(FaultKind.CUT_BEFORE, None), (FaultKind.CUT_AFTER, "1"), (FaultKind.TRUNCATE, "1")]
)
def test_a_lost_increment_is_applied_once_at_most_and_raised(colour, server, proxy, kind, applied):
    """It is unknown whether it took effect, and the error contains that."""
    fault = proxy.on(kind, when=b"INCR", times=9)

    with pytest.raises(redis.ConnectionError) as caught:
        colour.done(colour.client(proxy.port).incr("n"))

    assert fault.hits == 1
    assert counted(server) == applied
    assert failure_of(caught.value).stage is Stage.IN_FLIGHT
    assert "not idempotent" in caught.value.__notes__[-1]


def test_a_reset_connection_is_in_flight_too(colour, server, proxy):
    """ECONNRESET after the command was executed proves nothing either."""
    proxy.on(FaultKind.CUT_AFTER, when=b"INCR", reset=True)

    with pytest.raises(redis.ConnectionError):
        colour.done(colour.client(proxy.port).incr("n"))

    assert counted(server) == "1"


@pytest.mark.parametrize("kind", [FaultKind.CUT_BEFORE, FaultKind.CUT_AFTER, FaultKind.TRUNCATE])
def test_a_lost_read_or_set_is_repeated(colour, server, proxy, kind):
    """Their second execution does no harm."""
    client = colour.client(proxy.port, decode_responses=True)
    proxy.on(kind, when=b"SET")
    proxy.on(kind, when=b"GET")

    assert colour.done(client.set("k", "v")) is True
    assert colour.done(client.get("k")) == "v"


def test_a_command_with_a_changing_reply_is_not_repeated(colour, server, proxy):
    """SADD raises, because its lost reply was 1 and the reply of a second execution would be 0."""
    proxy.on(FaultKind.CUT_AFTER, when=b"SADD")

    with pytest.raises(redis.ConnectionError):
        colour.done(colour.client(proxy.port).sadd("seen", "a"))

    assert proxy.count(b"SADD") == 1


def test_a_command_with_an_ignored_reply_is_repeated(colour, server, proxy):
    """Programs that ignore these replies can declare it."""
    proxy.on(FaultKind.CUT_AFTER, when=b"SADD")

    assert colour.done(colour.client(proxy.port, answers_matter=False).sadd("seen", "a")) == 0
    assert proxy.count(b"SADD") == 2


@pytest.mark.parametrize(("idempotent", "hits"), [(True, 2), (False, 1)])
def test_the_idempotence_of_a_policy_precedes_the_table(colour, server, proxy, idempotent, hits):
    """``idempotent=True`` repeats the INCR as well, ``idempotent=False`` not even a GET."""
    client = colour.client(proxy.port, AT_ONCE.with_(idempotent=idempotent))
    command = "incr" if idempotent else "get"
    proxy.on(FaultKind.CUT_AFTER, when=command.upper().encode())

    with contextlib.nullcontext() if idempotent else pytest.raises(redis.ConnectionError):
        colour.done(getattr(client, command)("n"))

    assert proxy.count(command.upper().encode()) == hits


# ----------------------------------------------------------------------------------------------------------- not sent


def test_a_command_that_found_no_server_is_repeated(colour, server, proxy):
    """Refused connections prove that nothing was sent, so an INCR is repeated until there is a server."""
    client = colour.client(proxy.port)
    proxy.refuse()

    with healing(proxy.accept) as reasons:
        assert colour.done(client.incr("n")) == 1

    assert reasons == ["SOCKET_NOT_AVAILABLE"]


@pytest.mark.parametrize("greeting", [b"SELECT", b"AUTH"])
def test_a_handshake_that_fails_is_before_the_command(colour, server, proxy, greeting):
    """Neither AUTH nor SELECT is the command: it was not sent."""
    server.ask("ACL", "SETUSER", "writer", "on", "nopass", "allkeys", "allcommands")
    client = colour.client(proxy.port, db=1, username="writer", password="any")
    fault = proxy.on(FaultKind.CUT_AFTER, when=greeting)

    assert colour.done(client.incr("n")) == 1
    assert fault.hits == 1


def test_a_server_that_was_killed_and_started_again_is_found(colour, own_server):
    """Connections of the pool are dead, new ones are refused for a while, and the INCR is applied once."""
    client = colour.client(own_server.port)
    colour.done(client.ping())
    own_server.kill()
    colour.notice()

    with healing(own_server.restart) as reasons:
        assert colour.done(client.incr("n")) == 1

    assert reasons == ["SOCKET_NOT_AVAILABLE"]
    assert counted(own_server) == "1"


def test_an_exhausted_pool_has_sent_nothing(server):
    """redis-py raises a connection error, but nothing was sent."""
    pool = redis.ConnectionPool(host=server.host, port=server.port, max_connections=1)
    taken = pool.get_connection()
    client = wrap(redis.Redis(connection_pool=pool), AT_ONCE)

    with healing(lambda: pool.release(taken)) as reasons:
        assert client.incr("n") == 1

    assert reasons == ["SOCKET_NOT_AVAILABLE"]
    pool.disconnect()


# --------------------------------------------------------------------------------------------------------------- time


def test_the_time_that_is_left_reaches_the_socket(colour, server, proxy):
    """Without a timeout of its own the client is interrupted by the attempt's timeout, and the INCR is not repeated."""
    client = colour.client(proxy.port, AT_ONCE.with_(attempt_timeout="100ms"), socket_timeout=None)
    colour.done(client.ping())
    fault = proxy.on(FaultKind.DROP, when=b"INCR", times=9)

    with pytest.raises(LOST):
        colour.done(client.incr("n"))

    assert fault.hits == 1
    assert counted(server) == "1"


def test_a_read_that_took_too_long_is_repeated(colour, server, proxy):
    """Its second attempt gets a connection that replies."""
    client = colour.client(proxy.port, AT_ONCE.with_(attempt_timeout="300ms"), socket_timeout=None)
    colour.done(client.ping())
    fault = proxy.on(FaultKind.DROP, when=b"GET")

    assert colour.done(client.get("n")) is None
    assert fault.hits == 1


def test_the_time_of_one_call_is_not_that_of_the_next(server):
    """Connections with a shortened timeout have their own again in the next call."""
    plain = redis.Redis(host=server.host, port=server.port, socket_timeout=7)
    wrap(plain, AT_ONCE.with_(attempt_timeout="1s")).ping()
    connection = plain.connection_pool.get_connection()

    assert connection._sock.gettimeout() == 7
    plain.connection_pool.release(connection)
    plain.close()


# ---------------------------------------------------------------------------------------------------------- pipelines


@pytest.mark.parametrize("transaction", [True, False], ids=["transaction", "pipeline"])
def test_a_lost_pipeline_that_counts_is_applied_once_and_raised(colour, server, proxy, transaction):
    """Single commands that may not be repeated prevent the repetition of the pipeline."""
    pipeline = colour.client(proxy.port).pipeline(transaction=transaction)
    pipeline.set("k", "v").incr("n")
    proxy.on(FaultKind.CUT_AFTER, when=b"INCR", times=9)

    with pytest.raises(redis.ConnectionError) as caught:
        colour.done(pipeline.execute())

    assert counted(server) == "1"
    assert "not idempotent" in caught.value.__notes__[-1]


@pytest.mark.parametrize("transaction", [True, False], ids=["transaction", "pipeline"])
def test_a_lost_pipeline_of_reads_and_sets_is_repeated(colour, server, proxy, transaction):
    """Repeat it as a whole, with all its commands."""
    pipeline = colour.client(proxy.port, decode_responses=True).pipeline(transaction=transaction)
    pipeline.set("k", "v").get("k")
    fault = proxy.on(FaultKind.CUT_AFTER, when=b"SET")

    assert colour.done(pipeline.execute()) == [True, "v"]
    assert fault.hits == 1
    assert len(pipeline) == 0


def test_a_pipeline_that_was_refused_as_a_whole_is_repeated(colour, server):
    """No command was executed, so even an INCR may be repeated."""
    server.ask("REPLICAOF", server.host, 1)
    pipeline = colour.client(server.port).pipeline(transaction=False)
    pipeline.incr("n").incr("n")

    with healing(lambda: server.ask("REPLICAOF", "NO", "ONE")) as reasons:
        assert colour.done(pipeline.execute()) == [1, 2]

    assert reasons == ["REDIS_READONLY"]


def test_a_transaction_of_which_a_command_was_refused_is_repeated(colour, server):
    """Redis discards the whole transaction."""
    server.ask("CONFIG", "SET", "maxmemory", 1)
    pipeline = colour.client(server.port).pipeline()
    pipeline.incr("n").incr("n")

    with healing(lambda: server.ask("CONFIG", "SET", "maxmemory", 0)) as reasons:
        assert colour.done(pipeline.execute()) == [1, 2]

    assert reasons == ["REDIS_OOM"]


def test_a_pipeline_of_which_a_part_was_executed_is_not_repeated(colour, server):
    """After the pop was executed and the write refused, a repetition would pop another item."""
    server.ask("RPUSH", "list", "a", "b")
    server.ask("CONFIG", "SET", "maxmemory", 1)
    pipeline = colour.client(server.port).pipeline(transaction=False)
    pipeline.rpop("list").set("k", "v")

    try:
        with pytest.raises(redis.ResponseError) as caught:
            colour.done(pipeline.execute())
    finally:
        server.ask("CONFIG", "SET", "maxmemory", 0)

    assert server.ask("LLEN", "list") == 1
    assert failure_of(caught.value).stage is Stage.IN_FLIGHT


def test_a_repeatable_part_does_not_prevent_a_repetition(colour, server):
    """Only a read was executed, so the pipeline is repeated."""
    server.ask("CONFIG", "SET", "maxmemory", 1)
    pipeline = colour.client(server.port).pipeline(transaction=False)
    pipeline.get("n").incr("n")

    with healing(lambda: server.ask("CONFIG", "SET", "maxmemory", 0)):
        assert colour.done(pipeline.execute()) == [None, 1]


def test_errors_as_replies_are_returned(colour, server):
    """With ``raise_on_error=False`` the caller receives the errors as replies."""
    server.ask("SET", "text", "x")
    pipeline = colour.client(server.port).pipeline(transaction=False)
    pipeline.incr("text").incr("n")

    answers = colour.done(pipeline.execute(raise_on_error=False))

    assert [type(answer) for answer in answers] == [redis.ResponseError, int]


def watched(colour, client):
    """Run a transaction that watches a key; ``transaction()`` of redis-py."""
    if colour.kind is redis.Redis:
        return client.transaction(lambda pipe: (pipe.multi(), pipe.incr("n")), "watched")

    async def steps():
        """Run the transaction under asyncio."""

        async def change(pipe):
            """Queue the commands of the transaction."""
            pipe.multi()
            pipe.incr("n")

        return await client.transaction(change, "watched")

    return colour.done(steps())


def test_redis_py_alone_runs_a_transaction_twice(colour, server, proxy):
    """redis-py treats a lost EXEC as a changed watched key, with retries or without."""
    client = colour.plain(proxy.port)
    proxy.on(FaultKind.CUT_AFTER, when=b"EXEC")

    watched(colour, client)

    assert counted(server) == "2"


def test_a_transaction_with_a_lost_reply_raises(colour, server, proxy):
    """Raise the connection's error: the transaction was executed, once."""
    client = colour.client(proxy.port)
    proxy.on(FaultKind.CUT_AFTER, when=b"EXEC")

    with pytest.raises(redis.ConnectionError) as caught:
        watched(colour, client)

    assert counted(server) == "1"
    assert "it is unknown" in caught.value.__notes__[-1]


def test_watch_is_repeated_while_no_key_is_watched(colour, server, proxy):
    """WATCH is a read, and the transaction has not begun."""
    proxy.on(FaultKind.CUT_BEFORE, when=b"WATCH")

    watched(colour, colour.client(proxy.port))

    assert counted(server) == "1"


def test_a_changed_watched_key_is_raised_to_the_caller(colour, server):
    """Do not repeat the pipeline, because the values that it has read are outdated."""
    pipeline = colour.client(server.port).pipeline()
    colour.done(pipeline.watch("watched"))
    assert colour.done(pipeline.get("watched")) is None
    server.ask("SET", "watched", "changed")
    pipeline.multi()
    pipeline.incr("n")

    with pytest.raises(redis.WatchError):
        colour.done(pipeline.execute())

    assert counted(server) is None


# ------------------------------------------------------------------------------------------------------ error replies


def test_a_server_without_memory_is_asked_again(colour, server):
    """OOM precedes any execution."""
    server.ask("CONFIG", "SET", "maxmemory", 1)

    with healing(lambda: server.ask("CONFIG", "SET", "maxmemory", 0)) as reasons:
        assert colour.done(colour.client(server.port).incr("n")) == 1

    assert reasons == ["REDIS_OOM"]


def test_a_replica_is_asked_again_over_new_connections(colour, server, proxy):
    """After a failover the same name resolves to another server, so the client reconnects."""
    server.ask("REPLICAOF", server.host, 1)
    client = colour.client(proxy.port)

    with healing(lambda: server.ask("REPLICAOF", "NO", "ONE")) as reasons:
        assert colour.done(client.incr("n")) == 1

    assert reasons == ["REDIS_READONLY"]
    assert proxy.connections == 2


@pytest.fixture
def loading_server(own_server):
    """Start a server that loads its data from disk slowly; ``n`` is 1 in them."""
    own_server.ask("CONFIG", "SET", "rdbcompression", "no")
    own_server.ask("MSET", "n", 1, *(word for key in range(40) for word in (f"k{key}", "v" * 1500)))
    own_server.ask("SAVE")
    own_server.kill()
    own_server.restart("--key-load-delay", "50000", "--loading-process-events-interval-bytes", "1024")
    return own_server


def test_a_server_that_loads_is_waited_for(colour, loading_server):
    """LOADING is an answer, although redis-py raises a connection error; the INCR was not executed."""
    with healing(lambda: loading_server.ask("CONFIG", "SET", "key-load-delay", 0)) as reasons:
        client = colour.client(loading_server.port, Policy(attempts=1000, backoff=Backoff.constant("10ms")))
        assert colour.done(client.incr("n")) == 2

    assert set(reasons) == {"REDIS_LOADING"}


def test_a_pipeline_that_meets_a_server_that_loads_may_be_executed_in_part(colour, loading_server):
    """redis-py stops reading at the first such reply, so the results of the other commands are unknown."""
    pipeline = colour.client(loading_server.port).pipeline(transaction=False)
    pipeline.incr("n").incr("n")

    with pytest.raises(redis.BusyLoadingError) as caught:
        colour.done(pipeline.execute())

    assert failure_of(caught.value).stage is Stage.IN_FLIGHT


def test_a_wrong_command_is_not_repeated(colour, server, proxy):
    """WRONGTYPE would be the reply again."""
    server.ask("RPUSH", "list", "a")

    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        colour.done(colour.client(proxy.port).incr("list"))

    assert proxy.count(b"INCR") == 1


def test_wrong_credentials_are_not_tried_again(colour, server, proxy):
    """Authentication errors are final, although their class is one of connection errors."""
    with pytest.raises(redis.AuthenticationError):
        colour.done(colour.client(proxy.port, username="nobody", password="wrong").incr("n"))

    assert proxy.connections == 1


def test_a_script_that_the_server_has_forgotten_is_loaded(colour, server):
    """NOSCRIPT is raised without a retry to redis-py's own ``Script``, which loads the script."""
    client = colour.client(server.port)
    script = client.register_script("return redis.call('INCR', KEYS[1])")
    server.ask("SCRIPT", "FLUSH")

    assert colour.done(script(keys=["n"])) == 1


# ----------------------------------------------------------------------------------------------------- client interface


def test_the_clients_own_retries_are_off(colour, server):
    """Every client of these connections is affected."""
    plain = colour.plain(server.port)
    client = wrap(plain, AT_ONCE)

    assert plain.get_retry().get_retries() == 0
    assert client.get_retry().get_retries() == 0


@pytest.mark.parametrize("used", [True, False])
def test_a_blocking_pool_is_wrapped(server, used):
    """The retries of a pool that waits for a connection are off, also those of connections that it has."""
    pool = redis.BlockingConnectionPool(port=server.port)
    plain = redis.Redis(connection_pool=pool)
    if used:
        plain.ping()
    client = wrap(plain, AT_ONCE)

    assert client.ping()
    assert [0] == [connection.retry.get_retries() for connection in pool._connections]


def test_the_wrapped_client_has_the_same_class_and_commands(colour, server):
    """Its class derives from the original client's class and has the same commands."""
    client = colour.client(server.port, decode_responses=True)

    assert isinstance(client, colour.kind)
    assert colour.done(client.hset("h", mapping={"a": "1"})) == 1
    assert colour.done(client.hgetall("h")) == {"a": "1"}


def test_a_client_with_one_connection_is_under_the_policy_too(colour, server, proxy):
    """redis-py's ``client()`` returns one."""
    client = colour.client(proxy.port)
    proxy.on(FaultKind.CUT_AFTER, when=b"GET")

    single = client.client()
    assert colour.done(single.get("n")) is None
    colour.done(single.aclose() if hasattr(single, "aclose") else single.close())

    assert proxy.count(b"GET") == 2


def test_locks_work_on_the_wrapped_client(colour, server):
    """Locks use the client's commands."""
    lock = colour.client(server.port).lock("name", timeout=5)

    assert colour.done(lock.acquire()) is True
    colour.done(lock.release())
    assert server.ask("EXISTS", "name") == 0


def test_the_connections_live_as_long_as_either_client(server):
    """Either the wrapped or the original client may be deleted first."""
    plain = redis.Redis(host=server.host, port=server.port)
    client = wrap(plain, AT_ONCE)
    client.ping()
    idle = plain.connection_pool._available_connections[0]
    del client

    assert idle._sock is not None
    assert wrap(redis.Redis(host=server.host, port=server.port), AT_ONCE).ping() is True
    plain.close()


def test_only_what_the_policy_names_is_retried(colour, server, proxy):
    """Here the policy names one error reply and no connection failure."""
    client = colour.client(proxy.port, AT_ONCE.with_(on="REDIS_OOM"))
    proxy.on(FaultKind.CUT_AFTER, when=b"GET")

    with pytest.raises(redis.ConnectionError):
        colour.done(client.get("n"))


def test_under_another_retry_a_command_is_sent_once(server, proxy):
    """Inside another retry the command leaves the retries to the outer call."""
    client = wrap(redis.Redis(port=proxy.port), AT_ONCE)
    fault = proxy.on(FaultKind.CUT_AFTER, when=b"GET", times=2)

    @retry(AT_ONCE, on=failure_of, idempotent=True)
    def read():
        return client.get("n")

    assert read() is None
    assert fault.hits == 2
    assert read.policy.attempts == 4


def test_other_objects_are_refused():
    """Each error contains the solution."""
    plain = redis.Redis()

    with pytest.raises(TypeError, match="wrapped already"):
        wrap(wrap(plain, AT_ONCE), AT_ONCE)
    with pytest.raises(TypeError, match="takes a redis.Redis"):
        wrap(object(), AT_ONCE)
    with pytest.raises(PolicyValueError, match="give names"):
        wrap(plain, AT_ONCE.with_(on=failure_of))
    with pytest.raises(PolicyValueError, match="a combination"):
        wrap(plain, Policy(on="REDIS_OOM") >> AT_ONCE)
