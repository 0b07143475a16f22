# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's secrets: passed through a file to the trainer and its workers, and masked in everything that is written.

While the job lives they are in ``<shared_root>/jobs/.secrets/<submission_id>.json``, mode 0600: every node can read
them there, also one that joins later, and Ray never transports them.
"""

from __future__ import annotations

import atexit
import base64
import bisect
import contextlib
import html
import io
import json
import os
import re
import sys
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

from ..io.reading import read_mapping

MASK = "[secret]"
# Shorter values occur by chance in any text.
SHORTEST = 4
# From this length on, a secret whose end was cut off is masked as well.
CUT = 8
# Set for all processes of a job: the path of its archive.
ARCHIVE = "ARGUS_VERL_ARCHIVE"
# Beside the archives: the user of the nodes certainly owns this directory.
SECRETS = ".secrets"
# The login in a URL.
URL_LOGIN = re.compile(r"(://)[^\s/@]{0,256}:[^\s/@]{1,1024}@")
CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Names of variables that hold a secret: their values never go into evidence, and a JobSpec's env_vars may not set them.
SECRET_NAME = re.compile(
    r"""PASSW|PASSPHRASE|SECRET|CREDENTIAL|TOKEN(?!I[ZS])|WEBHOOK|KUBECONFIG|NETRC|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY
    |(^|_)(KEYS?|PAT|PWD|O?AUTH|CREDS?|COOKIES?|JWT|CERTS?|DSN|PEM|PSK|SAS|BEARER|MNEMONIC|CONN(ECTION)?_STR(ING)?)(_|$)
    |(^|_)(PASS|SESSION)$
    |(^|_)(DATABASE|DB|REDIS|VALKEY|MONGO(DB)?|POSTGRES(QL)?|PG|MYSQL|MARIADB|AMQP|RABBITMQ|BROKER|SQLALCHEMY|JDBC)_UR[IL]$
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Names that match, and hold only a path or a setting.
HARMLESS_NAME = re.compile(
    r"""_(PATH|FILE|DIR|SOCK|MODE|NAME|TYPE|SIZE|LENGTH|COUNT|ENABLED|DISABLED|TIMEOUT)$
    |^(OLD)?PWD$|^(TORCH_)?NCCL_|^TOKENIZERS_
    # Settings on the tokens of a model, and names of columns.
    |(^|_)((MAX|MIN|NUM|PER|PAD|EOS|BOS|UNK|STOP|SPECIAL|BATCHED|NEW|IMAGE|MASK)_)+TOKENS?(_IDS?|_LEN)?$
    |(^|_)TOKENS?_(PER|LEN|LEVEL|MEAN|IDS|BUDGET|LIMIT)(_|$)
    |(^|_)(PUBLIC|PRIMARY|SORT|CACHE|PROMPT|REWARD|REWARD_FN|RESPONSE|ANSWER|LABEL|INPUT|OUTPUT|IMAGE|VIDEO|MESSAGES)_KEY$
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_secret_name(name: str) -> bool:
    words = CAMEL_CASE.sub("_", name).replace("-", "_")
    return bool(SECRET_NAME.search(words)) and not HARMLESS_NAME.search(words)


def secrets_file(archive: Path) -> Path:
    return archive.parent / SECRETS / f"{archive.name}.json"


def store(archive: Path, values: Mapping[str, str]) -> None:
    """Write the values to a file that only the user of the nodes can read. Raises OSError."""
    file = secrets_file(archive)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    # A job may have left a file there that others can read.
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(dict(values), stream)


def load(archive: Path) -> dict[str, str]:
    """The job's secrets; empty if it has none, or if it has ended. Raises UnreadableError."""
    try:
        return read_mapping(secrets_file(archive))
    except FileNotFoundError:
        return {}


def forget(archive: Path) -> None:
    """Remove the job's secrets, if it has any. What a job has put in place of their directory has none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        secrets_file(archive).unlink()


def base64_forms(value: bytes) -> Iterator[bytes]:
    """The parts of base64 texts that are the same whatever is before the value: `user:password`, for example.

    The last character is another one if something follows the value.
    """
    for before in range(3):
        first, last = (0, 2, 3)[before], (before + len(value)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(bytes(before) + value)
            yield from (encoded[first:last], encoded[first:].rstrip(b"="))


def forms_of(value: str) -> Iterator[bytes]:
    """A value in all its forms. A value of several lines has forms for each line as well, as logs show it."""
    whole = value.strip()
    # JSON with a key of several lines has escapes for their ends.
    lines = [line.strip() for line in whole.replace("\\n", "\n").splitlines()]
    for text in {whole, *lines}:
        as_json = [json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)]
        as_html = [html.escape(text, quote=is_quoted) for is_quoted in (True, False)]
        shown = {
            text,
            *as_json,
            *(form.replace("/", r"\/") for form in as_json),
            *as_html,
            as_html[0].replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
            *(repr(text)[1:-1], ascii(text)[1:-1], repr(text.encode(errors="surrogatepass"))[2:-1]),
            *(quote(text, errors="replace") for quote in (urllib.parse.quote, urllib.parse.quote_plus)),
            urllib.parse.quote(text, safe="", errors="replace"),
        }
        # A stream would hold back the lines of the whole until the last one. Short lines are found only in the whole.
        if "\n" in text and min(map(len, lines)) >= SHORTEST:
            shown.remove(text)
        yield from (form.encode(errors="surrogatepass") for form in shown if len(form) >= SHORTEST)
    for text in dict.fromkeys((value, whole)):
        yield from (form for form in base64_forms(text.encode(errors="surrogatepass")) if len(form) >= CUT)


class Redactor:
    """Masks secrets in a text, or in a stream that arrives in pieces: from the left, the longest at each place.

    It knows the forms in which programs write values: as they are, JSON, repr, HTML, URLs, base64.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self.forms = sorted({form for value in values if len(value) >= SHORTEST for form in forms_of(value)})
        self.by_length = sorted(self.forms, key=len, reverse=True)
        self.longest = max(map(len, self.forms), default=0)
        self.first_bytes = {form[0] for form in self.forms}
        # The end of the stream that may be the beginning of a secret.
        self.held = b""

    def text(self, text: str) -> str:
        """The text without its secrets, also without the beginning of one at its end."""
        # A stream may escape surrogates when it writes; they must not fail here.
        return self._whole(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def feed(self, data: bytes) -> bytes:
        """The part of a stream that can be written now; the beginning of a secret at its end is held back."""
        data = self.held + data
        end = self._open_at(data)
        self.held = data[end:]
        return self._masked(data[:end])

    def rest(self) -> bytes:
        """What is held back at the end of the stream; a secret that was cut off is masked."""
        data, self.held = self.held, b""
        return self._whole(data)

    def _whole(self, data: bytes) -> bytes:
        end = self._open_at(data)
        is_cut_off = len(data) - end >= CUT
        return self._masked(data[:end]) + (MASK.encode() if is_cut_off else self._masked(data[end:]))

    def _masked(self, data: bytes) -> bytes:
        pattern = self._pattern(data)
        return pattern.sub(MASK.encode(), data) if pattern else data

    def _pattern(self, data: bytes) -> re.Pattern[bytes] | None:
        """An expression for the secrets in the data; usually there are none, which this finds faster."""
        present = [re.escape(form) for form in self.by_length if form in data]
        return re.compile(b"|".join(present)) if present else None

    def _open_at(self, data: bytes) -> int:
        """Where a secret may begin whose end the data does not have; the end of the data if nowhere."""
        places = range(max(0, len(data) - self.longest + 1), len(data))
        begins = (at for at in places if data[at] in self.first_bytes and self._begins_one(data[at:]))
        place = next(begins, len(data))
        if place < len(data) and (pattern := self._pattern(data)):
            # One that is there already comes first, and whole.
            place = next((m.start() for m in pattern.finditer(data) if m.start() < place < m.end()), place)
        return place

    def _begins_one(self, text: bytes) -> bool:
        place = bisect.bisect_right(self.forms, text)
        return place < len(self.forms) and self.forms[place].startswith(text)


class RedactedOutput(io.BufferedIOBase):
    """The binary side of a standard stream, without secrets.

    print() writes each of its arguments on its own, so the end of a text may be the beginning of a secret.
    """

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        # Without a reference, Python would close it.
        self._stream = stream
        self._redactor = redactor
        # Data loaders and loggers write from threads of their own.
        self._lock = threading.RLock()
        self.raw = self

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        content = bytes(data)
        with self._lock:
            self._put(self._redactor.feed(content))
        return len(content)

    def finish(self) -> None:
        with self._lock, contextlib.suppress(ValueError, OSError):
            self._put(self._redactor.rest())

    def _put(self, data: bytes) -> None:
        if data:
            self._stream.flush()
            self._stream.buffer.write(data)
            self._stream.buffer.flush()


def environment(variables: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """An environment without secrets: values that are secret by their name or their content are masked."""
    return {
        name: MASK if is_secret_name(name) else URL_LOGIN.sub(rf"\1{MASK}@", redactor.text(value))
        for name, value in sorted(variables.items())
    }


def enter_worker() -> None:
    """Give a worker process the job's secrets, and mask them in its output; nothing for a job without secrets.

    What native code writes to the file descriptors is not masked: a pipe in their place would lose the last words of a
    process that crashes, by which its failure is recognised.
    """
    values = load(Path(os.environ[ARCHIVE]))
    if not values:
        return
    os.environ.update(values)
    for name in ("stdout", "stderr"):
        stream: TextIO = getattr(sys, name)
        output = RedactedOutput(stream, Redactor(values.values()))
        text = io.TextIOWrapper(output, stream.encoding, stream.errors, write_through=True)  # type: ignore[type-var]
        atexit.register(output.finish)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
