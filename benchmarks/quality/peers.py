"""Asks the installed libraries whether the formulas that stand for them in the simulation are right."""

from __future__ import annotations

import importlib.util
import random
from importlib.metadata import version
from unittest.mock import patch

from redrive.simulate.contender import DEFAULTS, stamina_wait

__all__ = ["checked"]


def checked() -> list[str]:
    """Yield one line for each library: its formula holds, or it is not installed.

    Raises:
        AssertionError: the defaults of a library differ from those of the simulation.
    """
    said = []
    for name, check in (("tenacity", _tenacity), ("stamina", _stamina)):
        if importlib.util.find_spec(name) is None:
            said.append(f"{name} is not installed: its published formula is taken")
            continue
        check()
        said.append(f"{name} {version(name)} waits as its formula says")
    return said


def _tenacity() -> None:
    import tenacity

    retrying = tenacity.Retrying()
    assert retrying.stop is tenacity.stop_never
    assert type(retrying.wait) is tenacity.wait_none
    found = next(each for each in DEFAULTS if each.name == "tenacity")
    assert (found.wait, found.attempts, found.timeout) == (None, None, None)


def _stamina() -> None:
    import inspect

    import stamina
    from stamina import _core

    usual = {name: each.default for name, each in inspect.signature(stamina.retry).parameters.items()}
    found = next(each for each in DEFAULTS if each.name == "stamina")
    assert (found.attempts, found.timeout) == (usual["attempts"], usual["timeout"])
    for number in range(1, 12):
        for sample in (0.0, 0.25, 0.999):
            with patch.object(random, "uniform", lambda low, high, at=sample: low + at * (high - low)):
                asked = _core._compute_backoff(  # noqa: SLF001 - the library has no public name for it
                    number, usual["wait_max"], usual["wait_initial"], usual["wait_exp_base"], usual["wait_jitter"]
                )
            assert abs(asked - stamina_wait(number, sample)) < 1e-9
