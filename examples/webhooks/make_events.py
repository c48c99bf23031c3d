"""A program that makes ``events.jsonl``: 300 webhook events as services send them, the same ones every time.

::

    python make_events.py [--count 300] [--seed 1] > events.jsonl

Five kinds, each with content that breaks naive senders: pushes (long lists, paths, commit messages in many
languages), payments (nested refunds, amounts that no float can hold), orders (names and addresses in eleven scripts),
chat messages (emoji made of several code points, right-to-left text, a U+2028 in the middle of a line) and document
changes (trees up to 40 levels deep). A line has 0.5 to 20 KB, most about 2.

Nothing here describes a person, a shop or a card that exists. Only ``random()`` is used, the one method with
results that Python guarantees between versions.
"""

# ruff: noqa: RUF001 - characters that look like others are what these events are for

from __future__ import annotations

import argparse
import random
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from events import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main", "make_events"]

T = TypeVar("T")
Json = dict[str, Any]

_EPOCH = datetime(2026, 3, 28, 22, 15, tzinfo=UTC)  # the night in which Europe's clocks go forward

_NAMES = (
    "Amélie Dubois", "Jürgen Groß", "Łucja Wiśniewska", "Σοφία Παπαδοπούλου", "Дмитрий Соколов", "陈美玲", "佐藤 健",
    "김서연", "محمد الأنصاري", "נועה לוי", "प्रिया शर्मा", "สมชาย ใจดี", "Nguyễn Thị Hương", "Siân O’Hara",
    "Grace Okonkwo",
)  # fmt: skip
_STREETS = (
    ("12 Mill Lane", "Leeds", "GB"), ("Schloßallee 7b", "Köln", "DE"), ("14 rue de l’Église", "Orléans", "FR"),
    ("ул. Садовая, д. 3", "Казань", "RU"), ("朝阳路88号 3单元", "成都", "CN"), ("緑町2丁目4-9", "札幌市", "JP"),
    ("شارع النيل ٢٢", "القاهرة", "EG"), ("רחוב הגפן 5", "חיפה", "IL"), ("ถนนสุขใจ 45/1", "เชียงใหม่", "TH"),
)  # fmt: skip
_COMMITS = (
    "Fix rounding of totals when the discount is a third", "Corrige l’ordre des accents dans la recherche",
    "Umlaute in Dateinamen: größer ist nicht groesser", "修复:订单在午夜被重复计算", "再試行の間隔を二倍にする",
    "Исправлена утечка соединений при перезапуске", "إصلاح اتجاه النص في الفواتير", "תיקון: כפילות ברשימת הלקוחות",
    "Wait for the lock instead of failing at once 🔒", "Remove the cache; it was slower than the query",
)  # fmt: skip
_WORDS = (
    "the", "queue", "was", "empty", "before", "noon", "señal", "naïve", "façade", "über", "čas", "çok", "năm",
    "время", "слово", "λόγος", "ὕδωρ", "شكرا", "سلام", "שלום", "תודה", "नमस्ते", "ธันวาคม", "明日", "天気", "안녕", "커피",
    "🙂", "👩🏽‍🚀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇯🇵", "❤️‍🔥", "e\u0301", "ﷺ", "½", "→", "“quoted”", "back\\slash", "tab\there",
)  # fmt: skip
_GOODS = (
    "Kaffeemühle",
    "お弁当箱",
    "Bøker, brukte",
    "紫砂茶壶",
    "Ψωμί ολικής",
    "شاي بالنعناع",
    "Crème brûlée 🍮",
    "Wool socks",
)
_PATHS = (
    "src/billing/total.py",
    "docs/日本語/導入.md",
    "tests/größe/test_maß.py",
    "web/static/icônes/clé.svg",
    "Makefile",
)
_TAGS = ("p", "h2", "li", "table", "figure", "blockquote")


class _Dice:
    """Draws from one stream of ``random()``."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def below(self, stop: int) -> int:
        return int(self._random.random() * stop)

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def hexadecimal(self, digits: int) -> str:
        return "".join(self.pick("0123456789abcdef") for _ in range(digits))

    def words(self, low: int, high: int) -> str:
        return " ".join(self.pick(_WORDS) for _ in range(self.between(low, high)))


def make_events(count: int, seed: int) -> list[Event]:
    """Return the first events of the stream that belongs to the seed."""
    return [_event(number, _Dice(f"{seed}/{number}")) for number in range(1, count + 1)]


def _event(number: int, dice: _Dice) -> Event:
    kind, start, grow = dice.pick(_KINDS)
    created_at = _EPOCH + timedelta(seconds=37 * number, milliseconds=dice.below(1000))
    event = Event(f"evt_{number:04}", kind, created_at, start(dice))
    # Sizes as they are met in practice: many small ones, a few large ones. One step of growth is below 1.4 KB.
    wanted = dice.between(15_000, 19_000) if dice.chance(0.06) else dice.between(600, dice.pick((1200, 2600, 7000)))
    while len(msgspec.json.encode(event)) < wanted:
        grow(event.data, dice)
    return event


def _push(dice: _Dice) -> Json:
    before, after = dice.hexadecimal(40), dice.hexadecimal(40)
    owner = dice.pick(("acme", "société-générique", "サンプル"))
    return {
        "ref": dice.pick(("refs/heads/main", "refs/heads/feature/größe", "refs/tags/v1.2.0-β")),
        "before": before,
        "after": after,
        "forced": dice.chance(0.1),
        "compare": f"https://git.example.com/{owner}/shop/compare/{before[:12]}...{after[:12]}",
        "repository": {
            "id": 10_000_000 + dice.below(10**9),
            "full_name": f"{owner}/shop",
            "private": True,
            "topics": [],
        },
        "pusher": {"name": dice.pick(_NAMES), "email": f"user{dice.below(900)}@example.com"},
        "commits": [],
    }


def _add_commit(data: Json, dice: _Dice) -> None:
    commit = {
        "id": dice.hexadecimal(40),
        "message": dice.pick(_COMMITS),
        "timestamp": f"2026-03-28T{dice.between(10, 23)}:{dice.between(10, 59)}:00+0{dice.below(10)}:00",
        "author": {"name": dice.pick(_NAMES), "username": None if dice.chance(0.2) else f"user{dice.below(900)}"},
        "added": [dice.pick(_PATHS) for _ in range(dice.below(3))],
        "removed": [],
        "modified": [dice.pick(_PATHS) for _ in range(dice.between(1, 3))],
    }
    data["commits"].append(commit)


def _payment(dice: _Dice) -> Json:
    return {
        "id": f"pay_{dice.hexadecimal(24)}",
        "amount": str(dice.between(1, 10**16)) + f".{dice.below(100):02}",
        "amount_minor": dice.between(2**53, 2**62),
        "currency": dice.pick(("EUR", "JPY", "KWD", "INR", "BRL")),
        "rate": dice.pick((1.0, 0.1, 1e-7, 163.2249)),
        "captured": dice.chance(0.9),
        "customer": {"name": dice.pick(_NAMES), "address": _address(dice)},
        "method": {
            "type": "card",
            "card": {"last4": f"{dice.below(10000):04}", "checks": {"cvc": "pass", "zip": None}},
        },
        "metadata": {"заказ": f"№ {dice.below(10**6)}", "備考": dice.words(2, 8), "": "an empty name is a name"},
        "history": [],
        "refunds": {"has_more": False, "data": []},
    }


def _add_refund(data: Json, dice: _Dice) -> None:
    steps = [{"at": 1_774_735_000 + dice.below(10**6), "state": state} for state in ("created", "sent", "settled")]
    refund = {"id": f"re_{dice.hexadecimal(20)}", "amount_minor": dice.below(10**9), "reason": dice.words(3, 14)}
    data["refunds"]["data"].append(refund | {"steps": steps})


def _order(dice: _Dice) -> Json:
    return {
        "number": f"{dice.between(2020, 2026)}-{dice.below(10**6):06}",
        "buyer": {"name": dice.pick(_NAMES), "vat_id": None, "marketing": dice.chance(0.3)},
        "ship_to": _address(dice),
        "bill_to": _address(dice) if dice.chance(0.5) else None,
        "gift": {"wrapped": dice.chance(0.2), "message": dice.words(4, 16)},
        "totals": {"net": "0.30000000000000004", "tax": [{"rate": "0.19", "amount": "11.40"}], "gross": "71.40"},
        "lines": [],
    }


def _add_line(data: Json, dice: _Dice) -> None:
    line = {
        "sku": f"SKU-{dice.hexadecimal(10).upper()}",
        "title": dice.pick(_GOODS),
        "quantity": dice.between(1, 12),
        "unit_price": f"{dice.below(500)}.{dice.below(100):02}",
        "options": [
            {"name": "Farbe", "value": dice.pick(("grün", "赤", "أزرق"))},
            {"name": "note", "value": dice.words(0, 9)},
        ],
    }
    data["lines"].append(line)


def _chat(dice: _Dice) -> Json:
    return {
        "channel": {
            "id": f"C{dice.hexadecimal(10).upper()}",
            "name": dice.pick(("général", "東京オフィス", "צוות", "random 🎲")),
        },
        "user": {"name": dice.pick(_NAMES), "status": dice.pick(("☕", "🏖️", "", "في اجتماع"))},
        "text": "first line\u2028second line, says the clipboard: " + dice.words(6, 30),
        "reactions": [{"emoji": dice.pick(_WORDS[27:33]), "count": dice.between(1, 40)} for _ in range(dice.below(4))],
        "thread": [],
    }


def _add_reply(data: Json, dice: _Dice) -> None:
    reply = {
        "user": dice.pick(_NAMES),
        "ts": f"{1_774_735_000 + dice.below(10**6)}.{dice.below(10**6):06}",
        "text": dice.words(3, 24),
        "edited": None,
        "mentions": [dice.pick(_NAMES) for _ in range(dice.below(3))],
    }
    data["thread"].append(reply)


def _change(dice: _Dice) -> Json:
    leaf: Json = {"tag": "text", "value": dice.words(2, 10)}
    for level in range(dice.between(5, 40)):
        leaf = {"tag": dice.pick(_TAGS), "level": level, "children": [leaf]}
    return {
        "document": {"id": dice.hexadecimal(32), "title": dice.words(2, 6), "revision": dice.below(4000)},
        "editor": dice.pick(_NAMES),
        "tree": leaf,
        "operations": [],
    }


def _add_operation(data: Json, dice: _Dice) -> None:
    path = [dice.below(9) for _ in range(dice.between(1, 12))]
    after = {"text": dice.words(1, 20), "style": {"bold": dice.chance(0.3), "size": dice.pick((9, 10.5, 12, 1e1))}}
    data["operations"].append({"op": "replace", "path": path, "after": after})


def _address(dice: _Dice) -> Json:
    street, city, country = dice.pick(_STREETS)
    return {"lines": [street], "city": city, "postcode": f"{dice.below(100_000):05}", "country": country}


_KINDS: tuple[tuple[str, Callable[[_Dice], Json], Callable[[Json, _Dice], None]], ...] = (
    ("push", _push, _add_commit),
    ("payment.settled", _payment, _add_refund),
    ("order.placed", _order, _add_line),
    ("chat.message", _chat, _add_reply),
    ("document.changed", _change, _add_operation),
)


def main() -> None:
    """Write the events to standard output, one a line."""
    parser = argparse.ArgumentParser(description="Make webhook events, the same ones every time.")
    parser.add_argument("--count", type=int, default=300, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the stream")
    options = parser.parse_args()
    for event in make_events(options.count, options.seed):
        sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")


if __name__ == "__main__":
    main()
