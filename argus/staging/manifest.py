# SPDX-License-Identifier: Apache-2.0
"""The manifest of a staged item, with the size and hash of each file; and the result of staging or removing an item."""

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
from .source_tree import MAX_PATH_CHARS, is_ignored, is_plain_path

MANIFEST = "manifest.json"
# A manifest of 300,000 files has this size.
MAX_MANIFEST_BYTES = 64 * MIB
MAX_FILE_BYTES = 1 << 60
# The identity of a snapshot has about 80 characters for each overlay.
MAX_FACT_CHARS = 16 * MAX_PATH_CHARS
KIND_PATTERN = re.compile(r"[a-z][a-z_]{0,31}")
SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")
# Facts that are texts: they are shown, or become part of paths and of comparisons.
TEXT_FACTS = ("name", "source", "commit", "revision", "verl_version", "staged_on", "code_id", "identity", "endpoint")
# The problem of a file that exists but is missing in the manifest; in messages, it follows the name of the file.
NOT_IN_MANIFEST = "is not in the manifest"
MAX_UNLISTED_FILES = 10_000
# The values of a manifest besides its files, as JSON. The kind of the item determines the keys.
Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as it was staged."""

    size: int
    sha256: str
    mtime_ns: int

    @classmethod
    def from_json(cls, name: str, value: object) -> FileEntry:
        """The entry of the file with this name. Raises ValueError, with the reason, if the value is malformed."""
        if not is_plain_path(name):
            raise ValueError(f"{name!r} is not a relative path of printable characters")
        if not isinstance(value, dict):
            raise ValueError(f"{name!r} has no size and sha256")
        size, sha256, mtime_ns = (value.get(key) for key in ("size", "sha256", "mtime_ns"))
        if not (is_integer(size) and is_integer(mtime_ns) and 0 <= size < MAX_FILE_BYTES and abs(mtime_ns) < 1 << 63):
            raise ValueError(f"{name!r} has no size and modification time")
        if not isinstance(sha256, str) or not SHA256_PATTERN.fullmatch(sha256):
            raise ValueError(f"{name!r} has no SHA-256 of 64 digits")
        return cls(size, sha256, mtime_ns)

    def to_json(self) -> dict[str, int | str]:
        return {"size": self.size, "mtime_ns": self.mtime_ns, "sha256": self.sha256}


@dataclass(frozen=True)
class Manifest:
    """A manifest. Keys that this version does not know are kept."""

    facts: Facts = field(default_factory=dict)  # all keys of the JSON but "files", in its order
    files: Mapping[str, FileEntry] = field(default_factory=dict)  # by relative path

    @classmethod
    def from_json(cls, value: object) -> Manifest:
        """The manifest in a JSON value. Raises ValueError, with the reason, if the value is not a manifest."""
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
        # The files come last, so that their empty value can be cut off and replaced.
        head = json.dumps({**self.facts, "files": {}}, indent=1, ensure_ascii=False)
        files = [f"  {json.dumps(name)}: {json.dumps(entry.to_json())}" for name, entry in self.files.items()]
        lines = "{\n" + ",\n".join(files) + "\n }" if files else "{}"
        return head.removesuffix("{}\n}") + lines + "\n}\n"

    def select(self, names: Iterable[str]) -> Facts:
        """Those of the named facts that the manifest has."""
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
    def total_bytes(self) -> int:
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
    """Raises ValueError with the first fact that is malformed. Manifests are not trusted: jobs can write them."""
    if not isinstance(facts.get("kind"), str) or not KIND_PATTERN.fullmatch(str(facts["kind"])):
        raise ValueError("kind is not a word of lowercase letters")
    for name in TEXT_FACTS:
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


def manifest_path(target: Path) -> Path:
    """The path of the manifest: inside a directory, but beside a link, because a link's destination is not ours."""
    return link_manifest_path(target) if target.is_symlink() else target / MANIFEST


def link_manifest_path(link: Path) -> Path:
    return link.with_name(f".{link.name.removeprefix('.')}.{MANIFEST}")


def read_manifest(target: Path) -> Manifest | None:
    """The manifest of a staged item; None if nothing exists at its path. Raises StagingError for anything else."""
    # A dangling link occupies the name too.
    if not os.path.lexists(target):
        return None
    path = manifest_path(target)
    again = f"Remove {target} and stage it again."
    problem = f"exists, but was not staged: it has no {path.name}."
    unstaged = StagingError(target, problem, "Choose another name, or move it away.")
    if not target.is_symlink() and not target.is_dir():
        raise unstaged
    try:
        return Manifest.from_json(parse_json(read_text(path, MAX_MANIFEST_BYTES), path))
    except (FileNotFoundError, NotADirectoryError):
        raise unstaged from None
    except PermissionError as error:
        remedy = f"Give user id {os.geteuid()} permission to read it."
        raise StagingError(target, f"cannot be read ({error}).", remedy) from error
    except UnreadableError as error:
        raise StagingError(path, f"{error.why}.", again) from error
    except ValueError as error:
        raise StagingError(path, f"is not a manifest ({error}).", again) from error


def list_files(directory: Path, hashes: Mapping[str, str] | None = None) -> dict[str, FileEntry]:
    """The entries of the files below a directory by relative path, in order.

    hashes: the SHA-256 of every file that belongs to the item, by relative path; None to list and read all files.
    """

    def entry(name: str) -> FileEntry:
        if not is_plain_path(name):
            problem = f"the name {name!r} has characters that cannot be shown, or more than {MAX_PATH_CHARS} of them."
            raise StagingError(directory, problem, "Rename the file in its source.")
        status = os.stat(f"{directory}/{name}")
        sha256 = file_sha256(f"{directory}/{name}") if hashes is None else hashes[name]
        return FileEntry(status.st_size, sha256, status.st_mtime_ns)

    names = sorted(files_below(directory) if hashes is None else hashes)
    return dict(zip(names, parallel_map(entry, names), strict=True))


def file_problems(target: Path, manifest: Manifest, *, full: bool = False) -> dict[str, str]:
    """The files that no longer fit the manifest, each with how it differs.

    full: read all files; otherwise those with the same size and modification time count as unchanged, as with rsync.
    """
    expected = manifest.files
    # A link may lead into the cache of the hub, in which the files are links; elsewhere, a link is a problem.
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
    # The destination of a link may contain other files. Files that imports create are ignored: they change nothing.
    on_disk = () if is_link else files_below(target, is_ignored)
    # A job may add any number of files; one is enough for a finding.
    extra = sorted(islice((name for name in on_disk if name not in expected and name != MANIFEST), MAX_UNLISTED_FILES))
    results = dict(zip(names, parallel_map(problem, names), strict=True))
    results |= dict.fromkeys(extra, NOT_IN_MANIFEST)
    return {name: text for name, text in results.items() if text is not None}


def problem_lines(problems: Mapping[str, str]) -> list[str]:
    """A line for each file with its name and its problem; only the first ones if there are many."""
    return first_items(f"{name} {problem}" for name, problem in problems.items())


# The result of staging or removing an item.

# Its keys that come from the manifest.
RETURNED_FACTS = ("commit", "bytes", "source", "rows", "report", "verl_version")


class Status(StrEnum):
    """What was done to an item; in check mode, what would be done."""

    STAGED = "staged"
    EXISTS = "exists"
    REPAIRED = "repaired"
    REMOVED = "removed"
    ABSENT = "absent"  # there was nothing to remove
    DEFERRED = "deferred"  # not done, because it may take long and the caller did not want to wait
    REFUSED = "refused"  # not done, because of an error


def item_name(item: object) -> str:
    """The name of an item from an inventory, for messages, even if the item is malformed; "" if it has none."""
    options = item if isinstance(item, Mapping) else {"name": item}
    return next((str(options[key]) for key in ("name", "code_id", "source") if options.get(key)), "")


@dataclass(frozen=True)
class StageResult:
    """What was done to one item under the shared root."""

    kind: str  # for example "model"
    name: str
    path: str
    status: Status
    notes: tuple[str, ...] = ()  # the files that were repaired, each with its problem

    @property
    def changed(self) -> bool:
        return self.status in (Status.STAGED, Status.REPAIRED, Status.REMOVED)


def result_as_json(result: StageResult, manifest: Manifest | None) -> dict[str, Any]:
    """The result for Ansible, with a diff of what existed before and exists now. manifest: of an item that exists."""
    absent_before, absent_after = (Status.STAGED, Status.ABSENT), (Status.REMOVED, Status.ABSENT)
    line = f"{result.kind} {result.path}\n"
    before = "" if result.status in absent_before else line
    after = "" if result.status in absent_after else line
    return {
        "name": result.name,
        "changed": result.changed,
        "path": result.path,
        "status": result.status.value,
        "notes": list(result.notes),
        "diff": [{"before": before, "after": after}],
        **(manifest.select(RETURNED_FACTS) if manifest else {}),
    }
