# SPDX-License-Identifier: Apache-2.0
"""The manifest of a staged directory: where it comes from, and its files; and the result of staging it."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from ..io.reading import MIB, UnreadableError, is_integer, parse_json, read_text
from .files import file_sha256, files_below, parallel_map
from .options import StagingError, first_items
from .source_tree import is_ignored, is_plain_path

MANIFEST = "manifest.json"
# A manifest of 300,000 files has this size.
MAX_MANIFEST_BYTES = 64 * MIB
MAX_TEXT_CHARS, MAX_FILE_BYTES = 4096, 1 << 60
# The identity of a snapshot has about 80 characters for each overlay.
MAX_FACT_CHARS = 16 * MAX_TEXT_CHARS
KIND = re.compile(r"[a-z][a-z_]{0,31}")
SHA256 = re.compile(r"[0-9a-f]{64}")
# Facts that are shown, or become part of paths and of comparisons.
TEXTS = ("name", "source", "commit", "revision", "verl_version", "staged_on", "code_id", "identity", "endpoint")
MAX_ADDED_FILES = 10_000
# The values of a manifest besides its files, as JSON: which keys there are depends on the kind.
Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as it was staged."""

    size: int
    sha256: str
    mtime_ns: int

    @classmethod
    def from_json(cls, name: str, value: object) -> FileEntry:
        """The entry of a file with this name; a ValueError tells why it is none."""
        if not is_plain_path(name):
            raise ValueError(f"{name!r} is not a relative path of printable characters")
        if not isinstance(value, dict):
            raise ValueError(f"{name!r} has no size and sha256")
        size, sha256, mtime_ns = (value.get(key) for key in ("size", "sha256", "mtime_ns"))
        if not (is_integer(size) and is_integer(mtime_ns) and 0 <= size < MAX_FILE_BYTES and abs(mtime_ns) < 1 << 63):
            raise ValueError(f"{name!r} has no size and modification time")
        if not isinstance(sha256, str) or not SHA256.fullmatch(sha256):
            raise ValueError(f"{name!r} has no SHA-256 of 64 digits")
        return cls(size, sha256, mtime_ns)

    def to_json(self) -> Facts:
        return {"size": self.size, "mtime_ns": self.mtime_ns, "sha256": self.sha256}


@dataclass(frozen=True)
class Manifest:
    """A manifest; keys that this version does not know are kept.

    facts: all keys but "files", in the order of the file. files: the files by their relative paths.
    """

    facts: Facts = field(default_factory=dict)
    files: Mapping[str, FileEntry] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: object) -> Manifest:
        """The manifest of a JSON value; a ValueError tells why it is none."""
        if not isinstance(value, dict):
            raise ValueError("not a mapping")
        files = value.get("files", {})
        if not isinstance(files, dict):
            raise ValueError("files is not a mapping")
        facts = {key: fact for key, fact in value.items() if key != "files"}
        check_facts(facts)
        return cls(facts, {name: FileEntry.from_json(name, entry) for name, entry in files.items()})

    def text(self) -> str:
        """JSON that is easy to read, with one line for each file."""
        # The files come last, so that their empty value can be cut off.
        head = json.dumps({**self.facts, "files": {}}, indent=1, ensure_ascii=False)
        files = [f"  {json.dumps(name)}: {json.dumps(entry.to_json())}" for name, entry in self.files.items()]
        lines = "{\n" + ",\n".join(files) + "\n }" if files else "{}"
        return head.removesuffix("{}\n}") + lines + "\n}\n"

    def select(self, names: Iterable[str]) -> Facts:
        """The facts with these names that the manifest has."""
        return {name: self.facts[name] for name in names if name in self.facts}

    @property
    def kind(self) -> str:
        return str(self.facts.get("kind"))

    @property
    def source(self) -> str:
        return str(self.facts.get("source"))

    @property
    def commit(self) -> str | None:
        """The commit of a git repository or of a repository on the hub."""
        return self._text("commit")

    @property
    def revision(self) -> str | None:
        """The branch, tag or commit that the user gave for a repository on the hub."""
        return self._text("revision")

    @property
    def staged_at(self) -> str | None:
        return self._text("staged_at")

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.files.values())

    def texts(self, name: str) -> list[str]:
        """A fact that is a list of texts; empty if it is missing."""
        value = self.facts.get(name)
        return [str(item) for item in value] if isinstance(value, list) else []

    def mapping(self, name: str) -> Facts:
        """A fact that is a mapping; empty if it is missing."""
        value = self.facts.get(name)
        return value if isinstance(value, dict) else {}

    def _text(self, name: str) -> str | None:
        value = self.facts.get(name)
        return None if value is None else str(value)


def check_facts(facts: Facts) -> None:
    """Raises a ValueError that tells which fact cannot be used; jobs can write manifests."""
    if not isinstance(facts.get("kind"), str) or not KIND.fullmatch(str(facts["kind"])):
        raise ValueError("kind is not a kind")
    for name in TEXTS:
        fact = facts.get(name)
        # The identity of a dataset is a mapping.
        if fact is None or (name == "identity" and isinstance(fact, dict)):
            continue
        if not isinstance(fact, str) or len(fact) > MAX_FACT_CHARS or not fact.isprintable():
            raise ValueError(f"{name} is not a text of printable characters")
    rows = facts.get("rows", {})
    if not isinstance(rows, dict) or not all(is_integer(count) and count >= 0 for count in rows.values()):
        raise ValueError("rows does not count rows")
    # Times are compared with each other, which needs their offsets.
    if facts.get("staged_at") is not None and datetime.fromisoformat(str(facts["staged_at"])).tzinfo is None:
        raise ValueError("staged_at is not a time in UTC")


# How a file differs from its manifest, as the end of a sentence that begins with its name.
ADDED = "is not in the manifest"


def manifest_file(target: Path) -> Path:
    """The path of the manifest: inside a directory, but beside a link, because a link's destination is not ours."""
    return manifest_beside(target) if target.is_symlink() else target / MANIFEST


def manifest_beside(target: Path) -> Path:
    return target.with_name(f".{target.name.removeprefix('.')}.{MANIFEST}")


def read_manifest(target: Path) -> Manifest | None:
    """The manifest of a staged directory; None if nothing has its name."""
    # A dangling link occupies the name too.
    if not os.path.lexists(target):
        return None
    file = manifest_file(target)
    again = f"Remove {target} and stage it again."
    problem = f"exists, but was not staged: it has no {file.name}."
    unstaged = StagingError(target, problem, "Choose another name, or move it away.")
    if not target.is_symlink() and not target.is_dir():
        raise unstaged
    try:
        return Manifest.from_json(parse_json(read_text(file, MAX_MANIFEST_BYTES), file))
    except (FileNotFoundError, NotADirectoryError):
        raise unstaged from None
    except PermissionError as error:
        remedy = f"Give user id {os.geteuid()} permission to read it."
        raise StagingError(target, f"cannot be read ({error}).", remedy) from error
    except UnreadableError as error:
        raise StagingError(file, f"{error.why}.", again) from error
    except ValueError as error:
        raise StagingError(file, f"is not a manifest ({error}).", again) from error


def list_files(directory: Path, hashes: Mapping[str, str] | None = None) -> dict[str, FileEntry]:
    """The files below a directory by their relative paths, in order.

    hashes: the SHA-256 of every file that belongs to the directory, if the caller has them; otherwise all files are
    listed and read.
    """

    def entry(name: str) -> FileEntry:
        if not is_plain_path(name):
            problem = f"the name {name!r} has characters that cannot be shown, or more than {MAX_TEXT_CHARS} of them."
            raise StagingError(directory, problem, "Rename the file in its source.")
        status = os.stat(f"{directory}/{name}")
        sha256 = file_sha256(f"{directory}/{name}") if hashes is None else hashes[name]
        return FileEntry(status.st_size, sha256, status.st_mtime_ns)

    names = sorted(files_below(directory) if hashes is None else hashes)
    return dict(zip(names, parallel_map(entry, names), strict=True))


def problems(target: Path, manifest: Manifest, *, full: bool = False) -> dict[str, str]:
    """The files that no longer fit the manifest.

    A file with the same size and modification time counts as unchanged, as with rsync, unless `full`.
    """
    expected = manifest.files
    # Only in the hub's cache files are links.
    is_link = target.is_symlink()

    def problem(name: str) -> str | None:
        path, entry = f"{target}/{name}", expected[name]
        try:
            status = os.stat(path, follow_symlinks=is_link)
        except (FileNotFoundError, NotADirectoryError):
            return "is missing"
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file"
        if status.st_size != entry.size:
            return f"has {status.st_size} bytes, not {entry.size}"
        if (full or status.st_mtime_ns != entry.mtime_ns) and file_sha256(path) != entry.sha256:
            return "has other content"
        return None

    names = sorted(expected)
    # The destination of a link may contain other files, and files that imports create change nothing.
    on_disk = () if is_link else files_below(target, is_ignored)
    # A job may add any number of files; one is enough for a finding.
    extra = sorted(islice((name for name in on_disk if name not in expected and name != MANIFEST), MAX_ADDED_FILES))
    results = dict(zip(names, parallel_map(problem, names), strict=True))
    results |= dict.fromkeys(extra, ADDED)
    return {name: difference for name, difference in results.items() if difference is not None}


def notes(differences: Mapping[str, str]) -> list[str]:
    """A line for each file, its name and its problem; only the first ones if there are many."""
    return first_items(f"{name} {problem}" for name, problem in differences.items())


def protect(directory: Path) -> None:
    """Removes write permissions from a directory and all that is in it."""
    for parent, _directories, names in os.walk(directory):
        for name in names:
            os.chmod(f"{parent}/{name}", 0o444)
        os.chmod(parent, 0o555)  # noqa: S103 - every user of a node reads it


# The result of staging or removing something, and what is returned of it.

# Facts of a manifest that are returned if it has them.
FACTS = ("commit", "bytes", "source", "rows", "report", "verl_version")


class Status(StrEnum):
    """The result of staging or removing, or of its check mode."""

    STAGED = "staged"
    EXISTS = "exists"
    REPAIRED = "repaired"
    REMOVED = "removed"
    ABSENT = "absent"
    # Not done, because it may take long and the caller did not want to wait.
    DEFERRED = "deferred"
    # Not done, because of an error.
    REFUSED = "refused"


def item_name(item: object) -> str:
    """The name of an item for people, even if the item is malformed; or ""."""
    options = item if isinstance(item, Mapping) else {"name": item}
    return next((str(options[key]) for key in ("name", "code_id", "source") if options.get(key)), "")


@dataclass(frozen=True)
class Staged:
    """One thing under the shared root, and what was done.

    kind: what it is, for example "model". notes: what was repaired or deserves attention, one line each.
    """

    kind: str
    name: str
    path: str
    status: Status
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.status in (Status.STAGED, Status.REPAIRED, Status.REMOVED)


def as_json(staged: Staged, manifest: Manifest | None) -> dict[str, Any]:
    """A result as JSON. diff: what existed before and exists now, as Ansible shows it."""
    new, gone = (Status.STAGED, Status.ABSENT), (Status.REMOVED, Status.ABSENT)
    line = f"{staged.kind} {staged.path}\n"
    return {
        "name": staged.name,
        "changed": staged.changed,
        "path": staged.path,
        "status": staged.status.value,
        "notes": list(staged.notes),
        "diff": [{"before": "" if staged.status in new else line, "after": "" if staged.status in gone else line}],
        **(manifest.select(FACTS) if manifest else {}),
    }
