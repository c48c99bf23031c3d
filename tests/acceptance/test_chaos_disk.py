"""The disk of an SQLite database fills up, and has room again."""

from __future__ import annotations

import errno
import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.app.tasks.job import Job
from redrive.errors import StoreFull
from tests.acceptance.chaos import audit, ended, load, marks, sized
from tests.acceptance.processes import LONG, Deployment

pytestmark = marks

ROOM = 256 * 1024
"""Bytes that are left when the jobs begin to be enqueued."""


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk with room for the jobs of the test, and no more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={sized(8, 64)}m", "redrive-test", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("a small disk is made by mount -t tmpfs, which needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(name="stage")
def _stage(disk: Path, tmp_path: Path) -> Iterator[Deployment]:
    """Return the app of the chaos tests, with its database on the small disk."""
    with load(tmp_path, "sqlite", url=f"sqlite:///{disk}/jobs.db") as stage:
        stage.lease_for = LONG
        yield stage


def _write_without_end(file: io.FileIO) -> None:
    while True:
        file.write(bytes(4096))


def _fill(disk: Path, room: int = 0) -> None:
    """Fill the disk except for this number of bytes."""
    with (disk / "ballast").open("ab", buffering=0) as ballast:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            _write_without_end(ballast)
        ballast.truncate(max(0, ballast.tell() - room))


def _enqueue_without_end(stage: Deployment, jobs: list[Job[int]]) -> None:
    while True:
        jobs += stage.module.quick.enqueue_many(range(20))


def test_a_full_disk_loses_nothing(stage: Deployment, disk: Path):
    """Writes without room raise an error; a worker that cannot write waits, and continues when there is room."""
    held = stage.module.hold.enqueue_many(range(sized(20, 200)))
    jobs: list[Job[int]] = [*held]
    worker = stage.ready_worker("--concurrency", str(len(held)))
    stage.until(lambda: len(stage.executions) == len(held))
    for _ in range(sized(2, 20)):
        _fill(disk, ROOM)
        with pytest.raises(StoreFull, match="make room"):
            _enqueue_without_end(stage, jobs)
        _fill(disk)
        stage.go()
        stage.until(lambda: worker.logged("settling waits: .*disk is full"))
        (disk / "ballast").unlink()
        ended(stage)

    assert worker.alive
    assert list(range(len(held))) == [job.result() for job in held]
    assert {1} == {len(job.attempts) for job in held}
    audit(stage, [job.id for job in jobs])
