"""The kinds of failures that a policy treats differently, each with one failure that represents it. PURE.

A policy treats failures by their *names*, so a failure with the right names shows what happens to all of its kind. The
ancestors of Python's own classes are known: a rule for ``OSError`` matches a ``TimeoutError`` too. The ancestors of a
user's class are unknown here, since no user code is imported.

A combination (``a & b``) has no rules of its own: each part may treat a failure differently. So every name in any part
is a kind; `redrive.plan.rows` merges those with the same result.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from redrive.policy import Failure, Policy
from redrive.policy.algebra import Combined
from redrive.policy.failure import names_of_class
from redrive.policy.policy import only_limits
from redrive.visible import visible

_ANY = Failure(("builtins.Exception",))


@dataclass(frozen=True, slots=True)
class FailureKind:
    """One kind of failure.

    Attributes:
        name: its name.
        detail: how its attempts are counted, or why it never matches; may be empty.
        failure: a failure that represents it; None if it never matches.
    """

    name: str
    detail: str
    failure: Failure | None


def kinds(policy: Policy) -> list[FailureKind]:
    """Return the kinds of failures that a policy treats differently: ordinary ones, then those of its rules."""
    if isinstance(policy, Combined):
        return _of_combination(policy)
    return [_ordinary(policy), *_of_rules(policy)]


def _ordinary(policy: Policy) -> FailureKind:
    named = policy.on if isinstance(policy.on, tuple) else ()
    free = [name for name in named if policy.rule_for(_failure(name)) is None]
    if free:
        return FailureKind(_spoken(*free), "", _failure(free[0])._replace(candidate=True))
    label = "any other failure" if policy.rules else "any failure"
    if named or policy.rule_for(_ANY) is not None:
        return FailureKind(label, "never met: the rules take all failures that this policy retries", None)
    return FailureKind(label, "", _ANY._replace(candidate=True))


def _of_rules(policy: Policy) -> Iterator[FailureKind]:
    for index, rule in enumerate(policy.rules):
        name = visible(rule.name(index + 1))
        failures = [_failure(each) for each in rule.on]
        own = [failure for failure in failures if policy.rule_for(failure) == index]
        if not own:
            yield FailureKind(name, "never met: an earlier rule takes these failures", None)
        elif rule.attempts is None:
            yield FailureKind(name, "counted together with the others", own[0]._replace(candidate=True))
        else:
            yield FailureKind(name, "counted apart", own[0]._replace(candidate=True))


def _of_combination(policy: Combined) -> list[FailureKind]:
    each = list(parts(policy))
    names = {name for part in each for rule in part.rules for name in rule.on}
    names |= {name for part in each if isinstance(part.on, tuple) and not only_limits(part) for name in part.on}
    found = [FailureKind(_spoken(name), "", _failure(name)) for name in sorted(names)]
    if found and all(isinstance(part.on, tuple) for part in each):
        return found
    return [FailureKind("any other failure" if names else "any failure", "", _ANY), *found]


def parts(policy: Policy) -> Iterator[Policy]:
    """Yield the policies of a combination, left to right; for any other policy, itself."""
    if isinstance(policy, Combined):
        yield from parts(policy.left)
        yield from parts(policy.right)
    else:
        yield policy


def _failure(name: str) -> Failure:
    if "." not in name:
        return Failure(_ANY.types, reason=name)
    module, _, rest = name.partition(".")
    found = getattr(builtins, rest, None) if module == "builtins" else None
    if isinstance(found, type) and issubclass(found, BaseException):
        return Failure(names_of_class(found)[0])
    return Failure((name, *_ANY.types))


def _spoken(*names: str) -> str:
    return visible(", ".join(name.removeprefix("builtins.") for name in names))
