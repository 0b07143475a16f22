# SPDX-License-Identifier: Apache-2.0
"""Passes a job's secrets through a file to the trainer and its workers, and masks them in all output.

While the job lives they are in ``<shared_root>/jobs/.secrets/<submission_id>.json``, mode 0600: every node can read
them there, also one that joins later, and Ray never transports them.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
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
MIN_SECRET_CHARS = 4
# From this length on, a line of a secret is masked by itself, and also a secret whose end was cut off.
MIN_PART_CHARS = 8
# The number of bytes held back of a line without an end.
MAX_HELD_BYTES = 1 << 16
# Set for all processes of a job: the path of its archive.
ARCHIVE = "ARGUS_VERL_ARCHIVE"
# The directory beside the archives, which the user of the nodes certainly owns.
SECRETS = ".secrets"
# The login in a URL.
URL_LOGIN = re.compile(r"(://)[^\s/@]{0,256}:[^\s/@]{1,1024}@")
# The login in an HTTP header, whose base64 depends on the name beside the secret.
HTTP_LOGIN = re.compile(rb"(uthorization\W{1,8}[Bb]asic +)[\w+/-]+=*")
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
# Names that match, but hold only a path or a setting.
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


def lines_of(value: str) -> list[str]:
    """The parts of a value that are masked where it is written unchanged: each long line by itself."""
    lines = [line.strip() for line in value.strip().splitlines()]
    return [line for line in lines if len(line) >= (MIN_SECRET_CHARS if len(lines) == 1 else MIN_PART_CHARS)]


def forms_of(value: str) -> Iterator[str]:
    """A value in the forms in which programs write it in a line."""
    whole, quote, quote_plus = value.strip(), urllib.parse.quote, urllib.parse.quote_plus
    # JSON with a key of several lines has escapes for their ends.
    lines = [*lines_of(value), *lines_of(value.replace("\\n", "\n"))]
    yield from lines
    for text in {whole, *lines}:
        data = text.encode(errors="surrogatepass")
        yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
        yield from (quote(data), quote(data, safe=""), quote_plus(data))
        # The last character is another one if something follows, such as the end of a line.
        whole_characters = len(data) * 4 // 3
        yield from (e(data)[:whole_characters].decode() for e in (base64.b64encode, base64.urlsafe_b64encode))


class Redactor:
    """Masks secrets in a text, or in the lines of a stream that arrives in pieces: the longest first.

    It knows the forms in which programs write values: as they are, JSON, repr, URLs, base64.
    """

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form.encode(errors="surrogatepass") for value in values if lines_of(value) for form in forms_of(value)}
        self.forms = sorted(forms, key=len, reverse=True)
        self.longest = max(map(len, self.forms), default=0)
        # The end of the stream: a line without an end.
        self.held = b""

    def text(self, text: str) -> str:
        """The text without its secrets, also without the beginning of one at its end."""
        # A stream may escape surrogates when it writes; they must not fail here.
        return self._whole(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def feed(self, data: bytes) -> bytes:
        """The lines that are complete now, and the beginning of an overlong line that holds no part of a secret."""
        if not self.forms:
            return data
        data = self.held + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > MAX_HELD_BYTES + self.longest:
            # A secret that begins before this place has its end in the data.
            place = len(data) - self.longest
            pattern = self._pattern(data)
            matches = pattern.finditer(data) if pattern else ()
            end = next((match.end() for match in matches if match.start() < place < match.end()), place)
        self.held = data[end:]
        return self._mask(data[:end])

    def rest(self) -> bytes:
        """The rest at the end of the stream; a secret that was cut off is masked."""
        data, self.held = self.held, b""
        return self._whole(data)

    def _whole(self, data: bytes) -> bytes:
        data = self._mask(data)
        first = max(0, len(data) - self.longest)
        begun = [form for form in self.forms if data.find(form[:MIN_PART_CHARS], first) >= 0]
        places = range(first, len(data) - MIN_PART_CHARS + 1) if begun else ()
        cut = next((at for at in places if any(form.startswith(data[at:]) for form in begun)), None)
        return data if cut is None else data[:cut] + MASK.encode()

    def _mask(self, data: bytes) -> bytes:
        data = HTTP_LOGIN.sub(rb"\1" + MASK.encode(), data) if self.forms else data
        pattern = self._pattern(data)
        return pattern.sub(MASK.encode(), data) if pattern else data

    def _pattern(self, data: bytes) -> re.Pattern[bytes] | None:
        """An expression for the secrets in the data; usually there are none, which this finds faster."""
        present = [re.escape(form) for form in self.forms if form in data]
        return re.compile(b"|".join(present)) if present else None


class RedactedOutput(io.BufferedIOBase):
    """The binary side of a standard stream, without secrets, line by line."""

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
