"""Forks of a process that has a store open: parent and child both go on, and neither uses what belongs to the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from redrive import App, forks
from redrive.stores.opening import open_store
from redrive.stores.operations import jobs
from redrive.stores.store import Store
from tests import postgres
from tests.stores.helpers import new

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")

ROOT = Path(__file__).parents[1]

PATIENCE = 90
"""Seconds after which a test that waits for something has failed."""

HEAD = """
import multiprocessing, os, signal, sys, threading, time

from redrive import App
from redrive.errors import StoreBusy, StoreError, StoreOpenError
from redrive.stores.operations import admin, jobs
from redrive.stores.opening import open_store
from tests.stores.helpers import new

url = f"sqlite:///{sys.argv[1]}?busy_timeout=1s"
store = open_store(url)

def put(task):
    while True:
        try:
            return store.run(jobs.enqueue([new(task)])).ids[0]
        except StoreBusy:  # on a busy machine the other writers may come first for a second
            pass

def due(task):
    return store.run(admin.stats(task=task)).due

def forked(work):
    child = os.fork()
    if child == 0:
        signal.alarm(200)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

THREADS = """
stop = threading.Event()
acknowledged = []

def enqueue():
    while not stop.is_set():
        acknowledged.append(put("parent"))

threads = [threading.Thread(target=enqueue) for _ in range(4)]
for each in threads:
    each.start()

def joined():
    stop.set()
    for each in threads:
        each.join()
    return len(acknowledged) == len(set(acknowledged)) == due("parent")
"""


def run(path: Path, script: str) -> str:
    """Run a script in a process of its own, and return what it printed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", HEAD + script, str(path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert "" == ended.stderr
    return ended.stdout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the database."""
    return tmp_path / "jobs.db"


def test_children_that_are_forked_while_threads_enqueue_can_write(path: Path):
    """Twelve children enqueue two jobs each; no job of the children or of the parent's threads is lost."""
    script = """
def work():
    put("child")
    put("child")
    store.version()

children = []
for number in range(12):
    before = len(acknowledged)
    while len(acknowledged) == before:  # the threads are at work
        time.sleep(0.001)
    children.append(forked(work))
print([ended(each) for each in children] == [0] * 12, joined(), due("child"))
"""
    assert "True True 24\n" == run(path, THREADS + script)


def test_a_pool_of_multiprocessing_that_forks_can_write(path: Path):
    """Processes that `multiprocessing` forks can write too."""
    script = """
with multiprocessing.get_context("fork").Pool(3) as pool:
    numbers = pool.map_async(put, ["child"] * 12).get(200)
print(len(set(numbers)), joined(), due("child"))
"""
    assert "12 True 12\n" == run(path, THREADS + script)


def test_a_child_continues_when_its_parent_has_closed_the_store(path: Path):
    """SQLite's locks of the child are its own: the parent, which ends first, does not take the log away from it."""
    script = """
go, gone = os.pipe(), os.pipe()

def work():
    put("child")
    os.write(go[1], b"!")
    os.read(gone[0], 1)
    put("child")

child = forked(work)
os.read(go[0], 1)
store.close()
log_is_there = os.path.exists(sys.argv[1] + "-wal")
os.write(gone[1], b"!")
code = ended(child)
store = open_store(url)
print(log_is_there, code, due("child"))
"""
    assert "True 0 2\n" == run(path, "put('parent')\n" + script)


def test_a_fork_inside_of_a_transaction_refuses_the_child_and_spares_the_parent(path: Path):
    """Refuse a child that is forked in ctx.transaction(), with the reason; the parent can commit."""
    script = """
def work():
    try:
        put("child")
    except StoreOpenError as error:
        print(error, flush=True)
    try:
        loan.rollback()
    except StoreError as error:
        print(error, flush=True)

loan = store.begin()
loan.run(jobs.enqueue([new("parent")]))
code = ended(forked(work))
loan.commit()
print(code, due("parent"), due("child"), ended(forked(lambda: put("child"))), due("child"))
"""
    refused, ended, rest = run(path, script).splitlines()

    assert "forked while the parent was in the middle of a transaction" in refused
    assert "spawn" in refused
    assert "the transaction belongs to the parent" in ended
    assert "0 1 0 0 1" == rest


def test_a_child_opens_a_store_that_another_thread_was_opening(path: Path):
    """Locks of the app that a thread of the parent held are free in the child."""
    script = """
app = App(url)

@app.task
def send():
    pass

held, go = threading.Event(), threading.Event()

def hold():
    with app._lock:
        held.set()
        go.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
code = ended(forked(send.enqueue))
go.set()
thread.join()
print(code, due("send"))
app.close()
"""
    assert "0 1\n" == run(path, script)


def test_the_parent_has_new_connections_after_a_fork_and_sees_changes(path: Path):
    """Before a fork all connections are closed. After it, writing, reading and watching open theirs again."""
    store, other = open_store(f"sqlite:///{path}"), open_store(f"sqlite:///{path}")
    version = store.version()
    before = store._writer._connection
    try:
        forks._before()
        assert (None, None, None) == (store._writer._connection, store._reader._connection, store._watcher._connection)
        assert not Path(f"{path}-wal").exists()
        forks._after_in_parent()
        (number,) = store.run(jobs.enqueue([new()])).ids
        assert "send" == store.run(jobs.get(number)).task
        assert before is not store._writer._connection
        assert version != (version := store.version())
        other.run(jobs.enqueue([new()]))
        assert version != store.version()
    finally:
        store.close()
        other.close()


def test_a_fork_waits_for_what_is_being_written(path: Path):
    """Another thread's open transaction ends before the process forks."""
    store = open_store(f"sqlite:///{path}")
    loan = store.begin()
    loan.run(jobs.enqueue([new()]))
    timer = threading.Timer(0.05, loan.commit)
    timer.start()
    forking = threading.Thread(target=forks._before)  # a thread of its own: the loan is not that thread's
    forking.start()
    forking.join(PATIENCE)
    rests = store._paused
    forks._after_in_parent()
    timer.join()
    due = store.run(jobs.get(1)).task
    store.close()

    assert (True, "send") == (rests, due)


@pytest.fixture
def server() -> Store:
    """Open a store on PostgreSQL."""
    opened = open_store(postgres.url())
    yield opened
    opened.close()


def exit_code(child: int) -> int:
    """Wait for a child."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_on_postgres_waits_for_no_lock_of_its_parent_and_uses_no_socket_of_it(server: Store):
    """It connects for itself, although a thread of the parent held the lock of the driver; the parent goes on."""
    (first,) = server.run(jobs.enqueue([new()])).ids
    driver = server
    parents = {each.info.backend_pid for each, _ in driver._sync._idle}
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        """Hold the lock while the process forks."""
        with driver._lock:
            held.set()
            go.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE)
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        status = 1
        try:
            server.run(jobs.enqueue([new()]))
            own = {each.info.backend_pid for each, _ in driver._sync._idle}
            status = 0 if own and not own & parents else 2
        finally:
            os._exit(status)
    code = exit_code(child)
    go.set()
    thread.join()

    assert 0 == code
    assert parents == {each.info.backend_pid for each, _ in driver._sync._idle}
    assert first == server.run(jobs.get(first)).id


def test_a_mutex_excludes_other_threads():
    """Only one thread holds the lock of an app."""
    app = App("memory://")
    with app._lock:
        assert not app._lock._lock.acquire(blocking=False)
    assert app._lock._lock.acquire(blocking=False)
