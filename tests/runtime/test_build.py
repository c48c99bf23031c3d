"""The build of the code of a worker, and the lag of its event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive import App
from redrive.errors import ConfigurationError
from redrive.runtime.build import VARIABLE, build_of
from redrive.runtime.heartbeat import LoopLag
from redrive.runtime.worker import Worker
from redrive.stores.operations import workers


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., App]:
    """Return an app of a module that was imported from a folder."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(module: str = "acme_shop", *, distribution: str = "acme-shop", direct: str = "", top: str = "") -> App:
        """Install a distribution beside it, and return the app."""
        place = tmp_path / f"{distribution.replace('-', '_')}-1.4.2.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.4.2\n")
        if direct:
            (place / "direct_url.json").write_text(f'{{"url": "file://{direct}", "dir_info": {{"editable": true}}}}')
        if top:
            (place / "top_level.txt").write_text(f"{top}\n")
        made = types.ModuleType(module)
        made.__file__ = str((Path(direct) / "src" if direct else tmp_path) / f"{module}.py")
        monkeypatch.setitem(sys.modules, module, made)
        app = App("memory://")
        app.reference = f"{module}.jobs:app"
        return app

    return make


def test_a_build_is_given_or_named_by_the_environment(shop: Callable[..., App], monkeypatch: pytest.MonkeyPatch):
    """An argument replaces the variable, and that one the version of the distribution."""
    app = shop()
    before = build_of(app, None)
    monkeypatch.setenv(VARIABLE, " c02b17\n")

    assert ("1.4.2", "c02b17", "f3a91c") == (before, build_of(app, None), build_of(app, "f3a91c"))
    monkeypatch.setenv(VARIABLE, " ")
    assert "1.4.2" == build_of(app, None)


def test_the_distribution_may_have_another_name(shop: Callable[..., App]):
    """It is found by the list of its top-level modules."""
    assert "1.4.2" == build_of(shop(distribution="acme-suite", top="acme_shop"), None)


def test_an_editable_distribution_is_found_by_its_folder(shop: Callable[..., App], tmp_path: Path):
    """Its files are elsewhere, in the folder from which it was installed."""
    assert "1.4.2" == build_of(shop(direct=str(tmp_path / "checkout")), None)


@pytest.mark.parametrize("direct", ["", "/somewhere/else"])
def test_another_distribution_of_the_same_name_is_not_taken(
    shop: Callable[..., App], monkeypatch: pytest.MonkeyPatch, direct: str
):
    """A module of a checkout is not the installed one."""
    app = shop(direct=direct)
    monkeypatch.setattr(sys.modules["acme_shop"], "__file__", "/work/checkout/acme_shop.py")

    assert None is build_of(app, None)


def test_an_app_without_a_distribution_has_no_build(monkeypatch: pytest.MonkeyPatch):
    """Nor has one in a module that is not imported, or whose tasks are in the main program."""
    monkeypatch.delenv(VARIABLE, raising=False)
    app = App("memory://")
    main = lambda: None  # noqa: E731 - its module is replaced
    main.__module__ = "__main__"
    app.task(name="work")(main)

    assert None is build_of(app, None)


def test_the_tasks_name_the_module_of_an_app_without_a_reference(shop: Callable[..., App]):
    """A program that runs a worker by itself has no reference."""
    app = shop()
    app.reference = "APP"
    work = lambda: None  # noqa: E731 - its module is replaced
    work.__module__ = "acme_shop.tasks"
    app.task(name="work")(work)

    assert "1.4.2" == build_of(app, None)


@pytest.mark.parametrize("build", ["", "a\nb", "x" * 300])
def test_a_strange_build_is_refused(build: str):
    """As the name of a worker is."""
    with pytest.raises(ConfigurationError, match="the build of a worker is a text of 1 to 200"):
        Worker(App("memory://"), build=build)


def test_a_worker_registers_its_build(tmp_path: Path):
    """The row of the worker has it."""
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    seen: list[str | None] = []

    @app.task
    async def look() -> None:
        """Read the workers."""
        seen.extend(each.build for each in await app.store.arun(workers.workers()))

    app.open()
    look.enqueue()
    asyncio.run(Worker(app, until_empty=True, build="f3a91c").run())

    assert ["f3a91c"] == seen


def _measured(lag: LoopLag) -> float | None:
    found = lag.measured()
    return None if found is None else found.total_seconds()


def test_the_lag_of_a_loop_is_measured():
    """A loop that runs answers at once, and one that is blocked has not answered since the call."""

    async def measure() -> tuple[list[float | None], list[float | None]]:
        """Measure twice while the loop runs, and twice while it is blocked."""
        lag, answers, blocked = LoopLag(), list[float | None](), list[float | None]()
        for _ in range(2):
            answers.append(await asyncio.to_thread(_measured, lag))
        lag.measured()
        thread = threading.Thread(target=lambda: blocked.extend(_measured(lag) for _ in range(2)))
        thread.start()
        thread.join()
        return answers, blocked

    (first, second), (third, fourth) = asyncio.run(measure())

    assert None is first
    assert second is not None
    assert third is not None
    assert fourth is not None
    assert 0 <= second < 60
    assert 0 < third < fourth


def test_without_a_loop_there_is_no_lag():
    """A heartbeat of a test has none, and a loop that is closed does not answer any more."""
    closed = asyncio.run(_made())

    assert [None, None] == [LoopLag().measured(), closed.measured()]
    assert closed.measured() is not None


async def _made() -> LoopLag:
    return LoopLag()
