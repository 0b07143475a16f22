# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's secrets: passed through a file to the trainer and its workers, and masked in everything that is written.

While the job lives they are in ``<shared_root>/jobs/.secrets/<submission_id>.json``, mode 0600: every node can read
them there, also one that joins later, and Ray never transports them.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import re
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from .masking import MASK, SHORTEST, Redactor
from .reading import read_mapping

__all__ = ["MASK", "SHORTEST", "Redactor"]

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
    """Whether a variable of this name usually holds a secret."""
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


class RedactedOutput(io.BufferedIOBase):
    """The binary side of a standard stream, without secrets.

    print() writes each of its arguments on its own, so the end of a text may be the beginning of a secret. What can
    tell nothing about a secret is written when the stream is flushed.
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

    def flush(self) -> None:
        with self._lock:
            self._put(self._redactor.release())

    def finish(self) -> None:
        """Write what is held back at the end of the process."""
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
