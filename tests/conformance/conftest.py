"""The conformance plugin: runs the tables of a folder of case files and counts the outcomes, group by group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.deviations import MISSING
from tests.conformance.groups import ListingError
from tests.conformance.loading import CaseFileError
from tests.conformance.plan import OWN_CASES, CasePlan, load_plan
from tests.conformance.report import CASE, CaseOutcomes, summary_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PLAN = pytest.StashKey[CasePlan]()
_COMPARED = pytest.StashKey[object]()
_TABLES = "tests/conformance/test_tables.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer ``--cases DIR``."""
    parser.getgroup("conformance").addoption(
        "--cases", type=Path, metavar="DIR", help="run only the tables of the case files in DIR"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the plan and start counting, for tests of the whole run: other folders test cases by hand too."""
    pytest.register_assert_rewrite("tests.conformance.adapters")
    try:
        config.stash[_PLAN] = load_plan(_other_folder(config) or OWN_CASES)
    except (CaseFileError, ListingError) as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(_Counting(config.stash[_PLAN]), "redrive-conformance-counting")


def _other_folder(config: pytest.Config) -> Path | None:
    # This file may be loaded after the command line was read (`pytest tests`); then there is no such option.
    folder: Path | None = config.getoption("--cases", default=None)
    return folder


@pytest.fixture(scope="session")
def plan(pytestconfig: pytest.Config) -> CasePlan:
    """Return the plan of this run."""
    return pytestconfig.stash[_PLAN]


@pytest.fixture(scope="session")
def own_plan() -> CasePlan:
    """Return the plan of the project's own case files."""
    return load_plan()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each table case to the test that asks for one."""
    if "table_case" in metafunc.fixturenames:
        parameters = [
            pytest.param(case, id=f"{case.group_name}: {case.key.removeprefix(f'{case.group_name}: ')}")
            for case in metafunc.config.stash[_PLAN].tables()
        ]
        metafunc.parametrize("table_case", parameters)


def pytest_assertrepr_compare(config: pytest.Config, op: str, right: object) -> None:
    """Keep the right side of a comparison that fails: ``assert expected == given``."""
    config.stash[_COMPARED] = right if op in {"==", "is"} else MISSING


@pytest.fixture
def compared(pytestconfig: pytest.Config) -> Callable[[], object]:
    """Return the right side of the comparison that failed last in this test."""
    pytestconfig.stash[_COMPARED] = MISSING
    return lambda: pytestconfig.stash[_COMPARED]


class _Counting:
    """A plugin that watches every test of the run, in all folders."""

    def __init__(self, plan: CasePlan) -> None:
        self.plan = plan
        self.tally = CaseOutcomes()
        self.is_asked = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Record which case each test stands for; with another folder of cases, keep the tables only."""
        if _other_folder(config):
            others = [item for item in items if not _table_keys(item)]
            items[:] = [item for item in items if _table_keys(item)]
            config.hook.pytest_deselected(items=others)
        for item in items:
            keys = [*_table_keys(item), *_marked_keys(item)]
            item.user_properties.extend((CASE, key) for key in keys)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one outcome."""
        self.tally.add(report)
        self.is_asked = self.is_asked or report.nodeid.startswith(_TABLES)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Write the lines, if the run had tables and ran them."""
        if self.is_asked and not config.option.collectonly:
            terminalreporter.section("conformance", sep="-")
            for line in summary_lines(self.plan, self.tally):
                terminalreporter.write_line(line)


def _table_keys(item: pytest.Item) -> list[str]:
    callspec = getattr(item, "callspec", None)
    return [callspec.params["table_case"].key] if callspec and "table_case" in callspec.params else []


def _marked_keys(item: pytest.Item) -> Iterable[str]:
    return (key for marker in item.iter_markers("case") for key in marker.args)
