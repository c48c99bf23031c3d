"""Secret values: how they are found by their keys, and removed from texts. PURE.

Values are found at any depth of the arguments of a job, and then removed from its error texts and tracebacks too: an
error often repeats the arguments of the call that failed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

import msgspec

#: What replaces a secret value.
REDACTED: Final = "[redacted]"

# Keys are compared as words in lower case with "_" before, between and after them: apiKey is "_api_key_". Where an
# underscore is optional, the words may also be written together. A pattern that could be a part of another word names
# the side on which the word ends: "auth" must not be found in "author".
_SECRET: Final = re.compile(
    # Logins. A word before "pass" names what the password is of, but for these.
    r"pass_?(?:word|wd|phrase|code|key)|pwd|_pw_|^_pass_$|(?:key|store)_?pass_"
    r"|(?<!boarding)(?<!season)(?<!_test)(?<!_day)(?<!_bus)(?<!_ski)(?<!first)(?<!second)(?<!single)(?<!_low)(?<!_high)"
    r"(?<!_band)_pass_$"
    r"|secret(?!ar)|token(?!i[sz])|credential|_creds?_|cookie|(?<!ob)(?<!pos)session(?:_?id)?_$|(?<!as)(?<!pos)sess_?id_"
    r"|jwt|_psk_|mnemonic|seed_?phrase|authori[sz]ation|authentication|_auth(?!or|ent|ed_)|auth\d?_|_bearer|_[cx]srf"
    r"|_t?otp|otp_|(?:recovery|backup|verification|mfa|2fa|sms|login|access|security|activation|unlock|one_?time|_pin"
    r"|_puk)_?codes?_"
    r"|^_pin_$|(?:card|user|bank|sim|login)_pin_"
    # Keys of cryptography and of services, and what is signed by them.
    r"|(?:api|access|account|admin|application|consumer|crypto|decrypt|decryption|deploy|deployment|encrypt|encryption"
    r"|hmac|_host|instrumentation|license|master|private|session|shared|signing|ssh|ssl|storage|subscription|tls|webhook"
    r"|wifi|_app|_gpg|_pgp|_pem|_rsa|_wpa)_?keys?(?!board|word)|_sign_?keys?_|_hmac_|signature(?:_v?\d+)?_$"
    # Addresses that contain a password, or are one.
    r"|dsn_|conn(?:ection)?_?(?:str|string|ur[il])_|(?:database|_db|redis|broker|mongo(?:db)?|postgres(?:ql)?|_pg|mysql"
    r"|mariadb|sqlalchemy|amqp|rabbit(?:mq)?|jdbc|odbc|smtp|imap|ldap|_s?ftp|webhook|proxy)_?ur[il]s?_"
    r"|_(?:https?|socks\d?|ftp|all)_?proxy_$"
    # Cards and accounts.
    r"|(?:credit|debit|bank|payment)_?card|^_card_$|_(?:card|cc)_?(?:no|nr|num|number)s?_|_ccn_|_cv[vc]|cv[vc]\d?_"
    r"|bank_?accounts?_$|account_?(?:no|nr|num|number)s?_"
    r"|^_pan_$|_card_pan_|_ibans?_|_iban_?number|_ssn_|social_security"
)

# Numbers of tokens, such as those of a language model, and what is no token itself.
_COUNT: Final = re.compile(
    r"_(?:max|min|n|num|total)_?(?:[a-z]+_)?tokens(?=_)"
    r"|_(?:prompt|completion|input|output|cached|reasoning|used|remaining)_?tokens(?=_)"
    r"|_tokens?_?(?:counts?|limits?|usage|used|budgets?|type|per_[a-z]+)(?=_)"
)

_WORD_BEGINS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")

# A text that looks alike in each writing.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*")

# A shorter value, such as a PIN of 4 digits, also occurs by chance in other texts.
_SHORTEST: Final = 4


# A search reads the arguments of thousands of jobs, which have few different keys.
@functools.lru_cache(maxsize=1024)
def is_secret(key: str) -> bool:
    """Return True if values under this key are secret."""
    words = _WORD_BEGINS.sub("_", key).strip("_").lower()
    return _SECRET.search(_COUNT.sub("", f"_{words}_")) is not None


def secrets_of(value: object) -> frozenset[str]:
    """Return the secret texts and numbers in a value of JSON, as texts, and as programs write them into other texts."""
    return _written(_secrets(value, inside=False))


def texts_of(value: object) -> frozenset[str]:
    """Return all texts and numbers in a value of JSON, as texts, and as programs write them into other texts."""
    return _written(_secrets(value, inside=True))


def _written(secrets: Iterable[str]) -> frozenset[str]:
    long = {each for each in secrets if len(each) >= _SHORTEST}
    return frozenset(form for each in long for form in _forms(each))


def _forms(text: str) -> Iterator[str]:
    """Return a text, and what `repr`, JSON and URLs make of it, without their quotes."""
    yield text
    if not _PLAIN.fullmatch(text):
        yield repr(text)[1:-1]
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield quote(text, errors="replace")
        yield quote(text, safe="", errors="replace")
        yield quote_plus(text, errors="replace")


def _secrets(value: object, *, inside: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _secrets(each, inside=inside or is_secret(str(key)))
    elif isinstance(value, list):
        for each in value:
            yield from _secrets(each, inside=inside)
    elif inside and value is not None and not isinstance(value, bool):
        yield str(value)


def without(text: str, secrets: Iterable[str], mark: str = REDACTED) -> str:
    """Return a text with these secrets replaced by a mark; where two begin at one place, the longer one is."""
    found = sorted((each for each in secrets if each in text), key=len, reverse=True)
    if len(found) == 1:
        # A search does this for thousands of errors, each with another secret: a pattern for each would take longer.
        return text.replace(found[0], mark)
    # In one pass: a secret that is a part of the mark must not be found in it.
    return re.sub("|".join(map(re.escape, found)), lambda _: mark, text) if found else text


class ErrorSearch:
    """A search for a text in errors, as they are shown: without the secret values of their jobs.

    Args:
        text: it may contain `REDACTED`.
        hidden: True if errors are shown without any value of the arguments.
    """

    # In place of a secret; neither an error nor a text contains it, so that no text matches a part of the mark.
    _MARK: Final = "\0"

    def __init__(self, text: str, *, hidden: bool) -> None:
        self._text = text.replace(REDACTED, self._MARK)
        self._hidden = hidden

    @property
    def part(self) -> str | None:
        """A text that each error contains that is found; None if there is none."""
        return max(self._text.split(self._MARK), key=len) or None

    def finds(self, error: str | None, documents: Iterable[bytes]) -> bool:
        """Return True if an error has the text.

        Args:
            error: as it is stored.
            documents: what it may repeat, such as the arguments of the job, as JSON.
        """
        if error is None:
            return False
        secrets = texts_of if self._hidden else secrets_of
        found = frozenset[str]().union(*(secrets(decoded(each)) for each in documents))
        return self._text in without(error, found, self._MARK).replace(REDACTED, self._MARK)


def decoded(raw: bytes | None) -> object:
    """Return a stored document as a value; text that is no JSON is returned as a text."""
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = raw.decode(errors="replace")
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
