"""Laws of ``inprocess.json``: sentences about the operators on policies, held against a pool of policies.

A sentence is a list of statements, separated by ``;`` or ``,``; a remark in brackets at its end is left out, and a
statement without an operator is about the one before. The adapter understands:

* ``join associative``, ``commutative``, ``idempotent``; ``identity = GiveUp``, also ``left identity``, ``right zero``;
* ``join distributes over meet``; ``join absorbs meet``, ``absorption``;
* ``map_delay(min cap) preserves GiveUp``, ``map_delay(id) = id``;
* equations of the variables a to c and p to r: ``a join (a meet b) = a``, ``join(GiveUp, p) = GiveUp``.

Policies are equal if they decide the same about streams of failures.
"""

from __future__ import annotations

import ast
import re
from itertools import product
from typing import TYPE_CHECKING, Any

from redrive.policy import Backoff, Failure, History, Policy, Retry
from tests.conformance.adapters.policies import MANY, START
from tests.conformance.adapters.vocabulary import UnknownWord, word

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NEVER", "OPERATORS", "always", "check"]

NEVER = Policy(attempts=1, deadline=None, jitter="none")
"""``GiveUp``."""

OPERATORS: dict[str, Callable[[Policy, Policy], Policy]] = {
    "join": Policy.__and__,
    "meet": Policy.__or__,
    "then": Policy.__rshift__,
    "followedBy": Policy.__rshift__,
}

_FAILURES = [Failure.of(OSError("no")), Failure.of(TimeoutError("late"))]
_STREAMS = [[_FAILURES[number >> place & 1] for place in range(5)] for number in (0, 6, 21, 31)]
_CAP = 2


def always(delay: float) -> Policy:
    """``Delay(n)``."""
    return Policy(attempts=MANY, deadline=None, backoff=Backoff.constant(delay), jitter="none", idempotent=True)


def _pool() -> list[Policy]:
    plain = {"deadline": None, "jitter": "none", "idempotent": True}
    return [
        NEVER,
        always(0),
        always(3),
        Policy(attempts=3, backoff=Backoff.exponential(1), **plain),
        Policy(on=TimeoutError, attempts=4, backoff=Backoff.linear(2, 1), **plain),
        Policy(attempts=MANY, backoff=Backoff.listed([4, 1, 2], end="stop"), **plain),
        Policy(attempts=5, backoff=Backoff.constant(1), deadline=3, jitter="none", idempotent=True),
    ]


def check(given: str) -> None:
    """Hold the law that a sentence states against every choice of policies.

    Raises:
        UnknownWord: the sentence is none of the above.
        AssertionError: it does not hold.
    """
    subject = None
    for statement in re.split(r"[;,](?![^(]*\))", given):
        text = re.sub(rf"(?<!{')(?<!'.join(OPERATORS)})\s+\([^()]*\)\s*$", "", statement.strip()).rstrip(".")
        if found := re.match(rf"({'|'.join(OPERATORS)})\b", text):
            subject = found[1]
        _check(text, subject)


def _check(text: str, subject: str | None) -> None:
    for pattern, equations in _FORMS.items():
        if found := re.fullmatch(pattern, text, re.IGNORECASE):
            for equation in equations(subject, *found.groups()):
                _hold(equation)
            return
    if text.count("=") != 1:
        raise UnknownWord(f"{text!r} (known: the statements in laws.py, and equations)")
    _hold(text)


_SUBJECT = rf"(?:(?:{'|'.join(OPERATORS)}) )?(?:is )?"


def _known(subject: str | None) -> str:
    if subject is None:
        raise UnknownWord(f"a statement about no operator (known: {', '.join(OPERATORS)})")
    return subject


def _neutral(subject: str | None, side: str | None, kind: str, value: str) -> list[str]:
    name, result = _known(subject), "a" if kind.lower() == "identity" else value
    sides = {"left": [f"{value} {name} a = {result}"], "right": [f"a {name} {value} = {result}"]}
    return sides[side.strip().lower()] if side else sides["left"] + sides["right"]


def _absorption(_subject: str | None, one: str | None, other: str | None) -> list[str]:
    pairs = [(one, other)] if one and other else [("join", "meet"), ("meet", "join")]
    return [f"a {first} (a {second} b) = a" for first, second in pairs]


_FORMS: dict[str, Callable[..., list[str]]] = {
    _SUBJECT + "associative": lambda op: [f"(a {_known(op)} b) {op} c = a {op} (b {op} c)"],
    _SUBJECT + "commutative": lambda op: [f"a {_known(op)} b = b {op} a"],
    _SUBJECT + "idempotent": lambda op: [f"a {_known(op)} a = a"],
    _SUBJECT + r"(left |right )?(identity|zero) (?:=|is) (GiveUp|Delay\([\d.]+\))": _neutral,
    r"(\w+) distributes over (\w+)": lambda _, one, other: [f"a {one} (b {other} c) = (a {one} b) {other} (a {one} c)"],
    r"(?:absorption|(\w+) absorbs (\w+))": _absorption,
    r"map_delay\((.+)\) preserves GiveUp": lambda _, change: [f"map_delay({change}, GiveUp) = GiveUp"],
    r"map_delay\((id|identity)\) (?:=|is) (?:id|identity)": lambda _, change: [f"map_delay({change}, a) = a"],
}


# ------------------------------------------------------------------------------------------------------------ equations


def _hold(equation: str) -> None:
    left, right = (_parsed(side) for side in equation.replace("<->", "=").replace("==", "=").split("="))
    names = sorted({node.id for side in (left, right) for node in ast.walk(side) if _is_variable(node)})
    for chosen in product(_pool(), repeat=len(names)):
        values = dict(zip(names, chosen, strict=True))
        one, other = _built(left, values), _built(right, values)
        for stream in _STREAMS:
            assert _decided(one, stream) == _decided(other, stream), f"{equation} for {values}"


def _parsed(side: str) -> ast.expr:
    text = re.sub(r"map_delay\(min cap\b", f"cap({_CAP}", re.sub(r"map_delay\((?:id|identity)\b", "same(0", side))
    for name, sign in (("join", "&"), ("meet", "|"), ("then", ">>"), ("followedBy", ">>")):
        text = re.sub(rf"(?<=[\w)]) {name} (?=[\w(])", f" {sign} ", text)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise UnknownWord(f"{side!r} (known: policies, operators, brackets)") from None


def _is_variable(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and re.fullmatch("[a-cp-r]", node.id) is not None


_SIGNS: dict[type[ast.operator], str] = {ast.BitAnd: "join", ast.BitOr: "meet", ast.RShift: "then"}


def _built(node: ast.expr, values: dict[str, Policy]) -> Policy:
    match node:
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.Name(id="GiveUp"):
            return NEVER
        case ast.Call(func=ast.Name(id="Delay"), args=[ast.Constant(value=float() | int() as delay)]):
            return always(delay)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
            return OPERATORS[_SIGNS[type(op)]](_built(left, values), _built(right, values))
        case ast.Call(func=ast.Name(id="cap"), args=[ast.Constant(value=limit), of]):
            return _built(of, values).cap(limit)
        case ast.Call(func=ast.Name(id="same"), args=[_, of]):
            return _built(of, values).at_least(0)
        case ast.Call(func=ast.Name(id=name), args=[one, other]):
            return word(name, OPERATORS)(_built(one, values), _built(other, values))
        case ast.Call(func=ast.Attribute(value=one, attr=name), args=[other]):
            return word(name, OPERATORS)(_built(one, values), _built(other, values))
    raise UnknownWord(f"{ast.unparse(node)!r} (known: policies, operators, GiveUp, Delay(n))")


def _decided(policy: Policy, stream: list[Failure]) -> list[Any]:
    history, found, now = History(1, START), [], START
    for failure in stream:
        decision = policy.decide(history, failure, now, 0.5)
        if not isinstance(decision, Retry):
            return [*found, "GiveUp"]
        found.append(decision.delay)
        history = policy.advance(history, failure, decision.delay, now=now, sample=0.5)
        now += decision.delay
    return found
