"""Secret values: how they are found by their keys, and removed from texts. PURE.

Values are found at any depth of the arguments of a job, and then removed from its error texts and tracebacks too: an
error often repeats the arguments of the call that failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

#: What replaces a secret value.
REDACTED: Final = "[redacted]"

# Keys are compared as words in lower case with "_" before, between and after them: apiKey is "_api_key_". Where an
# underscore is optional, the words may also be written together. A pattern that could be a part of another word names
# the side on which the word ends: "auth" must not be found in "author".
_SECRET: Final = re.compile(
    # Logins.
    r"pass_?(?:word|wd|phrase|code|key)|pwd|_pw_|^_pass_$"
    r"|_(?:user|db|database|smtp|mail|ftp|admin|root|redis|proxy)_?pass_"
    r"|secret(?!ar)|token(?!i[sz])|credential|_creds?_|cookie|(?<!ob)(?<!pos)session(?:_?id)?_$"
    r"|jwt|_psk_|mnemonic|seed_?phrase|authori[sz]ation|authentication|_auth(?!or|ent|ed_)|auth\d?_|_bearer"
    r"|_t?otp|otp_|(?:recovery|backup|verification|mfa|2fa|sms|login|access)_?codes?_"
    r"|^_pin_$|(?:card|user|bank|sim|login)_pin_"
    # Keys of cryptography and of services.
    r"|(?:api|access|account|admin|crypto|decrypt|decryption|encrypt|encryption|hmac|license|master|private|shared"
    r"|signing|ssh|ssl|tls|webhook)_?keys?(?!board|word)|_sign_?keys?_"
    # Addresses that contain a password.
    r"|dsn_|conn(?:ection)?_?(?:str|string|ur[il])_|(?:database|_db|redis|broker|mongo(?:db)?|postgres(?:ql)?|mysql"
    r"|mariadb|amqp|rabbit(?:mq)?|jdbc|odbc)_?ur[il]s?_"
    # Cards and accounts.
    r"|(?:credit|debit|bank|payment)_?card|^_card_$|_card_?(?:no|nr|num|number)s?_|_cv[vc]|cv[vc]\d?_"
    r"|^_pan_$|_card_pan_|_ibans?_|_iban_?number|_ssn_|social_security"
)

_WORD_BEGINS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")

# A shorter value, such as a PIN of 4 digits, also occurs by chance in other texts.
_SHORTEST: Final = 4


def is_secret(key: str) -> bool:
    """Return True if values under this key are secret."""
    words = _WORD_BEGINS.sub("_", key).strip("_").lower()
    return _SECRET.search(f"_{words}_") is not None


def secrets_of(value: object) -> frozenset[str]:
    """Return the secret texts and numbers in a value of JSON, as texts."""
    return frozenset(each for each in _secrets(value, inside=False) if len(each) >= _SHORTEST)


def texts_of(value: object) -> frozenset[str]:
    """Return all texts and numbers in a value of JSON, as texts."""
    return frozenset(each for each in _secrets(value, inside=True) if len(each) >= _SHORTEST)


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
    found = sorted(secrets, key=len, reverse=True)
    # In one pass: a secret that is a part of the mark must not be found in it.
    return re.sub("|".join(map(re.escape, found)), lambda _: mark, text) if found else text


class ErrorSearch:
    """A search for a text in errors, as they are shown: without the secret values of the arguments of their jobs.

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

    def finds(self, error: str | None, payload: bytes | None) -> bool:
        """Return True if an error has the text.

        Args:
            error: as it is stored.
            payload: the arguments of the job, or of the one that it catches, as JSON.
        """
        if error is None:
            return False
        found = (texts_of if self._hidden else secrets_of)(decoded(payload))
        return self._text in without(error, found, self._MARK).replace(REDACTED, self._MARK)


def decoded(raw: bytes | None) -> object:
    """Return a stored document as a value; text that is no JSON is returned as a text."""
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode(errors="replace")
