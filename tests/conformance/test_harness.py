"""The harness itself: how cases are read and placed, the form of a marker, and a run of another folder."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from redrive.errors import ScheduleError
from redrive.schedule import Strategy
from tests.conformance.adapters.vocabulary import Mismatch, UnknownWord, read, word
from tests.conformance.deviations import MISSING, Deviation, Deviations, load_deviations
from tests.conformance.groups import ListingError, Status, load_listing
from tests.conformance.loading import CaseFileError, fingerprint_of, load_folder
from tests.conformance.markers import scan_source

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path):
    """Writes case files into an empty folder and reads them."""

    def write(**files):
        for stem, content in files.items():
            (tmp_path / f"{stem}.json").write_text(json.dumps(content), encoding="utf-8")
        return load_folder(tmp_path)

    return write


@pytest.fixture
def listing(tmp_path):
    """Reads a listing from its text."""

    def write(text):
        (tmp_path / "groups.toml").write_text(text, encoding="utf-8")
        return load_listing(tmp_path / "groups.toml")

    return write


class TestLoading:
    """Six files in three forms become one list of cases."""

    def test_ids_are_keys(self, folder):
        """Cases with an id have it as their key."""
        cases = folder(durable={"cases": [{"id": "D99", "area": "retry"}], "invariants": ["I9 nothing is lost"]})
        assert [("durable.invariants", "I9"), ("durable.retry", "D99")] == [(c.group_name, c.key) for c in cases]

    def test_titles_are_keys_where_there_is_no_id(self, folder):
        """Cases without an id have their group and title as their key."""
        (case,) = folder(ftl={"_meta": {}, "leases": [{"case": "ttl 1s"}]})
        assert "ftl.leases: ttl 1s" == case.key

    def test_inputs_are_keys_of_last_resort(self, folder):
        """Cases without id and title have their group and first field as their key."""
        cases = folder(ftl={"duration_parse": [{"input": "1d"}, {"input": ""}]})
        assert ["ftl.duration_parse: 1d", 'ftl.duration_parse: ""'] == [case.key for case in cases]

    def test_equal_keys_get_fingerprints(self, folder):
        """Two cases that would share a key are distinguished by their contents."""
        cases = folder(ftl={"cron_next": [{"pattern": "* *", "next": 1}, {"pattern": "* *", "next": 2}]})
        assert [f"ftl.cron_next: * * [{case.fingerprint}]" for case in cases] == [case.key for case in cases]

    def test_repeated_cases_get_numbers(self, folder):
        """Cases that stand in a file twice are two cases."""
        cases = folder(ftl={"cron_next": [{"pattern": "* *"}] * 2})
        assert ["#1", "#2"] == [case.key[-2:] for case in cases]

    def test_a_group_that_is_one_object_is_one_case(self, folder):
        """Groups without a list are one case with the group's name."""
        (case,) = folder(ftl={"catch_request": {"fields": {}}})
        assert "ftl.catch_request" == case.key

    def test_the_shared_fields_of_a_group_are_kept_apart(self, folder):
        """Beside ``cases``, a group's fields are shared by them."""
        (case,) = folder(ftl={"backoff_schedules": {"no_jitter": True, "cases": [{"directive": "1s"}]}})
        assert ({"no_jitter": True}, {"directive": "1s"}) == (case.shared, case.data)

    def test_fingerprints_ignore_the_order_of_keys(self):
        """Equal content has the same fingerprint, in any order; other content has another."""
        first, second = fingerprint_of("g", {"a": 1, "b": 2}), fingerprint_of("g", {"b": 2, "a": 1})
        assert (first == second, first != fingerprint_of("h", {"a": 1, "b": 2})) == (True, True)

    def test_unknown_files_are_read_by_their_form(self, folder):
        """Case files of another name have one of the three forms too."""
        flat = {"cases": [{"id": "W1", "area": "steps"}, {"id": "W2"}]}
        listed = {"groups": [{"id": "a", "cases": [{"id": "A1"}]}]}
        cases = folder(banana=flat, cherry=listed, date={"about": "x", "b": [{"id": "B1"}]})
        expected = ["banana.steps", "banana.no group", "cherry.a", "date.b"]
        assert expected == [case.group_name for case in cases]

    def test_cases_that_are_no_objects_are_cases(self, folder):
        """Cases without fields are kept, for the adapter to refuse, and do not stop the run."""
        cases = folder(ftl={"duration_parse": ["1d", {}], "note": 7})
        expected = ["ftl.duration_parse: 1d", "ftl.duration_parse: null", "ftl.note"]
        assert expected == [case.key for case in cases]

    def test_an_empty_folder_is_refused(self, folder):
        """Folders without any case file are an error, not an empty run."""
        with pytest.raises(CaseFileError, match="no case file"):
            folder()

    @pytest.mark.parametrize("content", [[], {}, {"groups": []}, {"groups": [{}]}, "text"])
    def test_files_without_cases_are_refused(self, folder, content):
        """Files that are no object, or have no case, are an error that names them."""
        with pytest.raises(CaseFileError, match=r"pgqrs\.json"):
            folder(pgqrs=content)


class TestListings:
    """groups.toml and deviations.toml."""

    MIXED = """
        [durable.retry]
        hand_written = ["D01"]
        not_yet = [{ part = 3, reason = "breaker", cases = ["D12"] }]
        table = "a.b"
    """

    def test_a_group_may_be_mixed(self, listing, folder):
        """Named cases have hand-written tests or wait; the adapter takes every other case, also new ones."""
        cases = folder(durable={"cases": [{"id": key, "area": "retry"} for key in ("D01", "D12", "D99")]})
        read = listing(self.MIXED)
        assert [Status.HAND_WRITTEN, Status.NOT_YET, Status.TABLE] == [read.status_of(case) for case in cases]

    def test_cases_may_wait_for_a_field_value(self, listing, folder):
        """Cases that contain a word, anywhere, wait for it; a word that no case contains is a problem."""
        entries = [{"id": "D1", "policy": [{"jitter": "polly"}]}, {"id": "D2", "law": "a & a = a"}, {"id": "D3"}]
        cases = folder(durable={"cases": [{"area": "retry"} | case for case in entries]})
        words = '{ part = 2, reason = "x", words = ["polly", "law", "gone"] }'
        read = listing(f'[durable.retry]\ntable = "a.b"\nnot_yet = [{words}]')
        assert [Status.NOT_YET, Status.NOT_YET, Status.TABLE] == [read.status_of(case) for case in cases]
        assert ["durable.retry waits for 'gone', which no case says"] == read.problems(cases)

    def test_unknown_groups_and_cases_are_problems(self, listing, folder):
        """Listed groups or cases that no file has are a problem, and so is a group that is not listed."""
        cases = folder(durable={"cases": [{"id": "D01", "area": "retry"}, {"id": "D02", "area": "claim"}]})
        problems = listing(self.MIXED + "[durable.catch]\nhand_written = []").problems(cases)
        expected = [
            "no group durable.claim in the listing",
            "durable.retry lists 'D12', which does not exist",
            "durable.retry names every case and yet says what becomes of the rest",
            "durable.catch is listed, but no file has this group",
        ]
        assert expected == problems

    def test_a_case_without_a_place_is_a_problem(self, listing, folder):
        """Cases that the listing does not place, or places twice, are a problem."""
        cases = folder(durable={"cases": [{"id": "D01", "area": "retry"}, {"id": "D02", "area": "retry"}]})
        problems = listing('[durable.retry]\nhand_written = ["D01", "D01"]').problems(cases)
        assert ["durable.retry lists 'D01' twice", "durable.retry does not say what becomes of 'D02'"] == problems

    @pytest.mark.parametrize(
        "text",
        [
            'tabel = "a.b"',
            'not_yet = [{ part = 6, reason = "x" }]',
            "not_yet = [{ part = 2 }]",
            'not_yet = [{ part = 2, reason = "x", case = [] }]',
            'table = "a.b"\nnot_yet = [{ part = 2, reason = "x" }]',
        ],
    )
    def test_invalid_settings_are_refused(self, listing, text):
        """Misspelt keys, unknown parts, missing reasons and two takers of the rest are errors."""
        with pytest.raises(ListingError, match=r"durable\.retry"):
            listing(f"[durable.retry]\n{text}")

    def test_deviations_go_by_key_or_fingerprint(self, folder):
        """Deviations find their case by key and by fingerprint."""
        first, second, third = folder(ftl={"duration_parse": [{"input": "1"}, {"input": "2"}, {"input": "3"}]})
        why, why_not = Deviation("why", 1), Deviation("why not", 2)
        deviations = Deviations({first.key: why, second.fingerprint: why_not})
        assert [why, why_not, None] == [deviations.of(case) for case in (first, second, third)]

    def test_deviations_without_a_case_are_a_problem(self, folder):
        """Deviations without an existing case are a problem."""
        cases = folder(ftl={"duration_parse": [{"input": "1"}]})
        assert ["deviations.toml names 'D00', which does not exist"] == Deviations({"D00": Deviation("x")}).problems(
            cases
        )

    @pytest.mark.parametrize(
        "text", ['case = "D01"', 'case = "D01"\nreason = ""', 'case = "D"\nreason = "r"\nid = "D"']
    )
    def test_deviations_have_a_case_and_a_reason(self, tmp_path, text):
        """Entries without a reason, or with an unknown key, are an error."""
        (tmp_path / "deviations.toml").write_text(f"[[deviation]]\n{text}", encoding="utf-8")
        with pytest.raises(ListingError, match="a case, a reason and"):
            load_deviations(tmp_path / "deviations.toml")


class TestDeviations:
    """A deviation accepts the answer that it names and no other."""

    @staticmethod
    def raising(error):
        """Return an adapter that raises this."""

        def run():
            raise error

        return run

    @pytest.mark.parametrize(
        ("answer", "error", "right"),
        [
            (7, AssertionError(), 7),
            ("null", AssertionError(), None),
            ([1.5, "ALIGN"], AssertionError(), (timedelta(seconds=1.5), Strategy.ALIGN)),
            ("2025-01-01T00:00:00", AssertionError(), datetime(2025, 1, 1)),  # noqa: DTZ001 - as written
            (0.3, AssertionError(), 0.1 + 0.2),
            ({"a": "retry"}, Mismatch(1, {"a": "retry"}), MISSING),
            ("ScheduleError: it is empty", ScheduleError("it is empty"), MISSING),
        ],
    )
    def test_the_answer_that_it_names_passes(self, answer, error, right):
        """Right sides of comparisons, the value of a Mismatch, and the text of an error are answers."""
        Deviation("why", answer).verify(self.raising(error), lambda: right)

    @pytest.mark.parametrize("right", [8, "7", 7.5, True, None, [7]])
    def test_any_other_answer_fails(self, right):
        """Another answer than the one that is named fails, and the message has both."""
        with pytest.raises(AssertionError, match=r"expects the answer 7, but it is"):
            Deviation("why", 7).verify(self.raising(AssertionError()), lambda: right)

    def test_another_refusal_fails(self):
        """Errors with another text are another answer."""
        with pytest.raises(AssertionError, match="but it is 'ScheduleError: other'"):
            Deviation("why", "ScheduleError: one").verify(self.raising(ScheduleError("other")), lambda: MISSING)

    def test_a_case_that_passes_fails(self):
        """Cases that redrive answers like the file are no deviation."""
        with pytest.raises(AssertionError, match="the case passes: remove it"):
            Deviation("why", 7).verify(lambda: None, lambda: MISSING)

    def test_an_adapter_that_cannot_read_the_case_fails(self):
        """Neither an unknown word nor an assertion without an answer is covered by a deviation."""
        for error in (UnknownWord("x"), AssertionError("x"), KeyError("x")):
            with pytest.raises(type(error), match="x"):
                Deviation("why", 7).verify(self.raising(error), lambda: MISSING)

    def test_comparisons_are_kept(self, compared):
        """In a comparison that fails, the right side is the answer."""
        with pytest.raises(AssertionError):
            assert 1 == compared.__class__.__name__.count("n") + 100
        assert compared.__class__.__name__.count("n") + 100 == compared()
        with pytest.raises(AssertionError):
            assert 1 > compared.__class__.__name__.count("n") + 100
        assert MISSING is compared()


class TestMarkers:
    """Which markers count as a hand-written test of a case."""

    def scan(self, source, **options):
        """Scan one source as a collected file."""
        return scan_source(source, **{"place": "tests/test_x.py", "is_collected": True} | options)

    def test_markers_on_tests_and_classes_count(self):
        """Markers on a test function, an async one, or a class count, with one id or several."""
        source = """
@pytest.mark.case("D01", "D02")
async def test_a(): ...
@pytest.mark.case("D03")
class TestB: ...
"""
        expected = {"D01": ("tests/test_x.py:2",), "D02": ("tests/test_x.py:2",), "D03": ("tests/test_x.py:4",)}
        assert expected == self.scan(source).places

    @pytest.mark.parametrize(
        ("source", "options", "problem"),
        [
            ('@pytest.mark.case("D01")\ndef helper(): ...', {}, "not on a test"),
            ('pytestmark = pytest.mark.case("D01")', {}, "not on a test"),
            ("@pytest.mark.case(ID)\ndef test_a(): ...", {}, "written out"),
            ("@pytest.mark.case()\ndef test_a(): ...", {}, "written out"),
            ('@pytest.mark.case("D01")\n@pytest.mark.skip\ndef test_a(): ...', {}, "marked skip"),
            ('@pytest.mark.xfail(strict=True)\n@pytest.mark.case("D01")\ndef test_a(): ...', {}, "marked xfail"),
            ('@pytest.mark.case("D01")\ndef test_a(): ...', {"is_collected": False}, "does not collect"),
        ],
    )
    def test_ineffective_markers_are_problems(self, source, options, problem):
        """Markers that lead to no running test are a problem and do not count."""
        marked = self.scan(source, **options)
        assert ({}, 1, True) == (marked.places, len(marked.problems), problem in marked.problems[0])


class TestVocabulary:
    """Adapters read a case completely."""

    def test_unknown_fields_are_refused(self):
        """Fields that are unknown to the adapter are an error; notes for human readers are not."""
        assert {"input": 1, "note": "n"} == read({"input": 1, "note": "n"}, "input")
        with pytest.raises(UnknownWord, match="floor"):
            read({"input": 1, "floor": 2}, "input")

    def test_unknown_values_are_refused(self):
        """Words that are unknown to the adapter are an error that lists the known ones."""
        assert 7 == word("fixed", {"fixed": 7})
        with pytest.raises(UnknownWord, match=r"'fibonacci' \(known: fixed\)"):
            word("fibonacci", {"fixed": 7})


@pytest.fixture(scope="module")
def other_run(tmp_path_factory):
    """Return the output of a quiet run of another folder of cases, in a process of its own, blanks folded."""
    folder = tmp_path_factory.mktemp("other")
    ftl = {
        "duration_parse": [
            {"input": "3m7s", "seconds": 187},
            {"input": "3m8s", "seconds": 187},
            {"input": "18446744075s", "seconds": 18446744075},
        ],
        "fortune_telling": [{"case": "tomorrow"}],
        "catch_request": {"fields": {}},
        "async_call_lifecycle": [{"case": "a scenario without a test"}],
    }
    (folder / "ftl.json").write_text(json.dumps(ftl), encoding="utf-8")
    (folder / "flows.json").write_text('{"cases": [{"id": "W1", "area": "steps"}]}', encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/conformance", "--cases", folder]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert pytest.ExitCode.TESTS_FAILED == run.returncode
    return " ".join(run.stdout.split())


@pytest.mark.slow
class TestAnotherFolder:
    """``pytest tests/conformance --cases DIR``."""

    def test_unseen_cases_run_through_the_adapters(self, other_run):
        """New cases pass or fail on their merits, and the run reports that group by group."""
        assert "ftl.duration_parse 1 passed, 0 deviating, 2 failed" in other_run

    def test_unknown_groups_and_files_are_not_yet(self, other_run):
        """Groups or files that are not in the listing are counted as not yet, and fail nothing."""
        for name in ("ftl.fortune_telling", "flows.steps"):
            assert f"{name} 0 passed, 0 deviating, 0 failed, 1 not yet (not in groups.toml)" in other_run

    def test_groups_with_hand_written_tests_are_left_out(self, other_run):
        """Cases of another folder in groups with hand-written tests are no failure: there is nothing to run."""
        assert "ftl.catch_request 0 passed, 0 deviating, 0 failed, 1 hand-written, not in this run" in other_run
        assert "ftl.async_call_lifecycle 0 passed, 0 deviating, 0 failed, 1 hand-written, not in this run" in other_run

    def test_only_tables_run(self, other_run):
        """In a run of another folder only the table cases run."""
        assert "2 failed, 1 passed" in other_run

    def test_an_obsolete_deviation_fails(self, other_run):
        """Cases that are listed as deviating and pass fail the run."""
        assert "the case passes: remove it from deviations.toml (FTL overflows" in other_run
