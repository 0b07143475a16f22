# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's secrets: passed through a file to the trainer and its workers, and masked in everything that is written.

While the job lives they are in ``<shared_root>/jobs/.secrets/<submission_id>.json``, mode 0600: every node can read
them there, also one that joins later, and Ray never transports them.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

# Set for all processes of a job: the path of its archive.
ARCHIVE = "ARGUS_VERL_ARCHIVE"
# Beside the archives: the user of the nodes certainly owns this directory.
SECRETS = ".secrets"
MASK = "[secret]"
# Shorter values occur by chance in any text.
SHORTEST = 4
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
    """Whether a variable of this name usually holds a secret."""
    words = CAMEL_CASE.sub("_", name).replace("-", "_")
    return bool(SECRET_NAME.search(words)) and not HARMLESS_NAME.search(words)


def secrets_file(archive: Path) -> Path:
    return archive.parent / SECRETS / f"{archive.name}.json"


def store(archive: Path, values: Mapping[str, str]) -> None:
    """Write the values to a file that only the user of the nodes can read."""
    file = secrets_file(archive)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(dict(values), stream)


def load(archive: Path) -> dict[str, str]:
    """The job's secrets; empty if it has none, or if it has ended."""
    try:
        return dict(json.loads(secrets_file(archive).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def forget(archive: Path) -> None:
    secrets_file(archive).unlink(missing_ok=True)


class Redactor:
    """Masks secrets in a text, or in a stream that arrives in pieces."""

    def __init__(self, values: Iterable[str]) -> None:
        # The longest first: one may be part of another. Values of several lines are masked line by line as well.
        parts = {part for value in values for part in (value, *value.splitlines()) if len(part) >= SHORTEST}
        # As JSON escapes them: most evidence is JSON.
        parts |= {json.dumps(part)[1:-1] for part in parts}
        self.values = sorted((part.encode() for part in parts), key=len, reverse=True)
        self.pattern = re.compile(b"|".join(map(re.escape, self.values))) if self.values else None
        self.held = b""

    def text(self, text: str) -> str:
        if not self.pattern:
            return text
        # A stream may escape surrogates when it writes; they must not fail here.
        return self.pattern.sub(MASK.encode(), text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def feed(self, data: bytes) -> bytes:
        """The part of a stream that can be written now; the beginning of a secret at its end is held back."""
        if not self.pattern:
            return data
        data = self.held + data
        end = next(
            (
                start
                for start in range(max(0, len(data) - len(self.values[0]) + 1), len(data))
                if self._may_continue(data[start:])
            ),
            len(data),
        )
        for match in self.pattern.finditer(data):
            if match.start() < end < match.end():
                end = match.end()
        self.held = data[end:]
        return self.pattern.sub(MASK.encode(), data[:end])

    def _may_continue(self, tail: bytes) -> bool:
        return any(value.startswith(tail) and value != tail for value in self.values)

    def rest(self) -> bytes:
        held, self.held = self.held, b""
        return self.pattern.sub(MASK.encode(), held) if self.pattern else held


class RedactedStream:
    """A text stream that masks secrets in what is written to it."""

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream = stream
        self._redactor = redactor

    def write(self, text: str) -> int:
        self._stream.write(self._redactor.text(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def environment(variables: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """An environment without secrets: values that are secret by their name or their content are masked."""
    return {name: MASK if is_secret_name(name) else redactor.text(value) for name, value in sorted(variables.items())}


def enter_worker() -> None:
    """Ray's `worker_process_setup_hook`: every worker process of a job with secrets starts with this."""
    values = load(Path(os.environ[ARCHIVE]))
    os.environ.update(values)
    redactor = Redactor(values.values())
    sys.stdout = RedactedStream(sys.stdout, redactor)
    sys.stderr = RedactedStream(sys.stderr, redactor)
