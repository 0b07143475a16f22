# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's secrets: from a file of their own into the trainer and its workers, and out of everything that is written.

They lie in ``<shared_root>/jobs/.secrets/<submission_id>.json``, mode 0600, as long as the job lives: every node sees
them there, also one that joins later, and Ray never carries them.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

# Set for all processes of a job: where its archive is.
ARCHIVE = "ARGUS_VERL_ARCHIVE"
# Beside the archives, in the one directory that is the nodes' user's for certain.
SECRETS = ".secrets"
MASK = "[secret]"
# Shorter values are too common to be taken out of a text.
SHORTEST = 4
# Names of variables whose values never go into evidence, whoever has set them.
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIAL", re.IGNORECASE)
# Names that look like it, and hold a path or a setting.
HARMLESS_NAME = re.compile(r"_(PATH|FILE|DIR|MODE)$|^TOKENIZERS_", re.IGNORECASE)


def secrets_file(archive: Path) -> Path:
    return archive.parent / SECRETS / f"{archive.name}.json"


def store(archive: Path, values: Mapping[str, str]) -> None:
    """Write the values where only the nodes' user can read them."""
    file = secrets_file(archive)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(dict(values), stream)


def load(archive: Path) -> dict[str, str]:
    """The job's secrets; none when it has none, or when it has ended."""
    try:
        return dict(json.loads(secrets_file(archive).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def forget(archive: Path) -> None:
    secrets_file(archive).unlink(missing_ok=True)


class Redactor:
    """Takes secrets out of a text, or of a stream that comes in pieces."""

    def __init__(self, values: Iterable[str]) -> None:
        # The longest first: one may be a part of another. Line by line, for those of several lines.
        parts = {part for value in values for part in (value, *value.splitlines()) if len(part) >= SHORTEST}
        # As they stand in JSON, which evidence is made of.
        parts |= {json.dumps(part)[1:-1] for part in parts}
        self.values = sorted((part.encode() for part in parts), key=len, reverse=True)
        self.pattern = re.compile(b"|".join(map(re.escape, self.values))) if self.values else None
        self.held = b""

    def text(self, text: str) -> str:
        if not self.pattern:
            return text
        # What a stream can escape must not fail here before.
        return self.pattern.sub(MASK.encode(), text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def feed(self, data: bytes) -> bytes:
        """What can be written of a stream by now; the beginning of a secret at its end is held back."""
        if not self.pattern:
            return data
        data = self.held + data
        end = next(
            (
                start
                for start in range(max(0, len(data) - len(self.values[0]) + 1), len(data))
                if self._may_go_on(data[start:])
            ),
            len(data),
        )
        for match in self.pattern.finditer(data):
            if match.start() < end < match.end():
                end = match.end()
        self.held = data[end:]
        return self.pattern.sub(MASK.encode(), data[:end])

    def _may_go_on(self, tail: bytes) -> bool:
        return any(value.startswith(tail) and value != tail for value in self.values)

    def rest(self) -> bytes:
        held, self.held = self.held, b""
        return self.pattern.sub(MASK.encode(), held) if self.pattern else held


class RedactedStream:
    """A text stream that takes secrets out of what is written to it."""

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
    """An environment fit to be kept: values that are secret by their name or their content are masked."""
    return {
        name: MASK if SECRET_NAME.search(name) and not HARMLESS_NAME.search(name) else redactor.text(value)
        for name, value in sorted(variables.items())
    }


def enter_worker() -> None:
    """Ray's `worker_process_setup_hook`: every worker process of a job with secrets starts with this."""
    values = load(Path(os.environ[ARCHIVE]))
    os.environ.update(values)
    redactor = Redactor(values.values())
    sys.stdout = RedactedStream(sys.stdout, redactor)
    sys.stderr = RedactedStream(sys.stderr, redactor)
