"""The ten troubles: one module for those that share a target. PURE."""

from redrive.simulate.scenarios.contention import CONTENTION
from redrive.simulate.scenarios.deadline import DEADLINE, ISOLATION, TAIL
from redrive.simulate.scenarios.herd import HERD, PUSHBACK
from redrive.simulate.scenarios.outage import FLAKY, METASTABLE, OUTAGE, STACK

SCENARIOS = (CONTENTION, OUTAGE, FLAKY, STACK, HERD, PUSHBACK, DEADLINE, METASTABLE, TAIL, ISOLATION)
