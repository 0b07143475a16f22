"""Secrets in the forms in which programs write values: as they are, JSON, repr, URLs, base64."""

from __future__ import annotations

import base64
import itertools
import json
import random
import re
import urllib.parse
from collections.abc import Callable

import pytest

from argus.hooks.redact import MASK, MAX_PENDING_BYTES, Redactor

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
chance = random.Random(3)  # noqa: S311
KEY = ["".join(chance.choices(LETTERS, k=64)) for _line in range(4)]
PEM = "\n".join(["-----BEGIN PRIVATE KEY-----", *KEY, "qLzz+w==", "-----END PRIVATE KEY-----\n"])
SECRETS = {
    "plain": "hf_AbCdEfGhIjKlMnOpQrStUv",
    "json": json.dumps({"type": "service", "private_key": PEM, "note": 'it\'s "quoted" \\ ö'}),
    "pem": PEM,
    "pem of Windows": PEM.replace("\n", "\r\n"),
    "quotes": 'it\'s "both" & more',
    "backslashes": "C:\\new\\table\\x41\\u0041",
    "percent": "100%25 of 50% %41bc",
    "plus": "a+b c+d/e=f",
    "unicode": "größe-Ünïcode-𝄞-日本",
    "url": "postgres://me:s3cr3t%21@db.example.com:5432/verl?sslmode=require",
    "tab": "one\ttwo\tthree",
    "blanks around": "  padded value \n",
    "digits": "0123456789012345",
    "short": "pass1",
    "like a mask": "secret",
}


WAYS: dict[str, Callable[[str], str]] = {
    "itself": str,
    "repr": repr,
    "environment": lambda secret: repr({"A": "b", "KEY": secret}),
    "json": lambda secret: json.dumps({"a": secret}),
    "quote": urllib.parse.quote,
    "quote all": lambda secret: urllib.parse.quote(secret, safe=""),
    "quote_plus": urllib.parse.quote_plus,
    "urlencode": lambda secret: urllib.parse.urlencode({"key": secret, "a": 1}),
    "after a backslash": lambda secret: "\\" + secret,
    "after a percent sign": lambda secret: "%" + secret,
    "twice": lambda secret: secret + secret,
}


def leaks(secret: str, shown: str) -> bool:
    """Whether a long part of any line of the secret is still there, in whatever form."""
    shown = shown.replace(MASK, "\0")
    plain = shown.replace("\\", "")
    parts = [line.strip() for line in secret.replace("\\n", "\n").splitlines() if len(line.strip()) >= 8]
    runs = [run for part in parts for run in "".join(c if c.isalnum() else " " for c in part).split() if len(run) >= 5]
    return any(part in shown for part in parts) or any(run in plain for run in runs)


def streamed(redactor: Redactor, data: bytes, cuts: list[int]) -> bytes:
    edges = [0, *sorted(cuts), len(data)]
    return b"".join(redactor.feed(data[a:b]) for a, b in itertools.pairwise(edges)) + redactor.finish()


@pytest.mark.parametrize("way", WAYS)
def test_every_secret_in_every_way(way: str) -> None:
    for name, secret in SECRETS.items():
        text = f"before {WAYS[way](secret)} after\n"
        redactor = Redactor([secret])
        shown = redactor.mask_text(text)
        assert not leaks(secret, shown) and MASK in shown, name
        assert shown.startswith("before ") and shown.endswith(" after\n"), name
        data = text.encode()
        for size in (1, 7, 64):
            assert streamed(redactor, data, list(range(size, len(data), size))).decode() == shown, (name, size)


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("after", ["", "\n", "more"])
def test_base64(encode: Callable[[bytes], bytes], after: str) -> None:
    for name, secret in SECRETS.items():
        encoded = encode((secret.strip() + after).encode()).decode()
        shown = Redactor([secret]).mask_text(f"Authorization: Bearer {encoded} end")
        # What is left are characters that depend on those that follow.
        assert re.fullmatch(r"Authorization: Bearer \[secret\].{0,8} end", shown), name


def test_the_login_of_a_request() -> None:
    """As wandb sends its key: what follows the name changes the base64 of it."""
    for name in ("api", "user", "somebody"):
        login = base64.b64encode(f"{name}:{SECRETS['plain']}".encode()).decode()
        shown = Redactor([SECRETS["plain"]]).mask_text(f"{{'Authorization': 'Basic {login}'}} Basic understanding")
        assert shown == "{'Authorization': 'Basic [secret]'} Basic understanding"


def test_lines_of_a_secret_with_something_before_them() -> None:
    lines = "\n".join(f"12:00:01 | {line}" for line in PEM.splitlines())
    assert Redactor([PEM]).mask_text(lines) == "\n".join(["12:00:01 | [secret]"] * 7)
    assert Redactor([json.dumps({"key": PEM})]).mask_text(PEM.splitlines()[2]) == "[secret]"
    # Short lines occur by chance in any text.
    assert Redactor(["-----BEGIN-----\nusers:\n"]).mask_text("users: -----BEGIN-----") == "users: [secret]"


@pytest.mark.parametrize("name", SECRETS)
def test_a_text_that_was_cut(name: str) -> None:
    secret = SECRETS[name]
    redactor = Redactor([secret])
    for length in range(8, len(secret)):
        # The last line of the text, or the part after its last escape.
        start = secret[:length]
        part = re.split(r"\n|\\.", start)[-1].strip()
        if len(part) >= 8 and start.strip() == start:
            shown = (redactor.feed(b"tail " + start.encode()) + redactor.finish()).decode()
            assert not leaks(start, shown[5:]) and not leaks(start, redactor.mask_text("tail " + start)[5:]), length
    assert redactor.mask_text(SECRETS["plain"]) == (MASK if name == "plain" else SECRETS["plain"])


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    secret = b"hf_AbCdEfGhIjKlMnOp"
    for before in range(MAX_PENDING_BYTES - 30, MAX_PENDING_BYTES + 60, 3):
        data = b"-" * before + secret + b"-" * MAX_PENDING_BYTES
        redactor = Redactor([secret.decode()])
        shown = redactor.feed(data[: MAX_PENDING_BYTES + 25]) + redactor.feed(data[MAX_PENDING_BYTES + 25 :])
        assert len(redactor.pending) <= MAX_PENDING_BYTES
        assert shown + redactor.finish() == b"-" * before + b"[secret]" + b"-" * MAX_PENDING_BYTES


def test_nothing_but_secrets_changes() -> None:
    redactor, chance = Redactor(list(SECRETS.values())), random.Random(5)  # noqa: S311
    words = [b"step:1 - ", b"100%|#| ", b"\\n", b"\\u00e9", b"%41", b"\x1b[36m", b"\r", b"\n", b"\xff\xfe", b"\xc3\xb6"]
    for _round in range(100):
        data = b"".join(chance.choices(words, k=40))
        assert streamed(redactor, data, chance.choices(range(len(data)), k=6)) == data
