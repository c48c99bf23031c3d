"""Removal of secret values."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from redrive.engine.secrets import REDACTED, ErrorSearch, decoded, is_secret, secrets_of, texts_of, without

SECRET = """
password Passwd api_key apiKey X-Auth-Token client_secret card cardNumber cvv iban Cookie pwd passcode otp jwt auth
bearer access_key ssh_key signing_key credit_card dsn database_url connection_string userPwd dbPwd passCode
pass_code otpCode smsOTP totp_code jwtToken authHeader basicAuth oauth OAuth2 authz bearerToken accessKey
awsAccessKeyId AWS_ACCESS_KEY_ID sshKey ssh_private_key SSHKey signingKey creditCard customerCreditCardNumber
sentryDsn SENTRY_DSN databaseURL DATABASE_URL prod_database_url db_url dbUri connectionString connStr redis_url
broker_url sqlalchemy_database_uri sessionId session authentication Proxy-Authorization accesskey sshkey databaseurl
ssn cvc2 pin pan userotp httpauth authkey mfa_code backupCodes smtp_pass pass
ldap_pass imap_pass email_pass keystore_pass storepass truststore_pass keypass pin_code pincode security_code
one_time_code oneTimeCode session_key PHPSESSID gpg_key deploy_key host_key app_key appKey subscription_key consumer_key
storage_key hmac signature X-Hub-Signature-256 csrf csrfmiddleware sharedaccesssignature bank_account account_number
cc_number sqlalchemy_url pg_url smtp_url webhook_url http_proxy HTTPS_PROXY proxy_url access_tokens refreshTokens tokens
token max_token_secret
"""

OTHER = """
order cardinal discard pinned keyboard passage name panel author authority authors authorName authored_at coauthor
authorized_by authentic authenticated unauthorized hotpot laptop footprint monkey access_keyword primary_key
public_key partition_key idempotency_key key passenger compass boarding_pass passport pin_count spin shipping pane
secretary tokenizer forbearance card_type discard_number business_card connection reconnect_url callback_url
max_tokens maxTokens max_output_tokens token_count tokenCount prompt_tokens n_tokens tokens_used tokens_per_minute
token_limit token_type season_pass high_pass bypass ghost_key snap_key map_key assess_id discount_number discount_nr
signature_algorithm reverse_proxy proxy_host account_name accounts bank_account_type barcode country_code
imdb_url jpg_url database database_name friends_name word obsession possession session_count design_key accessory
accessible ssh_host signing_date credit credits description invoice_number adopt option
"""


@pytest.mark.parametrize("key", SECRET.split())
def test_secret_keys_are_found(key: str):
    """Separators, case, prefixes and suffixes do not matter."""
    assert is_secret(key)


@pytest.mark.parametrize("key", OTHER.split())
def test_other_keys_are_not(key: str):
    """Words that only contain a part of a secret word stay."""
    assert not is_secret(key)


def test_nested_secrets_are_found():
    """Secret values are found at any depth."""
    value = {"a": [{"password": "hunter22", "n": 1}], "card": {"number": 4242424242}, "b": None}

    assert {"hunter22", "4242424242"} == secrets_of(value)


@pytest.mark.parametrize(
    "written", [str, repr, json.dumps, lambda text: json.dumps(text, ensure_ascii=False), quote, quote_plus]
)
@pytest.mark.parametrize("secret", ['it\'s\\a "pass"w\u00f6rd', "a b/c&d", "two\nlines", "plain-1"])
@pytest.mark.parametrize("found", [secrets_of, texts_of])
def test_secrets_are_found_as_programs_write_them(
    secret: str, written: Callable[[str], str], found: Callable[[object], frozenset[str]]
):
    """An error often repeats a value with quotes, or as a part of a URL."""
    shown = without(f"bad row {written(secret)}", found({"password": secret}))

    assert f"bad row {REDACTED}" == shown.replace("'", "").replace('"', "")
    assert f"bad row {{password: {REDACTED}}}" == without(
        f"bad row { {'password': secret}!r}", found({"password": secret})
    ).replace("'", "").replace('"', "")


def test_numbers_of_tokens_stay_in_texts():
    """A number of tokens is no token, so that it is not removed from an error either."""
    assert frozenset({"7f3a9c"}) == secrets_of({"max_tokens": 8192, "token_count": 4096, "token": "7f3a9c"})


def test_secret_values_are_removed_from_texts():
    """Error texts that repeat an argument show it as little as the argument itself."""
    text = without("login of ann with hunter22 and hunter2244 failed", {"hunter22", "hunter2244"})

    assert f"login of ann with {REDACTED} and {REDACTED} failed" == text


def test_a_secret_is_not_found_in_the_mark():
    """The replacement of one secret is not searched for another one."""
    assert f"{REDACTED} {REDACTED}" == without("hunter22 acte", {"hunter22", "acte"})
    assert "as it is" == without("as it is", ())


def test_short_and_logical_values_stay_in_texts():
    """Values of three letters stay: they would be removed from words by chance."""
    assert frozenset() == secrets_of({"password": "abc", "token": True, "secret": None})


def test_hidden_sites_remove_all_texts():
    """All texts and numbers of the arguments count as secret."""
    assert {"order", "12345"} == texts_of({"a": "order", "b": [12345, {"c": "no"}]})


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (None, None),
        (b"", None),
        (b"[1]", [1]),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
        (b'"a\xff"', "a\N{REPLACEMENT CHARACTER}"),
        (b"{", "{"),
    ],
)
def test_documents_are_decoded(raw: bytes | None, value: object):
    """Values that are no JSON are shown as text."""
    assert value == decoded(raw)


@pytest.mark.parametrize(
    ("text", "hidden", "part", "finds"),
    [
        ("no route", False, "no route", True),
        ("route to ann", False, "route to ann", True),
        ("route to ann", True, "route to ann", False),
        ("route to [redacted] with", True, "route to ", True),
        ("hunter", False, "hunter", False),
        ("with [redacted]", False, "with ", True),
        ("with [redacted] now", False, "with ", False),
        ("[redacted]", False, None, True),
        ("redact", False, "redact", False),
        ("", False, None, True),
    ],
)
def test_a_search_sees_what_is_shown(text: str, hidden: bool, part: str | None, finds: bool):
    """A text is found in an error as it is shown, and no part of it in the mark of a secret."""
    search = ErrorSearch(text, hidden=hidden)
    documents = [b'{"to": "anna"}', b'{"password": "hunter22"}']

    assert part == search.part
    assert finds is search.finds("no route to anna with hunter22", documents)
    assert not search.finds(None, documents)
