"""Secrets in the forms in which programs write values: as they are, JSON, repr, URLs, base64."""

from __future__ import annotations

import base64
import html
import itertools
import json
import random
import re
import urllib.parse
from collections.abc import Callable

import markupsafe
import pytest

from argus.hooks.redact import MASK, Redactor

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
chance = random.Random(3)  # noqa: S311
PEM = "\n".join(
    [
        "-----BEGIN PRIVATE KEY-----",
        *("".join(chance.choices(LETTERS, k=64)) for _line in range(4)),
        "qLzz+w==",
        "-----END PRIVATE KEY-----\n",
    ]
)
SECRETS = {
    "plain": "hf_AbCdEfGhIjKlMnOpQrStUv",
    "json": json.dumps({"type": "service", "private_key": PEM, "note": 'it\'s "quoted" \\ ö'}),
    "pretty json": json.dumps({"user": "me", "password": "pa/ss'w\"ord", "list": ["a", 1]}, indent=2),
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
    "hexadecimal": "deadbeefcafe0123",
    "short": "pass1",
    "like a mask": "secret",
}


def lines_of(text: str) -> str:
    return "\n".join(f"12:00:01 | {line}" for line in text.splitlines())


WAYS: dict[str, Callable[[str], str]] = {
    "itself": str,
    "repr": repr,
    "repr with the other quotes": lambda secret: repr("'" + secret),
    "repr of both quotes": lambda secret: repr("'\"" + secret),
    "ascii": ascii,
    "environment": lambda secret: repr({"A": "b", "KEY": secret}),
    "repr of bytes": lambda secret: repr(secret.encode()),
    "json": lambda secret: json.dumps({"a": secret}),
    "json with unicode": lambda secret: json.dumps({"a": secret}, ensure_ascii=False),
    "json of JavaScript": lambda secret: json.dumps({"a": secret}).replace("/", "\\/"),
    "html": html.escape,
    "html without quotes": lambda secret: html.escape(secret, quote=False),
    "html of jinja": markupsafe.escape,
    "quote": urllib.parse.quote,
    "quote all": lambda secret: urllib.parse.quote(secret, safe=""),
    "quote_plus": urllib.parse.quote_plus,
    "urlencode": lambda secret: urllib.parse.urlencode({"key": secret, "a": 1}),
    "after a backslash": lambda secret: "\\" + secret,
    "after a percent sign": lambda secret: "%" + secret,
    "after letters": lambda secret: f"token{secret}token",
    "twice": lambda secret: secret + secret,
}


def leaks(secret: str, shown: str) -> bool:
    """Whether a long part of any line of the secret is still there, in whatever form."""
    shown = shown.replace(MASK, "\0")
    plain = shown.replace("\\", "")
    parts = [line.strip() for line in secret.replace("\\n", "\n").splitlines() if len(line.strip()) >= 4]
    runs = [run for part in parts for run in "".join(c if c.isalnum() else " " for c in part).split() if len(run) >= 5]
    return any(part in shown for part in parts) or any(run in plain for run in runs)


def streamed(redactor: Redactor, data: bytes, cuts: list[int]) -> bytes:
    edges = [0, *sorted(cuts), len(data)]
    return b"".join(redactor.feed(data[a:b]) for a, b in itertools.pairwise(edges)) + redactor.rest()


@pytest.mark.parametrize("way", WAYS)
def test_every_secret_in_every_way(way: str) -> None:
    for name, secret in SECRETS.items():
        text = f"before {WAYS[way](secret)} after\n"
        redactor = Redactor([secret])
        shown = redactor.text(text)
        assert not leaks(secret, shown), name
        assert MASK in shown, name
        assert shown.startswith("before "), name
        assert shown.endswith(" after\n"), name
        data = text.encode(errors="surrogatepass")
        for size in (1, 2, 3, 7, 64, 4096):
            stream = streamed(redactor, data, list(range(size, len(data), size))).decode(errors="replace")
            # Lines of less than 4 characters are not held back until the others come.
            assert not leaks(secret, stream) if name == "pretty json" else stream == shown, (name, size)


@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64(before: str, encode: Callable[[bytes], bytes]) -> None:
    for name, secret in SECRETS.items():
        if len(secret) < 9:
            continue
        encoded = encode((before + secret + "!").encode()).decode()
        shown = Redactor([secret]).text(f"Authorization: Basic {encoded}\n")
        assert MASK in shown, name
        # What is left of it are the characters that depend on their neighbours.
        assert len(shown) - len(f"Authorization: Basic {MASK}\n") <= 8 + len(before) * 2, name


@pytest.mark.parametrize("before", ["", "a", "ab", "user:"])
@pytest.mark.parametrize("after", range(3))
def test_the_last_character_of_base64(before: str, after: int) -> None:
    secret = "hf_AbCdEfGhIjKlMnOp" + "x" * after
    encoded = base64.b64encode((before + secret).encode())
    for size in (1, 7, 100):
        redactor = Redactor([secret])
        shown = streamed(redactor, encoded + b" end", list(range(size, len(encoded), size)))
        assert re.fullmatch(rb"[A-Za-z0-9]{0,7}\[secret\]={0,2} end", shown), shown


def test_lines_of_a_secret_with_something_before_them() -> None:
    shown = Redactor([PEM]).text(lines_of(PEM))
    assert shown == "\n".join(["12:00:01 | [secret]"] * 7)
    assert Redactor([json.dumps({"key": PEM})]).text(PEM.splitlines()[2]) == "[secret]"


@pytest.mark.parametrize("name", SECRETS)
def test_a_text_that_was_cut(name: str) -> None:
    secret = SECRETS[name]
    redactor = Redactor([secret])
    for length in range(8, len(secret)):
        # Of a line, and of a part between escapes.
        known = re.split(r"\n|\\.", secret[:length])[-1].strip()
        if len(known) >= 8 and secret[:length].strip() == secret[:length]:
            assert not leaks(secret[:length], redactor.text("tail " + secret[:length])[5:]), length
            shown = (redactor.feed(b"tail " + secret[:length].encode()) + redactor.rest()).decode()
            assert not leaks(secret[:length], shown[5:])
    assert redactor.text(SECRETS["plain"]) == (MASK if name == "plain" else SECRETS["plain"])


def test_a_secret_in_several_writes() -> None:
    redactor = Redactor(["hf_AbCdEfGhIjKlMnOp"])
    assert redactor.feed(b"key: hf_") == b"key: "
    assert redactor.feed(b"AbCdEf") == b""
    assert redactor.feed(b"GhIjKlMnOp\n") == b"[secret]\n"
    assert redactor.rest() == b""


def test_what_cannot_continue_is_shown_at_once() -> None:
    redactor = Redactor(["hf_AbCdEfGhIjKlMnOp", PEM])
    assert redactor.feed(b"\r 50%|#####     | 5/10 [00:01<00:01]") == b"\r 50%|#####     | 5/10 [00:01<00:01]"
    assert redactor.feed(b"hf_AbCdEfGhIjKl") == b""
    assert redactor.feed(b"x") == b"hf_AbCdEfGhIjKlx"
    assert redactor.feed(b"-----") == b""
    assert redactor.feed(b"-") == b"-"
    assert redactor.feed(b"|") == b"-----|"


def test_nothing_but_secrets_changes() -> None:
    redactor = Redactor(list(SECRETS.values()))
    chance = random.Random(5)  # noqa: S311
    words = [
        b"step:1 - ",
        b"100%|#| ",
        b"\\n",
        b"\\u00e9",
        b"%41",
        b"\x1b[36m",
        b"\r",
        b"\n",
        b"\xff\xfe",
        "ö".encode(),
    ]
    for _round in range(300):
        data = b"".join(chance.choices(words, k=40))
        cuts = sorted(chance.choices(range(len(data)), k=6))
        assert streamed(redactor, data, cuts) == data


def test_a_flood_of_beginnings_is_not_kept() -> None:
    redactor = Redactor(["-" * 40 + "x"])
    shown = b"".join(redactor.feed(b"-" * 4096) for _round in range(20))
    assert shown == b"-" * (20 * 4096 - 40)
    assert redactor.rest() == b"[secret]"
    redactor = Redactor(["-" * 40])
    shown = b"".join(redactor.feed(b"-" * 4096) for _round in range(20)) + redactor.rest()
    assert set(shown.split(b"[secret]")) == {b""}
