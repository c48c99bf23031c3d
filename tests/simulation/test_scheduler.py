"""The scheduler, the event loop and the threads of the simulation themselves."""

from __future__ import annotations

import asyncio
from random import Random

from tests.simulation.loop import run
from tests.simulation.scheduler import Scheduler
from tests.simulation.threads import Threads


def scheduled(*bodies, seed=0):
    """Run functions as strands of one process; each gets the scheduler. Return the scheduler at its end."""
    scheduler = Scheduler(Random(seed))
    process = scheduler.process("p")
    strands = [
        scheduler.spawn(process, lambda body=body: body(scheduler), f"strand {i}") for i, body in enumerate(bodies)
    ]
    scheduler.run(lambda: all(strand.done for strand in strands), 1e6)
    scheduler.close()
    return scheduler


def test_time_jumps_to_the_next_timer():
    """Sleep for an hour in an hour of virtual time."""
    assert 3600.0 == scheduled(lambda scheduler: scheduler.sleep(3600)).now


def test_a_seed_names_one_interleaving():
    """Repeat the order of the strands for the same seed, but not for all seeds."""

    def orders(seed):
        order = []

        def body(name):
            return lambda scheduler: [(order.append(name), scheduler.sleep(1)) for _ in range(5)]

        scheduled(*(body(name) for name in "abc"), seed=seed)
        return "".join(order)

    assert orders(1) == orders(1)
    assert 1 < len({orders(seed) for seed in range(5)})


def test_a_killed_process_runs_no_other_instruction():
    """Run none of its ``finally`` blocks while the simulation continues."""
    seen = []
    scheduler = Scheduler(Random(0))
    victim, other = scheduler.process("victim"), scheduler.process("other")

    def body():
        try:
            scheduler.sleep(2)
        finally:
            seen.append(scheduler.closing)

    scheduler.spawn(victim, body, "main")
    killer = scheduler.spawn(other, lambda: (scheduler.sleep(1), scheduler.kill(victim), scheduler.sleep(9)), "main")
    scheduler.run(lambda: killer.done, 100)

    assert [] == seen
    scheduler.close()
    assert [True] == seen


def test_a_frozen_process_continues_later():
    """Run the postponed work as soon as the process continues."""
    seen = []

    def body(scheduler):
        scheduler.sleep(1)
        seen.append(scheduler.now)

    def freeze(scheduler):
        scheduler.sleep(0.5)
        scheduler.freeze(scheduler.current.process, 5)

    scheduled(body, freeze)

    assert [5.5] == seen


def test_an_event_loop_waits_in_virtual_time():
    """Coroutines sleep, time out and run functions in threads; a wait that blocks one loop does not block another."""
    seen = []

    async def patient(scheduler):
        try:
            async with asyncio.timeout(2):
                await asyncio.sleep(100)
        except TimeoutError:
            seen.append(("timeout", scheduler.now))
        await asyncio.to_thread(scheduler.sleep, 3)
        seen.append(("thread", scheduler.now))

    async def blocking(scheduler):
        scheduler.sleep(4)
        seen.append(("blocked", scheduler.now))

    scheduled(
        lambda scheduler: run(scheduler, patient(scheduler)),
        lambda scheduler: run(scheduler, blocking(scheduler)),
    )

    assert [("timeout", 2.0), ("blocked", 4.0), ("thread", 5.0)] == seen


def test_threads_wait_for_events_and_locks():
    """Events wake the thread that waits for them, and locks exclude others while their holder sleeps."""
    seen = []

    def body(scheduler):
        threads = Threads(scheduler)
        event, lock = threads.Event(), threads.Lock()

        def work():
            seen.append((event.wait(1), scheduler.now))
            with lock:
                seen.append((event.wait(), scheduler.now))

        thread = threads.Thread(target=work)
        with lock:
            thread.start()
            scheduler.sleep(3)
        event.set()
        thread.join()
        seen.append((thread.is_alive(), lock.locked()))

    scheduled(body)

    assert [(False, 1.0), (True, 3.0), (False, False)] == seen
