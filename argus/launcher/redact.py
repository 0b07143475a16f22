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
import json
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from .masking import MASK, SHORTEST, Redactor
from .reading import DIRECTORY_FLAGS, JSON_BYTES, UnreadableError, open_regular

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


@contextlib.contextmanager
def directory_of(archive: Path) -> Iterator[int]:
    """A descriptor of the directory of secrets. Raises FileNotFoundError, and NotADirectoryError also for a link."""
    directory = os.open(secrets_file(archive).parent, DIRECTORY_FLAGS)
    try:
        yield directory
    finally:
        os.close(directory)


@contextlib.contextmanager
def private_directory(archive: Path) -> Iterator[int]:
    """The same, if no other user can enter it. Raises FileNotFoundError, and UnreadableError for anything else."""
    wrong = UnreadableError(
        secrets_file(archive).parent,
        f"is not a directory of user id {os.geteuid()} with mode 0700, so it holds no secrets. Move it away",
    )
    try:
        with directory_of(archive) as directory:
            found = os.fstat(directory)
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise wrong
            yield directory
    except NotADirectoryError as error:
        raise wrong from error


def store(archive: Path, values: Mapping[str, str]) -> None:
    """Write the values to a file that only the user of the nodes can read. Raises UnreadableError or OSError."""
    file = secrets_file(archive)
    with contextlib.suppress(FileExistsError):
        file.parent.mkdir(mode=0o700)
    with private_directory(archive) as directory:
        # A job may have left a file there that others can read, or that has another name as well.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file.name, dir_fd=directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(file.name, flags, 0o600, dir_fd=directory)
        except FileExistsError as error:
            raise UnreadableError(file, "was created by another process at the same time") from error
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(dict(values), stream)


def load(archive: Path) -> dict[str, str]:
    """The job's secrets; empty if it has none, or if it has ended. Raises UnreadableError or OSError."""
    file = secrets_file(archive)
    try:
        with private_directory(archive) as directory, open_regular(directory, file.name) as stream:
            found = os.fstat(stream.fileno())
            if found.st_uid != os.geteuid() or found.st_nlink > 1:
                raise UnreadableError(file, "is not the file that submit has written")
            return dict(json.loads(stream.read(JSON_BYTES)))
    except FileNotFoundError:
        return {}


def forget(archive: Path) -> None:
    """Remove the job's secrets, if it has any. What a job has put in place of their directory has none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), directory_of(archive) as directory:
        os.unlink(secrets_file(archive).name, dir_fd=directory)


class RedactedStream:
    """A stream of text that masks secrets in what is written to it, also to its `buffer`.

    print() writes each of its arguments on its own, so the end of a text may be the beginning of a secret. What can
    tell nothing about a secret is written when the stream is flushed.
    """

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream = stream
        self._redactor = redactor
        self._binary = getattr(stream, "buffer", None)
        # Data loaders and loggers write from threads of their own.
        self._lock = threading.RLock()
        self.buffer = RedactedBuffer(self)

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self.write_bytes(text.encode(encoding, getattr(self._stream, "errors", None) or "surrogatepass"))
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        with self._lock:
            self._put(self._redactor.feed(data))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._lock:
            self._put(self._redactor.release())
            self._stream.flush()

    def finish(self) -> None:
        """Write what is held back at the end of the process."""
        with self._lock, contextlib.suppress(ValueError, OSError):
            self._put(self._redactor.rest())
            self._stream.flush()

    def _put(self, data: bytes) -> None:
        if not data:
            return
        if self._binary is None:
            self._stream.write(data.decode(errors="surrogatepass"))
        else:
            self._stream.flush()
            self._binary.write(data)
            self._binary.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class RedactedBuffer:
    """The binary side of a RedactedStream."""

    def __init__(self, stream: RedactedStream) -> None:
        self._redacted = stream

    def write(self, data: bytes | bytearray | memoryview) -> int:
        content = bytes(data)
        self._redacted.write_bytes(content)
        return len(content)

    def writelines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._redacted.flush()

    @property
    def raw(self) -> RedactedBuffer:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._redacted._binary, name)


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
        stream = RedactedStream(getattr(sys, name), Redactor(values.values()))
        atexit.register(stream.finish)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
