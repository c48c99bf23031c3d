"""The words in which a refresh policy is said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from redrive.errors import ScheduleError

__all__ = ["Action", "Exhausted", "Strategy"]


class Strategy(StrEnum):
    """What becomes of a retry that does not fit before the next planned refresh."""

    ALIGN = "retry_align_planned"
    """The planned refresh is the retry: the schedule is kept, and attempts are counted on."""

    UNTIL_SUCCESS = "retry_until_success"
    """It is made when it is due; planned refreshes that it passes are left out."""

    UNTIL_PLANNED = "retry_until_planned"
    """It is left out: the planned refresh counts its attempts from the first."""

    WHICHEVER_FIRST = "whichever_first"
    """The earlier of both, whether it fits or not."""

    PLANNED_ONLY = "planned_only"
    """There are no retries between planned refreshes; these are the retries, also if one would fit."""


class Exhausted(StrEnum):
    """What becomes of a refresh whose retries are all used up."""

    GIVE_UP = "give_up"
    WAIT_NEXT = "wait_next"
    """It waits for the next planned refresh, which counts its attempts from the first."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a policy wants done when it gives up. redrive hands it on; what it means is the user's affair.

    Attributes:
        name: ``disable``, ``email``, ``mark``, ``panic``.
        to: whom to write to, or what to mark.
        text: what to say.

    Raises:
        ScheduleError: of this name there is no action, or something is missing.
    """

    name: str
    to: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if self.name not in {"disable", "email", "mark", "notify", "panic"}:
            raise ScheduleError(f"there is no action {self.name!r}; actions: disable, email, mark, notify, panic")
        if self.name in {"email", "notify", "mark"} and not self.to:
            raise ScheduleError(f"{self.name} whom? Say to=")
        if self.name == "mark" and not self.text:
            raise ScheduleError(f"mark {self.to} with what? Say text=")
