"""Starting runs, step by step: what another transaction did in between."""

from __future__ import annotations

import pytest

from redrive.engine.steps import StepBatch, StepsAnswer
from redrive.errors import RunNotFound
from redrive.stores.operations.jobs import NumberBlock
from redrive.stores.operations.runs import start
from redrive.stores.operations.runs.steps import _Asked, record
from tests.stores.helpers import T0
from tests.stores.operations.conversing import converse, names
from tests.stores.runs import run, step


def test_a_run_that_is_deleted_while_its_id_is_taken_is_an_error():
    """Starts with the id of a run that is gone at the next statement raise an error that advises to repeat."""
    gate = [NumberBlock(T0, 7, 7)]

    with pytest.raises(RunNotFound, match="run 'order-42' of checkout has been deleted at this moment: try again"):
        converse(start.start([run()], now=T0), gate, [], [])


def test_rows_of_a_locked_run_are_to_be_written_later():
    """Rows that were not written under a current lease belong to a run that another transaction has locked."""
    batch = StepBatch(7, 41, (step(),))

    asked = _Asked(7, "1", 41, True, None, None, None, None)
    written, ran = converse(record([batch], now=T0), [], [asked])

    assert [StepsAnswer.LATER] == [each.answer for each in written]
    assert ["steps_put", "steps_asked"] == names(ran)
