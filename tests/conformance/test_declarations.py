"""Cases tested by hand that need no store and no worker: the rules of declarations."""

from __future__ import annotations

import pytest

from redrive.app.app import App
from redrive.errors import TaskDefinitionError


@pytest.mark.case("ftl.retry_placement_validation: two retry directives on one verb")
@pytest.mark.case("ftl.retry_placement_validation: two retry comment directives on one Go function")
def test_a_task_has_one_retry_directive():
    """Functions cannot be declared a task twice, so no second directive can contradict the first."""
    app = App("memory://")
    with pytest.raises(TaskDefinitionError, match="charge"):

        @app.task(retry="2s")
        @app.task(retry="1s")
        def charge() -> None: ...

    assert [1.0] == app.tasks["charge"].policy.delays(1)
