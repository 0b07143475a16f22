# SPDX-License-Identifier: Apache-2.0
"""Collects the users' files of a job: its reward function, and files that settings name, such as tools and agent loops.

They are copied into the archive, and compared when the job is submitted again.

A Python file brings the files that it imports from user/code, and a YAML or JSON file those of the classes that it
names. The files are only parsed, never imported. What they import from elsewhere is part of the image.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ..archive.archive import Archive
from ..common.findings import WARNING, Finding, about
from ..common.shared_root import USER_CODE_DIR, is_under_root
from ..io.reading import MIB, UnreadableError, read_text
from ..jobspec.spec import JobSpec

FILES_RECORD = "config/files.json"
COPIES_DIRECTORY = "config/files"
MAX_FILES, MAX_FILE_BYTES, MAX_TOTAL_BYTES = 200, MIB, 4 * MIB
# The number of names in a finding; more would not help to find the difference.
MAX_NAMES = 5
# A name in a file of settings that may be a class of users' code, such as package.module.Class.
DOTTED_NAME = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
SETTINGS_SUFFIXES, MAX_DOTTED = (".yaml", ".yml", ".json"), 100


@dataclass(frozen=True)
class FilesRecord:
    """The content of `config/files.json`. All paths are relative to the shared root."""

    # The paths of the files that the JobSpec names, by the key of the JobSpec or of the trainer that names them.
    entries: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobFiles:
    record: FilesRecord = field(default_factory=FilesRecord)
    texts: Mapping[str, str] = field(default_factory=dict)

    def write(self, archive: Archive) -> None:
        for name, text in self.texts.items():
            archive.write_text(f"{COPIES_DIRECTORY}/{name}", text)
        if self.record.entries:
            archive.write_json(FILES_RECORD, self.record)


def collect_job_files(spec: JobSpec, setting_paths: Mapping[str, str], python_path: str) -> JobFiles:
    """Collect the files that a JobSpec names, and all files of user/code that they import.

    setting_paths: the paths in settings of the trainer, by their keys. python_path: PYTHONPATH of the job.
    """
    root, user_code, reward = Path(spec.shared_root), f"{spec.shared_root}/{USER_CODE_DIR}", spec.inputs.reward
    searched = [path for path in python_path.split(":") if path == user_code or is_under_root(path, user_code)]
    search = ImportSearch(root, [str(PurePosixPath(path).relative_to(root)) for path in searched])
    paths = {**setting_paths, **({"reward_fn_path": reward.file} if reward else {})}
    entries = {
        key: str(PurePosixPath(path).relative_to(root))
        for key, path in paths.items()
        # Directories, such as a tokenizer, are recorded by their path only.
        if is_under_root(path, spec.shared_root)
        and (key == "reward_fn_path" or not (reward and path == reward.file))
        and not Path(path).is_dir()
    }
    # Importing a module runs the packages above it first.
    module = search.modules(USER_CODE_DIR, reward.module.split(".")) if reward and reward.module else []
    search.follow([*module, *entries.values()])
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in search.texts.items()}
    return JobFiles(FilesRecord(entries, hashes, search.left_out), search.texts)


class ImportSearch:
    """Finds the files that files import from user/code, and those that these import in turn.

    All names of files are paths relative to the shared root.
    """

    def __init__(self, root: Path, searched: Sequence[str]) -> None:
        """root: the shared root. searched: the directories of user/code on PYTHONPATH, relative to it."""
        self.root = root
        self.searched = searched
        # The text of each file that was read, and why another file was not.
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
                self.left_out["…"] = f"the job has more than {MAX_FILES} files"
                return
            text = self.read(name)
            if text is not None:
                self.texts[name] = text
                waiting += self.imported_files(name, text)

    def read(self, name: str) -> str | None:
        """The text of a file, or None with the reason in `left_out`."""
        try:
            real = (self.root / name).resolve()
            real.relative_to(self.root.resolve())
            text = read_text(real, MAX_FILE_BYTES)
        except (OSError, ValueError, RuntimeError, UnreadableError) as error:
            self.left_out[name] = error.why if isinstance(error, UnreadableError) else str(error)
            return None
        if sum(map(len, self.texts.values())) + len(text) > MAX_TOTAL_BYTES:
            self.left_out[name] = f"all files together have more than {MAX_TOTAL_BYTES // MIB} MiB"
            return None
        return text

    def imported_files(self, name: str, text: str) -> Iterator[str]:
        if name.endswith(SETTINGS_SUFFIXES):
            for dotted in list(dict.fromkeys(DOTTED_NAME.findall(text)))[:MAX_DOTTED]:
                yield from self.absolute(dotted.split("."))
        if not name.endswith(".py"):
            return
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
        """The files of `from ..a import b` in a file. level: the number of dots. parts: a and b."""
        if not level:
            yield from self.absolute(parts)
        elif level < len(PurePosixPath(name).parents):
            package = PurePosixPath(name).parents[level - 1]
            if str(package) == USER_CODE_DIR or is_under_root(str(package), USER_CODE_DIR):
                yield from self.modules(str(package), parts)

    def absolute(self, parts: list[str]) -> list[str]:
        """The files of `import a.b`, from the first directory on PYTHONPATH that has any."""
        return next((files for base in self.searched if (files := self.modules(base, parts))), [])

    def modules(self, base: str, parts: Sequence[str]) -> list[str]:
        """The files that Python runs to import a dotted name below a directory. The last part may be a class."""
        files = []
        for part in parts:
            if self.has(f"{base}/{part}/__init__.py"):
                files.append(f"{base}/{part}/__init__.py")
            elif self.has(f"{base}/{part}.py"):
                return [*files, f"{base}/{part}.py"]
            base = f"{base}/{part}"
        return files

    def has(self, name: str) -> bool:
        try:
            return (self.root / name).is_file()
        except (OSError, ValueError):
            return False


def change_findings(archive: Archive, current: JobFiles) -> list[Finding]:
    """Warnings about files that differ from those of an earlier job. archive: of the earlier job.

    Jobs can write to archives: no file that the record in the archive names is opened.
    """
    try:
        before = archive.read_typed(FILES_RECORD, FilesRecord)
    except UnreadableError as error:
        return [_change_finding(f"cannot be compared with those of {archive.submission_id}: {error}")]
    if before is None or before.entries != current.record.entries:
        # The job was submitted before files were copied, or the JobSpec names other files.
        return []
    hashes = current.record.files
    groups = (
        ("changed", [name for name in before.files if name in hashes and hashes[name] != before.files[name]]),
        ("gone or no longer imported", [name for name in before.files if name not in hashes]),
        ("new", [name for name in hashes if name not in before.files]),
    )
    parts = [f"{kind}: {shortened_list(sorted(names))}" for kind, names in groups if names]
    if not parts:
        return []
    copies = f"the files of {archive.submission_id} are in {archive.path}/{COPIES_DIRECTORY}"
    return [_change_finding(f"are not the same as in {archive.submission_id} ({'; '.join(parts)}); {copies}")]


def shortened_list(names: Sequence[str]) -> str:
    shown = ", ".join(name if len(name) <= 100 else f"{name[:100]}…" for name in names[:MAX_NAMES])
    return shown + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")


def _change_finding(problem: str) -> Finding:
    remedy = "nothing, if that is what you want: the present files are used"
    return about("files", problem, remedy, WARNING)
