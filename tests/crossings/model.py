"""What must be true at the end of a scenario, from its row alone. Pure: it imports no store and no runtime.

The states of a run follow from what happens to it, in order. Where two orders of the same instant are both right, such
as a cancellation that arrives during the last step, the forecast has both states, and the laws of each state hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LIVE = frozenset({"live"})
"""The states of a run that has not ended."""

ENDS: Mapping[str, frozenset[str]] = {
    "returns": frozenset({"succeeded"}),
    "gives_up": frozenset({"dead"}),
    "raises": frozenset({"dead"}),
    "too_large": frozenset({"dead"}),
    "wrong_type": frozenset({"dead"}),
    "unawaited": frozenset({"dead"}),
    "pass_timeout": frozenset({"dead"}),
    "deadline": frozenset({"dead"}),
    "poison": frozenset({"dead"}),
    # A body that raises `Cancel` fails like one that raises another error.
    "cancels": frozenset({"dead", "cancelled"}),
}
"""The states after each ending of a body that nothing disturbs."""

UNFINISHED = ("queued", "working", "recording", "parking", "waiting", "waking")
"""The moments before the last step of a run."""

CANCELS = ("cancel", "cancel_twice", "cancel_job", "cancel_bulk")

AGAIN = ("retry", "redrive", "supply")


@dataclass
class RunForecast:
    """The states that a run may have at the end.

    Attributes:
        states: of the run.
        forks: the possible states of each fork, and whether it has copied steps.
        gone: True if it was deleted.
        again: True if it was retried after its end.
    """

    ending: str
    states: frozenset[str] = LIVE
    forks: list[tuple[frozenset[str], bool]] = field(default_factory=list)
    gone: bool = False
    again: bool = False

    def happens(self, event: str, moment: str) -> None:
        """Apply an event that happens before the end, at a moment."""
        end = ENDS[self.ending]
        if event == "fork" and not self.gone:
            # A fork that is late comes to its last step when the cause of the failure is gone.
            self.forks.append((end | {"succeeded"}, False))
        elif self.states != LIVE:
            # The worker that wakes a cancelled run takes its steps back, so that it cannot be deleted yet.
            if event in {"delete", "archive"} and moment != "waking":
                self.gone = True
            if event in AGAIN and event != "supply" and not self.gone:
                # A cancelled run continues, and may end by the cancellation that its steps have recorded.
                self.states = end | self.states
        elif event in CANCELS and moment in UNFINISHED and moment != "waking":
            self.states = frozenset({"cancelled"})
        elif event in CANCELS and moment in {"waking", "shipping"}:
            # The last step runs: the body may end before it can receive the cancellation. The receipt of a signal may
            # be written with that step.
            self.states = end | {"cancelled"}
        elif event == "pause" and moment in {"waking", "shipping"}:
            # The run goes on when the cause of the failure is gone.
            self.states = end | {"succeeded"}
        elif event == "delete" and moment == "queued":
            self.gone = True
        elif event == "term" and moment == "shipping" and self.ending in {"pass_timeout", "poison"}:
            # The last step may be recorded before the worker could be killed in it.
            self.states = end | {"succeeded"}

    def ends(self) -> None:
        """Let the body come to its end."""
        if self.states == LIVE:
            self.states = ENDS[self.ending]

    def happens_after(self, event: str) -> None:
        """Apply an event that happens after the end, when the cause of the failure is gone."""
        if self.gone:
            return
        if event in AGAIN:
            self.states = frozenset().union(*(self._again(event, each) for each in self.states))
            self.again = event != "supply"
        elif event in CANCELS and self.again and self.ending == "deadline":
            # Its deadline ended the run before it had its last signal, for which it waits again.
            self.states |= {"cancelled"}
        elif event == "fork":
            self.forks.append((frozenset({"succeeded"}), True))
        elif event in {"delete", "archive"}:
            self.gone = True

    def _again(self, event: str, state: str) -> frozenset[str]:
        if state == "succeeded" or (event == "supply" and self.ending != "gives_up"):
            return frozenset({state})
        if state == "cancelled":
            # It continues, and may end by the cancellation that its steps have recorded.
            return frozenset({"succeeded", "cancelled", "dead"})
        # A retry forgives no deadline.
        return frozenset({"succeeded", "dead"}) if self.ending == "deadline" else frozenset({"succeeded"})


def forecast_run(row: Mapping[str, str]) -> RunForecast:
    """Return what becomes of the run of a row."""
    run = RunForecast(row["ending"])
    early = row["moment"] in UNFINISHED
    events = [(row["event"], row["moment"])] if row["moment"] != "ended" else []
    if early:
        events.append((row["second"], "waiting"))
    if row["moment"] == "waking":
        events.reverse()
    for event, moment in events:
        run.happens(event, moment)
    run.ends()
    if row["moment"] == "ended":
        run.happens_after(row["event"])
    if not early:
        before = run.states
        run.happens_after(row["second"])
        if (row["event"], row["feature"]) == ("pause", "undo") and row["moment"] != "ended":
            # An undo that is to be tried again rests with its paused run, so that a retry may come before the end.
            run.states |= before
    return run


def live_effects(states: list[tuple[str, bool]], origin_shared: bool) -> int:
    """Return how many effects of one name are left at the end.

    Args:
        states: of each run, and whether it has copied the steps of the first one.
        origin_shared: True if the steps that were copied are not undone.
    """
    return sum(state == "succeeded" and not (copied and origin_shared) for state, copied in states)


@dataclass
class JobForecast:
    """The states that a job may have at the end.

    Attributes:
        states: of the job.
        may_be_gone: True if it may have been deleted.
        most: how often its work may have been done.
    """

    states: frozenset[str]
    may_be_gone: bool
    most: int


def forecast_job(row: Mapping[str, str]) -> JobForecast:
    """Return what becomes of the job of a row."""
    end = "succeeded" if row["ending"] == "returns" else "dead"
    events = [(row["event"], row["moment"]), (row["second"], "queued" if row["moment"] == "queued" else "ended")]
    states, gone = {"live"}, False
    for event, moment in events:
        if moment == "ended" and states == {"live"}:
            states = {end}
        if event == "cancel" and moment == "queued":
            states = {"cancelled"} if states == {"live"} else states
        elif event == "cancel" and states == {"live"}:
            # The end of the attempt and the cancellation meet.
            states = {end, "cancelled"}
        elif event in {"retry", "redrive"} and moment == "ended":
            again = {"succeeded"} if states <= {"dead", "cancelled"} else {"succeeded", *states}
            # A job that was caught is done with.
            states = {"dead", *again} if row["feature"] == "catch" else again
        elif event in {"retry", "redrive"} and states == {"cancelled"}:
            states = {end, "cancelled"}
        elif event == "delete":
            gone = moment != "settling" or gone
    if "live" in states:
        states = {end}
    crashes = sum(row[each] in {"kill", "term", "cancel", "retry", "redrive", "lock"} for each in ("event", "second"))
    return JobForecast(frozenset(states), gone, 1 + crashes)


@dataclass(frozen=True)
class EventForecast:
    """What may become of the events of a subscription.

    Attributes:
        rounds: how often the position has passed each event: once, and once more after each move.
        again: the number of events that may be done more than once.
        may_miss: True if the failing event may never be done.
        is_moved: True if events are delivered out of order because of a move.
    """

    rounds: int
    again: int
    may_miss: bool
    is_moved: bool


MOST_AGAIN = 1000
"""Events that may come again after one crash, as the documentation promises."""


def deaths(row: Mapping[str, str]) -> int:
    """Return how often the worker ends while the slow event is delivered."""
    return 0 if row["again"] not in {"kill", "term"} else 1 if row["event"] == "crowd" else 2


def forecast_events(row: Mapping[str, str]) -> EventForecast:
    """Return what becomes of the events of a row."""
    moves = [row["event"], row["again"]].count("move")
    ends = (row["event"] in {"kill", "term", "deploy", "reshard"}) + deaths(row)
    loaded = row["event"] == "crowd"
    again = moves * 10_000 + (MOST_AGAIN * ends if loaded else (40 if row["event"] == "backlog" else 8) * ends)
    # What a handler does beside its transaction is done again when the lease or the commit is lost.
    again += 8 * (row["event"] in {"lock", "clock", "pause"})
    return EventForecast(1 + moves, again, row["fails"] == "for_good", moves > 0)


@dataclass(frozen=True)
class InstanceForecast:
    """The states and statuses that an instance may have at the end, and how often its transition may have run."""

    states: frozenset[str]
    most: int


def forecast_instance(row: Mapping[str, str]) -> InstanceForecast:
    """Return what becomes of the instance of a row."""
    moved = "closed completed" if row["feature"] in {"timeout", "waiting"} else "paid running"
    failed, free = "begun failed", "begun running"
    states = {moved if row["ending"] == "moves" else failed}
    if row["moment"] != "ended":
        early = {"cancel": failed, "skip": free, "reset": free, "delete": "gone"}
        if row["event"] in early:
            # A transition that runs is in the way of some of them.
            states = {early[row["event"]], *states}
    for event in [row["event"]] * (row["moment"] == "ended") + [row["second"]]:
        if event in {"retry", "redrive"}:
            # A transition that was caught is done with.
            kept = states if row["feature"] == "catch" else set()
            states = {moved if each == failed else each for each in states} | kept
        elif event == "skip":
            states = {free if each == failed else each for each in states}
        elif event == "reset":
            states = {each if each == "gone" else free for each in states}
        elif event == "delete":
            states = {"gone"}
    again = sum(row[each] in {"kill", "term", "lock", "retry", "redrive"} for each in ("event", "second"))
    return InstanceForecast(frozenset(states), 1 + again)


@dataclass(frozen=True)
class ItemForecast:
    """What may become of an item of a refresh.

    Attributes:
        gone: True if it is tracked no more.
        stands: True if it takes no further attempt: it is paused or disabled.
        may_stand: True if it may be so.
        fewest: how often it has been refreshed at least.
        most: how often at most.
    """

    gone: bool
    stands: bool
    may_stand: bool
    fewest: int
    most: int


PERIODS = 3
"""Planned refreshes of a scenario."""


def forecast_item(row: Mapping[str, str]) -> ItemForecast:
    """Return what becomes of the item of a row."""
    events = [row["event"], row["second"]]
    gone, paused = "untrack" in events, "pause" in events and "resume" not in events
    # A cancelled attempt has failed; a second failure is the last one.
    may_stand = paused or row["feature"] == "gives_up" or "cancel" in events
    # An operation at the end of an attempt may come before it or after it.
    stands = paused and row["moment"] != "settling" and events[-1] in {"pause", "none"}
    extra = sum(each in {"update", "trigger", "track", "kill", "term", "lock", "resume", "retry"} for each in events)
    hampered = gone or paused or row["feature"] == "gives_up" or bool({"pause", "cancel", "clock"} & set(events))
    return ItemForecast(gone, stands, may_stand, 0 if hampered else PERIODS, 2 + PERIODS + 2 * extra)
