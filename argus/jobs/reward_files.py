# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The code of a job's reward function: copied into the archive, and compared when the job is submitted again.

Only imports that the source names are found, and nothing is imported. Other imports are those of the image.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ..common.findings import WARNING, Finding, about
from ..common.shared_root import USER_CODE, under_root
from ..jobspec.spec import JobSpec
from ..launcher.archive import Archive
from ..launcher.reading import MIB, UnreadableError, read_text

RECORD = "config/reward.json"
COPIES = "config/reward"
MAX_FILES, FILE_BYTES, ALL_BYTES = 200, MIB, 4 * MIB
# More names would not help to find the difference.
MAX_NAMES = 5


@dataclass(frozen=True)
class RewardRecord:
    """What `config/reward.json` holds. All paths are relative to the shared root.

    files: the SHA-256 of each file.
    left_out: the reason for each file that was not copied.
    """

    entry: str = ""
    function: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RewardFiles:
    """The files of a reward function, as text, by their paths relative to the shared root."""

    record: RewardRecord
    texts: Mapping[str, str]

    def write(self, archive: Archive) -> None:
        for name, text in self.texts.items():
            archive.write_text(f"{COPIES}/{name}", text)
        archive.write_json(RECORD, self.record)


def reward_files(spec: JobSpec, python_path: str) -> RewardFiles | None:
    """The file of the reward function, and all of user/code that it imports; None without a reward function.

    python_path: PYTHONPATH of the job.
    """
    reward = spec.inputs.reward
    if reward is None:
        return None
    root, home = Path(spec.shared_root), f"{spec.shared_root}/{USER_CODE}"
    searched = [path for path in python_path.split(":") if path == home or under_root(path, home)]
    search = Search(root, [str(PurePosixPath(path).relative_to(root)) for path in searched])
    entry = str(PurePosixPath(reward.file).relative_to(root))
    # Importing a module runs the packages above it first.
    search.follow([*search.modules(USER_CODE, reward.module.split(".") if reward.module else []), entry])
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in search.texts.items()}
    return RewardFiles(RewardRecord(entry, reward.name, hashes, search.left_out), search.texts)


class Search:
    """The search for the files that a file imports from user/code, and those in turn."""

    def __init__(self, root: Path, searched: Sequence[str]) -> None:
        """searched: the directories of user/code on PYTHONPATH, relative to the shared root."""
        self.root = root
        self.searched = searched
        self.texts: dict[str, str] = {}
        self.left_out: dict[str, str] = {}

    def follow(self, names: Sequence[str]) -> None:
        """Read these files and all that they import, until a limit is reached."""
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in self.texts or name in self.left_out:
                continue
            if len(self.texts) + len(self.left_out) >= MAX_FILES:
                self.left_out["…"] = f"the reward function has more than {MAX_FILES} files"
                return
            text = self.read(name)
            if text is not None:
                self.texts[name] = text
                waiting += self.imported(name, text)

    def read(self, name: str) -> str | None:
        try:
            real = (self.root / name).resolve()
            real.relative_to(self.root.resolve())
            text = read_text(real, FILE_BYTES)
        except (OSError, ValueError, RuntimeError, UnreadableError) as error:
            self.left_out[name] = error.why if isinstance(error, UnreadableError) else str(error)
            return None
        if sum(map(len, self.texts.values())) + len(text) > ALL_BYTES:
            self.left_out[name] = f"all files together have more than {ALL_BYTES // MIB} MiB"
            return None
        return text

    def imported(self, name: str, text: str) -> Iterator[str]:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self.absolute(alias.name.split("."))
            elif isinstance(node, ast.ImportFrom):
                above = node.module.split(".") if node.module else []
                for alias in node.names:
                    yield from self.from_import(name, node.level, [*above, alias.name])

    def from_import(self, name: str, level: int, parts: list[str]) -> Iterator[str]:
        if not level:
            yield from self.absolute(parts)
        elif level < len(PurePosixPath(name).parents):
            package = PurePosixPath(name).parents[level - 1]
            if str(package) == USER_CODE or under_root(str(package), USER_CODE):
                yield from self.modules(str(package), parts)

    def absolute(self, parts: list[str]) -> list[str]:
        return next((found for base in self.searched if (found := self.modules(base, parts))), [])

    def modules(self, base: str, parts: Sequence[str]) -> list[str]:
        """The files that are run to import a dotted name below a directory. Its last part may be no module."""
        found = []
        for part in parts:
            if self.has(f"{base}/{part}/__init__.py"):
                found.append(f"{base}/{part}/__init__.py")
            elif self.has(f"{base}/{part}.py"):
                return [*found, f"{base}/{part}.py"]
            base = f"{base}/{part}"
        return found

    def has(self, name: str) -> bool:
        try:
            return (self.root / name).is_file()
        except (OSError, ValueError):
            return False


def changes(archive: Archive, now: RewardFiles | None) -> list[Finding]:
    """Warnings about files that differ from those with which an earlier job was submitted.

    Jobs can write to archives: of what the archive names, nothing is opened.
    """
    if now is None:
        return []
    try:
        before = archive.typed(RECORD, RewardRecord)
    except UnreadableError as error:
        what = f"cannot be compared with the reward function of {archive.submission_id}: {error}"
        return [_changed(what)]
    if before is None or before.entry != now.record.entry:
        # It was submitted before there were copies, or another reward function is asked for.
        return []
    hashes = now.record.files
    groups = (
        ("changed", [name for name in before.files if name in hashes and hashes[name] != before.files[name]]),
        ("gone or no longer imported", [name for name in before.files if name not in hashes]),
        ("new", [name for name in hashes if name not in before.files]),
    )
    parts = [f"{kind}: {shortened(sorted(names))}" for kind, names in groups if names]
    if not parts:
        return []
    copies = f"the files of {archive.submission_id} are in {archive.path}/{COPIES}"
    return [_changed(f"is not the same as in {archive.submission_id} ({'; '.join(parts)}); {copies}")]


def shortened(names: Sequence[str]) -> str:
    shown = ", ".join(name if len(name) <= 100 else f"{name[:100]}…" for name in names[:MAX_NAMES])
    return shown + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")


def _changed(what: str) -> Finding:
    todo = "nothing, if that is what you want: the present files are used"
    return about("reward_fn_path", what, todo, WARNING)
