"""Tasks that are declared without an App, and policies that tasks take from their queue or their app."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redrive import App, CatchRequest, Policy, Tasks
from redrive.errors import ConfigurationError, PolicyError, TaskDefinitionError
from redrive.policy import Backoff
from redrive.testing import VirtualClock, drain


@pytest.fixture
def app() -> Iterator[App]:
    """Return an app in memory with virtual time."""
    made = App("memory://", clock=VirtualClock())
    yield made
    made.close()


def attempts(app: App, name: str) -> int | None:
    """Return the attempts of the policy of a task."""
    return app.tasks[name].policy.attempts


# ------------------------------------------------------------------------------------------------------- collections


def test_tasks_of_a_collection_run_in_the_app_that_includes_it(app: App):
    """Tasks, options that were made before, crons and refreshes belong to the app after ``include``."""
    tasks = Tasks()
    seen: list[str] = []

    @tasks.task(retry="2 1s")
    def send(text: str) -> str:
        seen.append(text)
        return text.upper()

    urgent = send.options(priority=-5)

    @tasks.cron("0 * * * *")
    def hourly() -> None:
        seen.append("hourly")

    @tasks.refresh("Refresh every 2 hours")
    def pull(number: int) -> None:
        seen.append(f"pull {number}")

    assert "HI" == send("hi")
    app.include(tasks)
    jobs = [send.enqueue("plain"), urgent.enqueue("urgent")]
    pull.track("one", 1)
    drain(app, within="61m")

    assert ["PLAIN", "URGENT"] == [job.result(timeout=0) for job in jobs]
    assert {"hi", "plain", "urgent", "pull 1", "hourly"} == set(seen)
    assert 2 == len(hourly.occurrences())
    assert {"send", "hourly", "pull"} == set(app.tasks)


def test_a_collection_that_is_not_included_cannot_enqueue():
    """The message names the tasks and the call that is missing."""
    tasks = Tasks()
    send = tasks.task(name="send")(lambda: None)

    with pytest.raises(ConfigurationError, match=r"\(send\) belong to no App yet: include it with app.include"):
        send.enqueue()
    with pytest.raises(AttributeError, match="no attribute 'stroe'"):
        _ = tasks.stroe


@pytest.mark.parametrize("name", ["__parameters__", "__class_getitem__", "__wrapped__", "delay"])
def test_tools_may_ask_a_collection_for_any_attribute(name: str):
    """What `hasattr` looks for is absent, and no error about the App, which has no such name."""
    assert not hasattr(Tasks(), name)


def test_tasks_that_are_declared_after_the_inclusion_belong_to_the_app(app: App):
    """Modules that are imported later add their tasks to the app at once."""
    tasks = Tasks()
    app.include(tasks)
    late = tasks.task(name="late")(lambda: 5)
    job = late.enqueue()
    drain(app)

    assert 5 == job.result(timeout=0)


def test_a_name_that_is_taken_includes_nothing(app: App):
    """If one name of a collection is taken, none of its tasks is registered."""
    tasks = Tasks()
    tasks.task(name="free")(lambda: None)
    tasks.task(name="taken")(lambda: None)
    app.task(name="taken")(lambda: None)

    with pytest.raises(TaskDefinitionError, match="two tasks are called 'taken'"):
        app.include(tasks)
    assert {"taken"} == set(app.tasks)


def test_a_collection_belongs_to_one_app(app: App):
    """Including it twice, and including another object, is refused with one line."""
    tasks = Tasks()
    app.include(tasks)

    with pytest.raises(TaskDefinitionError, match=r"Tasks\(\) is included in an app already"):
        App("memory://").include(tasks)
    with pytest.raises(
        TaskDefinitionError, match=r"takes a redrive.Tasks collection, got 'shop.mail'; name modules in"
    ):
        app.include("shop.mail")  # type: ignore[arg-type]


def test_a_catch_task_may_be_in_another_collection(app: App):
    """Catch tasks are found in the app, whichever collection declared them."""
    failing, catching = Tasks(), Tasks()
    caught: list[str] = []

    @failing.task(retry="0 catch recover")
    def fail() -> None:
        raise OSError("down")

    @catching.task
    def recover(request: CatchRequest[Any]) -> None:
        caught.append(request.task)

    app.include(failing)
    app.include(catching)
    fail.enqueue()
    drain(app)

    assert ["fail"] == caught


# --------------------------------------------------------------------------------------------------- default policies


def test_the_policy_of_a_task_replaces_that_of_its_queue_and_its_app():
    """The nearest policy is taken whole; nothing is merged."""
    app = App("memory://", retry="1 1s")
    app.queue("mail", retry=Policy(attempts=3, backoff=Backoff.constant("2s")))
    app.task(name="own", queue="mail", retry="6 1s")(lambda: None)
    app.task(name="of_queue", queue="mail")(lambda: None)
    app.task(name="of_app")(lambda: None)
    app.cron("* * * * *", name="tick")(lambda: None)
    app.refresh("Refresh every 2 hours", name="pull")(lambda: None)

    assert {"own": 7, "of_queue": 3, "of_app": 2, "tick": 2, "pull": 1} == {
        name: attempts(app, name) for name in app.tasks
    }
    assert 2 == app.schedules.declared["tick"].definition.job.policy.policy.attempts  # type: ignore[union-attr]
    assert Backoff.constant("2s") == app.tasks["of_queue"].policy.backoff


def test_options_of_the_task_hold_under_a_default_policy():
    """``timeout`` and ``idempotent`` of the decorator belong to the task, whatever its policy."""
    app = App("memory://", retry="1 1s")
    app.task(name="task", timeout="5s", idempotent=False)(lambda: None)

    policy = app.tasks["task"].policy
    assert (2, 5, False) == (policy.attempts, policy.attempt_timeout.total_seconds(), policy.idempotent)  # type: ignore[union-attr]


def test_a_collection_takes_the_defaults_of_the_app():
    """Tasks and crons without a policy get that of their queue or app when they are included."""
    tasks = Tasks()
    tasks.task(name="plain")(lambda: None)
    tasks.task(name="own", retry="4 1s")(lambda: None)
    tasks.cron("* * * * *", name="tick", queue="ticks")(lambda: None)
    app = App("memory://", retry="1 1s")
    app.queue("ticks", retry="2 1s")
    app.include(tasks)

    assert {"plain": 2, "own": 5, "tick": 3} == {name: attempts(app, name) for name in app.tasks}
    assert 3 == app.schedules.declared["tick"].definition.job.policy.policy.attempts  # type: ignore[union-attr]


def test_a_default_catch_task_does_not_catch_itself():
    """All tasks of the app are caught by the task of the default policy, except that task."""
    app = App("memory://", retry="0 catch recover", clock=VirtualClock())
    caught: list[str] = []

    @app.task
    def recover(request: CatchRequest) -> None:  # type: ignore[type-arg]
        caught.append(request.task)

    @app.task
    def fail(number: int) -> None:
        raise OSError("down")

    fail.enqueue(1)
    drain(app)

    assert (["fail"], None) == (caught, app.tasks["recover"].policy.catch)
    app.close()


def test_a_default_policy_that_cannot_be_read_names_its_place():
    """The message begins with the argument that has the policy."""
    with pytest.raises(PolicyError, match=r"App\(retry=...\): "):
        App("memory://", retry="often")
    with pytest.raises(PolicyError, match=r"app.queue\('mail', retry=...\): "):
        App("memory://").queue("mail", retry="often")
    with pytest.raises(TaskDefinitionError, match=r"App\(retry=...\) takes a directive such as '5 1s'.*got 5"):
        App("memory://", retry=5)  # type: ignore[arg-type]


def test_a_queue_is_declared_above_its_tasks():
    """Policies of queues that come too late, or twice, are refused: some tasks would not have it."""
    app = App("memory://")
    app.task(name="early", queue="mail")(lambda: None)
    app.queue("sms", retry="1 1s")

    with pytest.raises(TaskDefinitionError, match="is declared below its task 'early'; move it above its tasks"):
        app.queue("mail", retry="1 1s")
    with pytest.raises(TaskDefinitionError, match="is declared twice"):
        app.queue("sms", retry="2 1s")
