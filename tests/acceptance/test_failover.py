"""Failovers of real servers under load: nothing that a synchronous standby has is lost, and nothing is doubled.

`make failover` runs the tests of this file, with ``ROUNDS=10`` more often, and prints their table.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.failover import pair, patroni
from tests.acceptance.failover.trial import HEAD, WORK, Cluster, Ledger, Report, Trial, was_kept
from tests.acceptance.processes import stage

pytestmark = [pytest.mark.acceptance, pytest.mark.realtime, pytest.mark.timeout(1800)]

ROUNDS = int(os.environ.get("REDRIVE_ROUNDS", "3"))

Record = Callable[[str, object], None]


def tried(cluster: Cluster, folder: Path, record: Record, rounds: int) -> dict[str, str]:
    """Let a cluster fail over under load, add a line to the table, and return the promises that are broken."""
    with stage(folder, "postgres", work=WORK, url=cluster.url(0)) as fleet:
        report = Trial(fleet, cluster).run(rounds)
    record("figure", HEAD)
    record("figure", str(report))
    return report.broken()


@pytest.mark.night
@pytest.mark.parametrize("fault", pair.FAULTS)
@pytest.mark.parametrize("kind", ["synchronous", "asynchronous"])
def test_two_servers(kind: str, fault: str, tmp_path: Path, record_property: Record):
    """With a synchronous standby nothing acknowledged is lost; in no case is anything doubled, skipped or held."""
    with pair.pair(fault, synchronous=kind == "synchronous") as cluster:
        assert {} == tried(cluster, tmp_path, record_property, ROUNDS)


def test_two_primaries_for_five_seconds_double_nothing(tmp_path: Path, record_property: Record):
    """A worker and a producer reach only the old primary until it is fenced, the others only the new one: what the
    surviving server has, has happened there once."""
    with pair.pair("split", synchronous=False) as cluster:
        assert {} == tried(cluster, tmp_path, record_property, 1)


@pytest.mark.night
@pytest.mark.parametrize("fault", patroni.FAULTS)
@pytest.mark.parametrize("way", patroni.WAYS)
def test_patroni(way: str, fault: str, tmp_path: Path, record_property: Record):
    """With the files of the examples nothing is lost or doubled, behind haproxy and by a URL with both servers."""
    with patroni.patroni(way, fault) as cluster:
        assert {} == tried(cluster, tmp_path, record_property, ROUNDS)


def test_the_table_blames_only_a_synchronous_standby_for_losses():
    """Each broken promise is named, with what shows it; an asynchronous standby may lose, and let jobs run twice."""
    clean = Report("", False, 1, [0, 0, 0, 0], 9, [], [], [], [], [], [], [], [], [], [], ())
    lossy = dataclasses.replace(clean, lost=[("plain", 7)], twice=[8])
    doubled = dataclasses.replace(clean, loses=True, lost=[("plain", 7)], doubled=[("tx", 5)], missed=[1])

    assert {} == clean.broken()
    assert {} == dataclasses.replace(lossy, loses=True).broken()
    assert {"older than the last moment": "[8]"} == dataclasses.replace(lossy, loses=True, older=[8]).broken()
    assert {"lost": "[('plain', 7)]", "ran twice": "[8]"} == lossy.broken()
    assert {"doubled": "[('tx', 5)]", "crons missed": "[1]"} == doubled.broken()


def test_the_audit_misses_what_has_not_happened(tmp_path: Path):
    """A call is done if its functions have run and its rows are there; a process goes on with its next line."""
    lines = (
        "ack event 1 10.0 50",
        "ran batch 1 10.5 60",
        "ran flaky 1 11.0 61",
        "ack event 2 12.0 50",
        "ran batch 2 12.5 60",
    )
    (tmp_path / "executions.log").write_text("\n".join(lines))
    found = Ledger.read(tmp_path)
    rows = collections.Counter([("strict", 1), ("strict", 2)])

    assert [True, False] == [found.is_done(rows, "event", number) for number in (1, 2)]
    assert not found.is_done(collections.Counter(), "event", 1)
    assert (2.0, 0.5, 1.0) == found.go_on(10.0)


def test_only_the_last_moment_before_a_failover_may_be_lost():
    """From a second before the standby lacks writes, until it has taken over."""
    rounds = [(10.0, 11.0, 13.0), (30.0, 31.0, 33.0)]

    assert [True, False, False, True, False] == [was_kept(each, rounds) for each in (8.9, 9.1, 13.0, 13.1, 30.0)]
