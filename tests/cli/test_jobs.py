"""`redrive jobs`: tables for readers, JSON for programs, and actions on jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from redrive import App, CatchRequest, Context, Job, Pending
from redrive.cli import cli
from redrive.cli.text.jobs import remedy
from redrive.engine.outcome import Unreadable
from redrive.errors import JobDead
from redrive.runtime.worker import Worker
from redrive.stores.operations import admin, leases
from redrive.stores.operations.leases import Ending
from tests.runtime.helpers import take

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def ran(shop: App) -> App:
    """Return a shop with one job of each kind: succeeded, retrying, dead, scheduled on another queue."""
    charge = shop.tasks["charge"]
    jobs = [charge.enqueue(5), charge.enqueue(13), charge.enqueue(-5)]
    charge.options(delay="1h", queue="[slow]").enqueue(6)

    async def work() -> None:
        """Work until two have ended and one has failed."""
        worker = Worker(shop)
        running = asyncio.create_task(worker.run())
        for job in (jobs[0], jobs[2]):
            await finished(job)
        while not jobs[1].attempts:
            await asyncio.to_thread(jobs[1].refresh)
        worker.stop()
        await running

    asyncio.run(work())
    return shop


async def finished(job: Job[object]) -> None:
    """Wait for the end of a job, whatever it is."""
    with contextlib.suppress(JobDead):
        await job.aresult(timeout="30s")


def invoke(*words: str) -> str:
    """Run a command that succeeds, and answer what it printed."""
    result = CliRunner().invoke(cli, ["jobs", *words])
    assert (0, None) == (result.exit_code, result.exception)
    return result.stdout


def rows(text: str) -> list[list[str]]:
    """Return the rows of a table without its heading, cut at the gaps between columns."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()[1:]]


# ---------------------------------------------------------------------------------------------------------------- list


def test_jobs_are_listed_newest_first_with_the_reason_why_they_wait(ran: App):
    """Print one line per job with the unchanged error text: brackets in it are no markup."""
    listed = rows(invoke("list", "shop:app"))

    assert [["4", "charge", "[slow]", "ready", "0"], ["3", "charge", "default", "dead", "1"]] == [
        row[:5] for row in listed[:2]
    ]
    assert "dead: negative [red]amount" == listed[1][5]
    assert listed[2][5].startswith("retrying: due in ")
    assert listed[2][5].endswith("; last error: no route [/b] to the bank")
    assert ["1", "charge", "default", "succeeded", "1", "finished"] == listed[3]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [4, 3, 2, 1]),
        (("--state", "ready"), [4, 2]),
        (("--state", "dead"), [3]),
        (("--task", "charge", "--queue", "[slow]"), [4]),
        (("--task", "stop"), []),
        (("--reason", "GAVE_UP"), [3]),
        (("--error", "to the bank"), [2]),
        (("--limit", "2"), [4, 3]),
    ],
)
def test_jobs_can_be_printed_as_json(ran: App, options, expected):
    """Print one object per line for each job that passes all filters."""
    found = [json.loads(line) for line in invoke("list", "shop:app", "--json", *options).splitlines()]

    assert expected == [int(job["id"]) for job in found]


def test_a_job_in_json_has_its_reason(ran: App):
    """Include the state, times in UTC, and the reason in words."""
    (job,) = [json.loads(line) for line in invoke("list", "shop:app", "--json", "--state", "dead").splitlines()]

    assert ("charge", "dead", "GAVE_UP", "negative [red]amount") == (
        job["task"],
        job["state"],
        job["reason"],
        job["error"],
    )
    assert (1, 6) == (job["attempts"], job["most"])
    assert "dead: negative [red]amount" == job["why"]
    assert job["finished_at"].endswith("Z")


def test_a_truncated_list_is_reported(ran: App):
    """Report the cut on standard error, so that standard output has only jobs."""
    result = CliRunner().invoke(cli, ["jobs", "list", "shop:app", "--limit", "3"])

    assert "... --before 2 shows older jobs, --limit more at once\n" == result.stderr
    assert 3 == len(rows(result.stdout))


def test_filters_of_a_database_have_any_length(redrive, ran: App):
    """Hundreds of ids are a filter, and so is a text with quotes."""
    output = redrive("jobs", "list", "shop:app", *map(str, range(1, 1000)))
    quoted = redrive("jobs", "list", "shop:app", "--error", 'a "quoted" text')

    assert 4 == len(rows(output.out))
    assert (0, []) == (quoted.status, rows(quoted.out))


def test_a_list_continues_before_a_job(redrive, ran: App):
    """Show only jobs with smaller ids; a list that ends there says nothing of more."""
    output = redrive("jobs", "list", "shop:app", "--before", "3", "--limit", "2")

    assert (["2", "1"], "") == ([row[0] for row in rows(output.out)], output.err)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_jobs_that_were_not_read_are_reported(redrive, ran: App, monkeypatch: pytest.MonkeyPatch, options):
    """Say on standard error from where on a list of a large database was not read, and read on from there."""
    monkeypatch.setattr(admin, "BUDGET", 2)
    found = redrive("jobs", "list", "shop:app", "--reason", "NONE", *options)
    rest = redrive("jobs", "list", "shop:app", "--state", "succeeded", "--before", "3", *options)

    assert "... jobs older than 3 were not read; --before 3 reads on\n" == found.err
    assert [] == (found.out.splitlines() if options else rows(found.out))
    assert 1 == len(rest.out.splitlines() if options else rows(rest.out))


def test_jobs_that_wait_for_a_reason_are_cut(redrive, ran: App):
    """The list in the order of due times has no jobs before an id."""
    ran.tasks["charge"].options(delay="1s").enqueue(1)
    output = redrive("jobs", "list", "shop:app", "--hold", "delay", "--limit", "1")

    assert (["5"], "... more follow; --limit shows more\n") == ([row[0] for row in rows(output.out)], output.err)


@pytest.mark.parametrize(
    "words",
    [
        ("list", "shop:app", "--task", "chrage"),
        ("cancel", "shop:app", "--task", "chrage"),
        ("redrive", "shop:app", "--task", "chrage", "--dry-run"),
        ("repolicy", "shop:app", "--task", "chrage"),
    ],
)
def test_an_unknown_task_is_refused_with_the_known_ones(redrive, ran: App, words):
    """Refuse a filter that would silently match nothing."""
    output = redrive("jobs", *words)

    expected = "redrive: there is no task 'chrage' in the code, and no job with it; known tasks: charge, stop\n"
    assert (2, "", expected) == (output.status, output.out, output.err)


def test_an_unknown_queue_is_refused_with_the_known_ones(redrive, ran: App):
    """Refuse a filter by a queue that neither the code, the settings, workers nor jobs have."""
    output = redrive("jobs", "list", "shop:app", "--queue", "defualt")

    expected = "redrive: there is no queue 'defualt' in the code, and no job with it; known queues: default\n"
    assert (2, "", expected) == (output.status, output.out, output.err)


def test_an_unknown_state_is_refused_with_the_known_ones(redrive, ran: App):
    """Refuse a state that no job can have."""
    output = redrive("jobs", "list", "shop:app", "--state", "done")

    assert 2 == output.status
    assert "'ready', 'running', 'waiting', 'succeeded', 'dead', 'cancelled'" in " ".join(output.err.split("│")).replace(
        "\n", ""
    ).replace("  ", " ")


def test_tasks_that_only_jobs_have_are_known(redrive, ran: App):
    """Filter by a task that the code no longer has, as long as the database has jobs of it."""
    del ran.tasks["charge"]

    assert 4 == len(redrive("jobs", "list", "shop:app", "--task", "charge", "--json").out.splitlines())


def test_lists_fit_80_columns(ran: App, monkeypatch: pytest.MonkeyPatch):
    """Wrap the reason, and no other column, where a list is too wide."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke("list", "shop:app").splitlines()

    assert 80 >= max(map(len, lines))
    assert ["4", "3", "2", "1"] == [line.split()[0] for line in lines[1:] if not line.startswith(" ")]


def test_lists_are_not_wrapped_in_a_pipe(redrive, ran: App, monkeypatch: pytest.MonkeyPatch):
    """Each job is one line for grep, however long its error is, unless COLUMNS has a width."""
    monkeypatch.delenv("COLUMNS")
    ran.tasks["charge"].options(queue="q" * 200).enqueue(5)
    lines = redrive("jobs", "list", "shop:app").out.splitlines()

    assert ["id", "5", "4", "3", "2", "1"] == [line.split()[0] for line in lines]
    assert 200 < len(lines[1])
    assert [line.rstrip() for line in lines] == lines


# ---------------------------------------------------------------------------------------------------------------- show


def test_a_job_is_shown_with_its_history(ran: App):
    """Why it waits and what clears that, its policy in words, its arguments, and each attempt with what was decided."""
    lines = invoke("show", "shop:app", "2").splitlines()

    assert "job 2  charge on default, priority 0" == lines[0]
    assert lines[1].startswith("ready: retrying: due in ")
    assert "to clear it: redrive jobs retry shop:app 2" == lines[2]
    assert lines[5].startswith("policy: Calls up to 6 times; waits 1h")
    assert 'payload: {"cents":13}' == lines[6]
    assert "last error: ConnectionError: no route [/b] to the bank" == lines[3]
    assert lines[7].startswith("attempt 1  failed after ")
    assert "  ERROR, answered: ConnectionError: no route [/b] to the bank" == lines[8]
    assert "  then: retry in 1h (backoff)" == lines[9]


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("ERROR", "to clear it: redrive jobs retry shop:app 7\n"),
        ("LOST_IN_FLIGHT", "to clear it, after you have found that it had no effect: redrive jobs retry shop:app 7\n"),
        ("PROGRAMMING_ERROR", "to clear it, after the code is corrected: redrive jobs retry shop:app 7\n"),
    ],
)
def test_the_advice_to_repeat_a_job_in_doubt_comes_with_a_caution(
    capsys: pytest.CaptureFixture[str], reason: str, advice: str
):
    """Jobs that were lost with their worker may have had their effect."""
    remedy("redrive jobs retry shop:app 7", reason)

    assert advice == capsys.readouterr().out


def test_a_shown_job_has_the_traceback_of_its_last_error(ran: App):
    """Print the traceback below the attempts, one line for each of its lines."""
    lines = invoke("show", "shop:app", "2").splitlines()
    begin = lines.index("traceback of attempt 1:")

    assert "  Traceback (most recent call last):" == lines[begin + 1]
    assert "  ConnectionError: no route [/b] to the bank" == lines[-1]


def test_a_succeeded_job_is_shown_with_its_result(ran: App):
    """Print the result as JSON on one line, and nest it in the document."""
    shown = invoke("show", "shop:app", "1").splitlines()

    assert ("succeeded: finished", "result: 5") == (shown[1], shown[5])
    assert 5 == json.loads(invoke("show", "shop:app", "1", "--json"))["result"]


def test_a_job_with_unreadable_arguments_needs_other_code(shop: App):
    """Running it at once helps after code that reads its arguments is deployed, and not before."""
    shop.tasks["charge"].enqueue(5)
    (claim,) = take(shop, 1)
    shop.store.run(leases.settle([Ending(claim, Unreadable("no field cents"), 0.0)]))
    lines = invoke("show", "shop:app", "1").splitlines()

    assert lines[1].startswith("ready: arguments cannot be read: due in ")
    assert "to clear it, after code that reads its arguments is deployed: redrive jobs retry shop:app 1" == lines[2]


def test_the_state_of_a_job_is_shown_once(ran: App):
    """Print no state in front of a reason that begins with it."""
    assert "dead: negative [red]amount" == invoke("show", "shop:app", "3").splitlines()[1]


def test_long_payloads_are_not_wrapped(shop: App, monkeypatch: pytest.MonkeyPatch):
    """Print a payload on one line, however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "80")

    @shop.task
    def note(text: str) -> None:
        """Take a text."""

    note.enqueue("x" * 500)

    assert 'payload: {"text":"' + "x" * 500 + '"}' in invoke("show", "shop:app", "1").splitlines()


def test_long_histories_are_shown_from_their_end(shop: App):
    """Print the latest attempts and the number of all."""
    job = shop.tasks["charge"].options(retry="24 0s 0s").enqueue(13)
    asyncio.run(_run_one(shop))
    lines = invoke("show", "shop:app", str(job.id)).splitlines()

    assert "... the latest 20 of 25 attempts; --json has all" in lines
    assert [6, 25] == [int(line.split()[1]) for line in lines if line.startswith("attempt ")][::19]
    assert 25 == len(json.loads(invoke("show", "shop:app", str(job.id), "--json"))["attempts"])


def test_a_shown_job_in_json_has_its_payload_and_history(ran: App):
    """Nest the payload as JSON, not as a string."""
    job = json.loads(invoke("show", "shop:app", "2", "--json"))

    assert {"cents": 13} == job["payload"]
    assert [("failed", "retry in 1h (backoff)")] == [(each["outcome"], each["verdict"]) for each in job["attempts"]]
    assert "ConnectionError: no route [/b] to the bank" in job["attempts"][0]["traceback"]


def test_a_catch_job_is_shown_with_its_parent(shop: App):
    """Show the parent of a catch job, which has no payload."""

    @shop.task
    def recover(request: CatchRequest[int]) -> None:
        """Catch."""

    shop.tasks["charge"].options(retry="0 catch recover").enqueue(-1)
    asyncio.run(_run_one(shop))
    shown = invoke("show", "shop:app", "2")
    plain = json.loads(invoke("show", "shop:app", "2", "--json"))

    assert "catches job 1" in shown.splitlines()
    assert "payload: -" in shown.splitlines()
    assert ("1", None) == (plain["parent"], plain["payload"])


async def _run_one(app: App) -> None:
    """Work until the first job is dead."""
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    await finished(app.job(1))
    worker.stop()
    await running


# ------------------------------------------------------------------------------------------------------------- actions


def test_retrying_a_waiting_job_makes_it_due_now(ran: App):
    """Make the waiting job due now."""
    assert "job 4 is due now\n" == invoke("retry", "shop:app", "4")
    assert 1 == ran.jobs.stats().due


def test_a_job_is_cancelled_once(ran: App):
    """Report the end state of the job at a second cancel."""
    assert "job 4 is cancelled\n" == invoke("cancel", "shop:app", "4", "--why", "ordered twice")
    assert "job 4 had ended before: cancelled\n" == invoke("cancel", "shop:app", "4")
    assert "ordered twice" == ran.job(4).record.note


@pytest.mark.parametrize(
    "choice", [("3",), ("--task", "charge"), ("--queue", "default"), ("--reason", "GAVE_UP"), ("--error", "[red]")]
)
def test_dead_jobs_are_redriven_by_id_or_by_filter(ran: App, choice):
    """Dry runs change no job and report what the real run will do."""
    dry = invoke("redrive", "shop:app", *choice, "--dry-run")
    before = ran.jobs.stats().dead
    done = invoke("redrive", "shop:app", *choice)

    assert ("1 job would be redriven\n", 1, "1 job is redriven\n", 0) == (dry, before, done, ran.jobs.stats().dead)


def test_a_redrive_prints_the_number_of_jobs(ran: App):
    """None and several are jobs in the plural."""
    ran.job(4).cancel()

    assert "0 jobs are redriven\n" == invoke("redrive", "shop:app", "--error", "no such text")
    assert "2 jobs are redriven\n" == invoke("redrive", "shop:app", "3", "4")


def test_refused_redrives_show_the_reason(ran: App):
    """Print one line per refused job on standard error; the others are redriven."""
    result = CliRunner().invoke(cli, ["jobs", "redrive", "shop:app", "1", "3"])

    assert ("1 job is redriven\n", "job 1 is succeeded\n") == (result.stdout, result.stderr)


def test_redriving_all_jobs_needs_an_option(redrive, shop: App):
    """Without ids and without a filter no job is redriven, and the message lists the filters."""
    output = redrive("jobs", "redrive", "shop:app")

    assert 2 == output.status
    assert "give ids, or at least one of --state, --task, --queue, --reason, --error" in " ".join(output.err.split())


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("command", ["show", "retry", "cancel"])
def test_an_unknown_job_is_one_line(redrive, shop: App, command):
    """Exit with 1: the call is correct, and the job does not exist."""
    shop.open()
    output = redrive("jobs", command, "shop:app", "99")

    assert (1, "", "redrive: there is no job 99\n") == (output.status, output.out, output.err)


def test_unknown_jobs_of_several_are_named(redrive, ran: App):
    """Redrive and report the jobs that exist all the same."""
    output = redrive("jobs", "redrive", "shop:app", "3", "99", "98")

    assert (1, "1 job is redriven\n") == (output.status, output.out)
    assert "redrive: there is no job 98, 99 in sqlite:///shop.db?synchronous=normal\n" == output.err


def test_an_action_that_the_state_forbids_is_one_line(redrive, ran: App):
    """Name the actions that the state allows."""
    output = redrive("jobs", "retry", "shop:app", "1")

    expected = "redrive: a succeeded job cannot run again; only a dead or cancelled job can: enqueue a new one\n"
    assert (1, expected) == (output.status, output.err)


@pytest.mark.acceptance
def test_the_commands_work_in_a_separate_process(ran: App):
    """`python -m redrive jobs` in the folder of the app, as a user runs it."""
    ran.close()
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src")}
    command = [sys.executable, "-m", "redrive", "jobs", "list", "shop:app", "--json", "--state", "dead"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)

    assert (0, "") == (done.returncode, done.stderr)
    assert "3" == json.loads(done.stdout)["id"]


# ---------------------------------------------------------------------------------------------------------- progress


@pytest.fixture
def asking(shop: App) -> App:
    """Return a shop with a job that has reported its progress, and waits for an external answer."""

    @shop.task
    async def ask(context: Context) -> Pending:
        """Report progress, and return Pending."""
        await context.aheartbeat({"asked": "the [bank]"})
        return Pending("1h")

    async def run() -> None:
        """Work until it waits."""
        worker = Worker(shop)
        running = asyncio.create_task(worker.run())
        while job.refresh().state != "waiting":
            await asyncio.to_thread(lambda: None)
        worker.stop()
        await running

    job = ask.enqueue()
    asyncio.run(run())
    return shop


def test_progress_is_shown(asking: App):
    """Show the progress with its time; a waiting job also shows the token for its answer."""
    lines = invoke("show", "shop:app", "1").splitlines()
    lease = asking.job(1).record.lease_id

    assert lines[1].startswith("waiting for an answer from outside until ")
    assert [f"token: 1.{lease}"] == [line for line in lines if line.startswith("token")]
    assert [True] == [line.endswith('ago: {"asked":"the [bank]"}') for line in lines if line.startswith("progress, ")]


def test_progress_is_json(asking: App):
    """Nest the details as JSON; a job without a report shows null."""
    asking.tasks["charge"].enqueue(1)
    reported, silent = (json.loads(invoke("show", "shop:app", number, "--json"))["progress"] for number in ("1", "2"))

    assert ({"asked": "the [bank]"}, None) == (reported, silent)
