"""The backend for ``django.tasks``: tasks of Django run by a real worker, on the project's own database."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, timedelta
from datetime import datetime as at

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import override_settings

from redrive import Context
from redrive.clock import SystemClock
from redrive.contrib.django import JobContext, cron, running
from redrive.contrib.django.checks import problems
from redrive.contrib.django.compat import TaskResultDoesNotExist, TaskResultStatus, task_backends
from redrive.contrib.django.results import encode_id
from redrive.contrib.django.task_options import CRONS
from redrive.errors import ConfigurationError, DuplicateJob, StoreUnreachable
from redrive.stores.operations import jobs
from tests.contrib.django.project import BACKEND, number, ready, result_of, work
from tests.contrib.django.sample import tasks
from tests.contrib.django.sample.models import Charge


def test_an_enqueued_task_runs_and_has_a_result():
    """Enqueued tasks are run by a worker, and their return value is the result."""
    done = result_of(tasks.add.enqueue(2, two=3))

    assert (TaskResultStatus.SUCCESSFUL, 5) == (done.status, done.return_value)
    assert 1 == done.attempts
    assert [] == done.errors
    assert done.enqueued_at <= done.started_at <= done.finished_at


def test_an_enqueued_task_is_described_at_once():
    """Enqueued tasks are READY, with their arguments as JSON and an id."""
    new = tasks.add.enqueue(one=1, two=(2, 3))

    assert (TaskResultStatus.READY, [], {"one": 1, "two": [2, 3]}) == (new.status, new.args, new.kwargs)
    assert new.enqueued_at.tzinfo is not None
    assert new.id == tasks.add.get_result(new.id).id
    task_backends["default"].app.job(number(new)).cancel()


def test_coroutines_are_tasks_too():
    """Tasks that are `async def` run on the worker's loop."""
    assert 5 == result_of(tasks.aadd.enqueue(2, 3)).return_value


def test_asynchronous_callers_are_served():
    """`aenqueue` and `aget_result` do the same, awaited."""

    async def use():
        new = await tasks.add.aenqueue(1, 2)
        return await tasks.add.aget_result(new.id)

    found = asyncio.run(use())

    assert TaskResultStatus.READY == found.status
    assert 3 == result_of(found).return_value


def test_a_failure_is_retried_by_the_policy_at_the_function():
    """Failures are retried by `@retries`; errors has each failure, attempts each execution."""
    tasks.troubles[:] = [ValueError("first"), KeyError("second")]

    done = result_of(tasks.stumble.enqueue("there"))

    assert "there" == done.return_value
    assert [ValueError, KeyError] == [error.exception_class for error in done.errors]
    assert "ValueError: first" in done.errors[0].traceback
    assert 3 == done.attempts == len(done.worker_ids)


def test_without_a_policy_a_failure_is_final():
    """Tasks without a policy have one attempt, as with Django's own backends."""
    done = result_of(tasks.once.enqueue("alas"))

    assert (TaskResultStatus.FAILED, [ValueError]) == (done.status, [each.exception_class for each in done.errors])
    with pytest.raises(ValueError, match="Task failed"):
        _ = done.return_value


def test_settings_have_policies_for_all_tasks_and_for_single_ones(tmp_path):
    """`retry` holds for tasks without a policy, and `policies` over what stands at the function."""
    path = "tests.contrib.django.sample.tasks.stumble"
    options = {"store": f"sqlite:///{tmp_path}/jobs.db", "retry": "1 1ms", "policies": {path: "2 1ms"}}
    tasks.troubles[:] = [ValueError("again")] * 9

    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}):
        assert 2 == result_of(tasks.once.enqueue("alas")).attempts
        assert 3 == result_of(tasks.stumble.enqueue("there")).attempts


def test_a_job_waits_for_its_time():
    """`run_after` is when the job is due; the delay until then counts from the enqueue."""
    due_at = at(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    began = SystemClock.monotonic()
    new = tasks.add.using(run_after=due_at).enqueue(1, 2)
    took = timedelta(seconds=SystemClock.monotonic() - began)

    job = task_backends["default"].app.job(number(new))

    assert took + timedelta(milliseconds=50) > abs(job.record.scheduled_at - due_at)
    assert "ready" == job.state
    job.cancel()


def test_an_unreachable_database_is_no_failure_of_the_task(monkeypatch):
    """If the job cannot be read, the task is postponed, and its attempt does not count."""
    ordinary, away = jobs.material, [StoreUnreachable("for a moment")]

    def material(job_id):
        if away:
            raise away.pop()
        return ordinary(job_id)

    new = tasks.add.enqueue(1, 2)
    monkeypatch.setattr(running.jobs, "material", material)
    monkeypatch.setattr(running, "RETRY_AFTER", "1ms")
    work(task_backends["default"].app)
    new.refresh()

    assert (3, []) == (new.return_value, new.errors)


def test_a_past_run_after_is_due_now():
    """Times of `run_after` in the past are no delay."""
    assert 3 == result_of(tasks.add.using(run_after=at(2020, 1, 1, tzinfo=UTC)).enqueue(1, 2)).return_value


def test_priorities_of_django_are_inverted():
    """Priorities and queues are those of Django, and come back so."""
    new = tasks.look.using(priority=20, queue_name="mail").enqueue()
    app = task_backends["default"].app
    record = app.job(number(new)).record

    assert (-20, "mail") == (record.priority, record.queue)
    assert (20, "mail") == (new.task.priority, new.task.queue_name)
    found = tasks.look.get_result(new.id).task
    assert (20, "mail") == (found.priority, found.queue_name)
    app.job(number(new)).cancel()


def test_a_task_may_take_its_context():
    """Contexts have those of Django and of redrive: attempts, the result, and the job."""
    new = tasks.look.enqueue()

    assert [1, new.id, 1, "RUNNING"] == result_of(new).return_value


def test_a_coroutine_may_take_its_context():
    """Coroutines get the context, too."""
    new = tasks.alook.enqueue()

    assert [1, new.id] == result_of(new).return_value


@pytest.mark.parametrize(
    "wrong",
    ["", "x", "1", "-1", "123456789", "9" * 26, "9" * 400, "0" * 32, "f" * 32, "Ä" * 32, "a b", "\0", None, 7, b"x"],
    ids=repr,
)
def test_unknown_ids_have_no_result(wrong):
    """Ids of no job, and what is no id, have no result."""
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(wrong)


@pytest.mark.parametrize("job_id", [10**9, 2**63 - 1])
def test_unknown_jobs_have_no_result(job_id):
    """Ids of the right form, of jobs that do not exist, have no result."""
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(encode_id(job_id))


def test_ids_cannot_be_guessed():
    """Ids are texts of 32 characters without an order, so that the next one cannot be guessed."""
    first, second = tasks.add.enqueue(1, 2), tasks.add.enqueue(1, 2)
    work(task_backends["default"].app)

    assert (32, 32) == (len(first.id), len(second.id))
    assert 1 == number(second) - number(first)
    assert 20 < sum(one != two for one, two in zip(first.id, second.id, strict=True))
    assert f"{number(first):x}" != first.id.lstrip("0")


def test_ids_outlive_a_change_of_the_secret_key():
    """Ids from before are known while the earlier key is in SECRET_KEY_FALLBACKS, as for Django's own signatures."""
    new = result_of(tasks.add.enqueue(1, 2))
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        assert 3 == tasks.add.get_result(new.id).return_value
    with override_settings(SECRET_KEY="another"), pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(new.id)


AT = at(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    "changes",
    [{}, {"run_after": AT}, {"run_after": at(2020, 1, 1, tzinfo=UTC)}, {"priority": -3, "queue_name": "mail"}],
    ids=str,
)
def test_the_result_that_is_read_is_the_one_that_was_returned(changes):
    """`get_result` returns what `enqueue` has returned, in all fields; also inside the transaction of the enqueue."""
    with transaction.atomic():
        inside = tasks.add.using(**changes).enqueue(1, two={"b": [2]})
        assert inside == tasks.add.get_result(inside.id)
    new = tasks.add.using(**changes).enqueue(1, two={"b": [2]})
    for each in (inside, new):
        found = tasks.add.get_result(each.id)
        assert vars_of(each) == vars_of(found)
        assert each == found
        task_backends["default"].app.job(number(each)).cancel()


def vars_of(result):
    """Return the fields of a result by name."""
    return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}


def test_times_are_those_of_a_project_without_time_zones():
    """With USE_TZ off, times are naive, also after a round trip."""
    with override_settings(USE_TZ=False):
        naive = at(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None)
        new = tasks.add.using(run_after=naive).enqueue(1, 2)
        assert new == tasks.add.get_result(new.id)
        assert (None, naive) == (new.enqueued_at.tzinfo, new.task.run_after)
        assert 3 == result_of(new).return_value


def test_the_time_of_a_task_outlives_its_retries():
    """`run_after` stays what was asked for, although the job is due later."""
    due_at = at(2020, 1, 1, tzinfo=UTC)
    tasks.troubles[:] = [ValueError("first")]
    new = result_of(tasks.stumble.using(run_after=due_at).enqueue("there"))

    assert (2, due_at) == (new.attempts, tasks.stumble.get_result(new.id).task.run_after)


def test_an_operator_may_leave_the_bounds_of_django():
    """Priorities and queues of jobs that Django would refuse do not keep its result from being read."""
    app = task_backends["default"].app
    job = app.find("tests.contrib.django.sample.tasks.add").options(priority=-1000).enqueue([1, 2], {})

    assert 100 == tasks.add.get_result(encode_id(job.id)).task.priority
    work(app)


def test_a_job_of_a_task_that_is_not_of_django_has_no_result():
    """Crons and tasks of `app.task` are jobs, and no tasks of Django."""
    app = task_backends["default"].app
    job = app.find("tests.contrib.django.sample.tasks.nightly").enqueue()

    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(encode_id(job.id))
    work(app)


def test_options_of_a_job_that_django_does_not_have():
    """Keys make their job the only one; with `on_conflict="existing"` the result is that of the job that has it."""
    backend = task_backends["default"]
    first = backend.enqueue(tasks.add, [1, 2], {}, key="sum", on_conflict="existing")
    second = asyncio.run(backend.aenqueue(tasks.add, [5, 6], {}, key="sum", on_conflict="existing"))

    assert first == second
    with pytest.raises(DuplicateJob):
        backend.enqueue(tasks.add, [1, 2], {}, key="sum")
    assert 3 == result_of(first).return_value


def test_a_cron_is_declared_at_its_function():
    """Functions with `@cron` are crons of the App, with the path as the name; they can use the database."""
    app = task_backends["default"].app
    _ = app.tasks
    night = app.schedules.declared["tests.contrib.django.sample.tasks.nightly"].definition

    assert ("0 3 * * *", "Europe/Kyiv") == (night.pattern, night.tz)
    assert tasks.nightly is not app.find("tests.contrib.django.sample.tasks.nightly")
    for name in ("nightly", "anightly"):
        app.find(f"tests.contrib.django.sample.tasks.{name}").enqueue()
    work(app)
    assert {0, "anightly"} == set(tasks.seen)


def test_a_cron_that_cannot_be_read_is_named():
    """Patterns are read when the App is complete, such as by `manage.py check`."""
    cron("often", backend="reports")(tasks.plain)
    try:
        with override_settings(TASKS={"reports": {"BACKEND": BACKEND, "OPTIONS": {"store": "memory://"}}}):
            assert ["redrive.E003"] == [each.id for each in problems(task_backends["reports"])]
    finally:
        del CRONS["reports"]


def test_a_cancelled_job_has_failed():
    """Cancelled jobs are failed tasks with that error."""
    new = tasks.add.enqueue(1, 2)
    task_backends["default"].app.job(number(new)).cancel("not wanted")
    new.refresh()

    assert TaskResultStatus.FAILED == new.status
    assert ("JobCancelled", True) == (new.errors[0].exception_class.__name__, "not wanted" in new.errors[0].traceback)


def test_arguments_that_are_no_json_are_refused_at_the_enqueue():
    """Arguments that cannot be read again are refused at the enqueue."""
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.add.enqueue(object(), 1)


def test_an_enqueue_is_a_part_of_the_transaction():
    """Jobs enqueued inside `atomic()` exist if and only if it commits; the id is known before."""
    app = task_backends["default"].app
    before = app.jobs.stats().unfinished
    with pytest.raises(LookupError), transaction.atomic():  # noqa: PT012 - what the block leaves is the subject
        Charge.objects.create(cents=1, note="undone")
        undone = tasks.add.enqueue(1, 2)
        assert TaskResultStatus.READY == tasks.add.get_result(undone.id).status
        raise LookupError
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(undone.id)
    with transaction.atomic():
        Charge.objects.create(cents=1, note="done")
        done = tasks.add.enqueue(2, 2)
        assert before == app.jobs.stats().unfinished

    assert 4 == result_of(done).return_value
    assert ["done"] == [each.note for each in Charge.objects.all()]


def test_an_enqueue_in_a_transaction_that_is_broken_is_refused():
    """In a broken transaction, in which Django refuses queries, an enqueue is refused as well."""
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            tasks.add.enqueue(1, 2)


def test_a_failed_task_is_taken_by_its_catch_task():
    """After the last failure, the catch task gets the arguments and every attempt."""
    result_of(tasks.doomed.enqueue("alas"))

    assert [("doomed", {"args": ["alas"], "kwargs": {}}, 2)] == tasks.seen


def test_a_catch_task_may_be_a_coroutine():
    """Catch tasks are `def` or `async def`."""
    result_of(tasks.adoomed.enqueue("alas"))

    assert [("adoomed", {"args": ["alas"], "kwargs": {}}, 2)] == tasks.seen


def test_unresolvable_annotations_are_ignored():
    """Django reads no annotations, and neither do we: what cannot be resolved is no catch task."""
    result_of(tasks.unreadable.enqueue("word"))

    assert ["word"] == tasks.seen


def test_the_orm_and_the_end_of_the_job_are_one_transaction():
    """`context.transaction()`: what an attempt has written is undone if it fails, and committed with the success."""
    tasks.troubles[:] = [ValueError("after the write")]

    done = result_of(tasks.charge.enqueue(12))

    assert ("charged", 2) == (done.return_value, done.attempts)
    assert [12] == [each.cents for each in Charge.objects.all()]


def test_the_end_of_a_job_does_not_wait_for_another_transaction():
    """Inside of `atomic()` the end of the job would not be its commit, so it is refused."""
    done = result_of(tasks.nested.enqueue())

    assert ["RuntimeError"] == [error.exception_class.__name__ for error in done.errors]


def test_transactions_of_django_need_a_synchronous_task():
    """Coroutines cannot use `context.transaction()`, because Django's transactions are synchronous."""
    done = result_of(tasks.acharge.enqueue())

    assert "synchronous" in done.errors[0].traceback


def test_a_separate_store_has_no_transaction_of_the_orm(tmp_path):
    """With a store of its own, an enqueue is stored at once, and `context.transaction()` is refused."""
    options = {"store": f"sqlite:///{tmp_path}/jobs.db"}
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}):
        with transaction.atomic():
            done = tasks.charge.enqueue(12)
            assert 1 == task_backends["default"].app.jobs.stats().unfinished
        assert "needs the jobs in one of DATABASES" in result_of(done).errors[0].traceback


def test_a_context_of_a_test_has_no_transaction():
    """Contexts that a test has made belong to no execution."""
    job = Context(1, "charge", 1, 0, "1.1", "key", at(2031, 1, 1, tzinfo=UTC), None)
    context = JobContext(task_result=None, job=job)

    with pytest.raises(ConfigurationError, match="belongs to no execution"):
        context.transaction()


def test_connections_are_closed_after_each_job():
    """With CONN_MAX_AGE=0, no thread of a worker keeps a connection longer than its job."""
    result_of(tasks.use_the_database.enqueue())

    (left,) = tasks.seen
    with pytest.raises(connection.Database.ProgrammingError, match="closed"):
        left.execute("SELECT 1")


def test_a_worker_imports_the_task_that_a_job_names():
    """Workers import the task that a job names; other objects at that path are no tasks."""
    app = task_backends["default"].app

    assert app.find("tests.contrib.django.sample.tasks.add") is not None
    assert None is app.find("tests.contrib.django.sample.tasks.plain")
    assert None is app.find("tests.contrib.django.sample.nothing.there")


def test_a_task_of_a_failing_module_makes_its_jobs_wait(caplog):
    """Modules that cannot be imported are logged, make their jobs wait, and stop no worker."""
    assert None is task_backends["default"].app.find("tests.contrib.django.sample.broken.task")
    assert "importing the module of task 'tests.contrib.django.sample.broken.task' failed" in caplog.text


def test_the_jobs_are_in_the_projects_database():
    """Without options, the store is the default database."""
    assert f"sqlite:///{ready()}" == task_backends["default"].app.url


def test_a_snooze_is_no_failure():
    """Snoozed executions have no error."""
    tasks.troubles[:] = [ValueError()]
    done = result_of(tasks.snooze.enqueue())

    assert ("awake", []) == (done.return_value, done.errors)
