# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the rows of a dataset come from: files, HuggingFace, one of verl's own scripts, or nowhere (the tiny ones)."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .. import hub, hub_errors, hub_files
from ..errors import StagingError
from ..lock import Progress
from ..snapshots import SNAPSHOTS
from ..tiny import build_dataset, rl_rows, sft_rows
from .schema import RL, SPLITS

SCRIPTS = "examples/data_preprocess"
SCRIPT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.py")
# What the directory for the output is called, the newer name first: verl renamed it between 0.5 and 0.6, and since then
# most scripts take both.
OUTPUT_FLAGS = ("--local_save_dir", "--local_dir")
# What verl's scripts call what it validates on, the best first: hellaswag's test has no answers.
SCRIPT_SPLITS = {"train": ("train",), "val": ("val", "validation", "test")}
SHOWN_LINES = 20
# What is read and checked in a moment.
QUICK_BYTES = 4 << 20
# The files of each split, and what the manifest shall say of the source besides.
Fetched = tuple[dict[str, list[Path]], dict[str, Any]]


class Source(Protocol):
    """Where rows come from."""

    @property
    def label(self) -> str:
        """What the manifest names as the source."""

    @property
    def identity(self) -> dict[str, Any]:
        """The options that decide which rows these are, as JSON; the first says what kind of source it is."""

    @property
    def quick(self) -> bool:
        """Whether its rows are there in a moment."""

    def size(self) -> int:
        """How many bytes a dataset of it will take, as far as that is known before; an error where it is known that
        there is nothing."""

    def differs(self, manifest: Mapping[str, Any]) -> str:
        """What a dataset was made of, where that is not this."""

    def fetch(self, scratch: Path, progress: Progress, manifest: Mapping[str, Any]) -> Fetched:
        """Have the files of each split there.

        scratch: an empty directory, which goes afterwards. manifest: of the dataset when it is repaired, or nothing.
        """


def difference_of(manifest: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    """Which option decided otherwise when a dataset was made; only those that are named here."""
    theirs = manifest.get("identity", {})
    for option, value in mine.items():
        if theirs.get(option) != value:
            return f"was made with {said(option, theirs.get(option))}, and now {said(option, value)} is asked for."
    return ""


def said(option: str, value: Any) -> str:
    return f"no {option}" if value is None else f"{option} {value if isinstance(value, str) else repr(value)}"


@dataclass(frozen=True)
class Files:
    """Files in the node."""

    patterns: Mapping[str, Sequence[str]]
    found: Mapping[str, Sequence[Path]]

    @classmethod
    def of(cls, patterns: Mapping[str, Sequence[str]]) -> Files:
        found = {}
        for split, several in patterns.items():
            absolute = [str(Path(pattern).expanduser()) for pattern in several]
            relative = [pattern for pattern in absolute if not pattern.startswith("/")]
            if relative:
                raise StagingError(f"files.{split}", f'"{relative[0]}" is no absolute path.', "Begin it with a slash.")
            found[split] = list(dict.fromkeys(path for pattern in absolute for path in matching(pattern)))
        return cls(patterns, found)

    @property
    def label(self) -> str:
        named = [pattern for split in SPLITS for pattern in self.patterns.get(split, ())]
        return ", ".join(named[:2]) + (f" and {len(named) - 2} more" if len(named) > 2 else "")

    @property
    def identity(self) -> dict[str, Any]:
        # What changes with every reading of a file's content is too slow for gigabytes.
        return {"source_files": {split: [entry(path) for path in paths] for split, paths in self.found.items()}}

    @property
    def quick(self) -> bool:
        return sum(path.stat().st_size for paths in self.found.values() for path in paths) <= QUICK_BYTES

    def size(self) -> int:
        for split, patterns in self.patterns.items():
            for pattern in patterns:
                if not matching(str(Path(pattern).expanduser())):
                    raise StagingError(f"files.{split}", f"no file is {pattern} here.", "Correct it.")
        return sum(path.stat().st_size for paths in self.found.values() for path in paths)

    def differs(self, manifest: Mapping[str, Any]) -> str:
        """Files that are gone are no difference: what is staged is all that is left of them."""
        theirs = manifest["identity"]["source_files"]
        for split in SPLITS:
            before = {path: (size, time) for path, size, time in theirs.get(split, ())}
            now = [str(path) for path in self.found.get(split, ())]
            left = [path for path in before if path in now or Path(path).exists()]
            for path, size, time in map(entry, self.found.get(split, ())):
                if path not in before:
                    return f"was made without {path}, which files.{split} names now."
                if before[path] != (size, time):
                    what = f"{before[path][0]} bytes then, {size} now" if before[path][0] != size else "another time"
                    return f"was made of {path}, which was changed since ({what})."
            for path in left:
                if path not in now:
                    return f"was made of {path} too, which files.{split} does not name now."
            if left != now:
                return f"was made of the files of files.{split} in another order."
        return ""

    def fetch(self, scratch: Path, progress: Progress, manifest: Mapping[str, Any]) -> Fetched:
        self.size()
        return {split: list(paths) for split, paths in self.found.items()}, {}


def matching(pattern: str) -> list[Path]:
    # Not pathlib's: that takes hidden files as well, such as those that macOS puts beside others.
    paths = map(Path, sorted(glob.glob(pattern, recursive=True)))  # noqa: PTH207
    return [path for path in paths if not path.is_dir()]


def entry(path: Path) -> list[Any]:
    stat = path.stat()
    return [str(path), stat.st_size, stat.st_mtime_ns]


@dataclass(frozen=True)
class Hub:
    """Files of a dataset repository of the hub. None of its code is run."""

    repository: hub.Repository
    patterns: Mapping[str, Sequence[str]]

    @classmethod
    def of(
        cls,
        name: str,
        revision: str | None,
        patterns: Mapping[str, Sequence[str]],
        shared_root: Path,
        *,
        endpoint: str | None = None,
        token: str | None = None,
    ) -> Hub:
        if not hub.NAME.fullmatch(name):
            raise StagingError("hub", f'"{name}" is no repository.', "Say it with its organization: openai/gsm8k.")
        address = hub.address_of(endpoint)

        def select(names: Sequence[str]) -> set[str]:
            return {each for several in chosen(name, patterns, names).values() for each in several}

        repository = hub.Repository(
            name, revision or "main", shared_root / hub.CACHE, address, token or None, select=select, kind="dataset"
        )
        return cls(repository, patterns)

    @property
    def label(self) -> str:
        return self.repository.name

    @property
    def identity(self) -> dict[str, Any]:
        return {"hub": self.repository.name, "files": {split: list(each) for split, each in self.patterns.items()}}

    @property
    def quick(self) -> bool:
        return False

    def size(self) -> int:
        return self.repository.missing() + sum(file.size for file in self.repository.files)

    def differs(self, manifest: Mapping[str, Any]) -> str:
        wrong, revision = difference_of(manifest, self.identity), self.repository.revision
        # A branch counts for what it was when it was staged, and so does the commit that it was.
        if wrong or revision in (manifest.get("revision"), manifest.get("commit")):
            return wrong
        was = f"{manifest.get('revision')} (commit {manifest.get('commit')})"
        return f"was made of revision {was}, and now revision {revision} is asked for."

    def fetch(self, scratch: Path, progress: Progress, manifest: Mapping[str, Any]) -> Fetched:
        repository = self.repository
        if "commit" in manifest:
            # A branch may have moved since.
            repository = dataclasses.replace(repository, revision=manifest["commit"])
        names = chosen(repository.name, self.patterns, sorted(repository.fetch(progress)))
        files = {split: [repository.snapshot / name for name in several] for split, several in names.items()}
        revision = manifest.get("revision", self.repository.revision)
        return files, {"revision": revision, "commit": repository.commit, "endpoint": repository.host}


def chosen(repository: str, patterns: Mapping[str, Sequence[str]], names: Sequence[str]) -> dict[str, list[str]]:
    """Of the files of a repository those of each split, each once, in the order of its patterns."""
    found: dict[str, dict[str, None]] = {split: {} for split in patterns}
    for split, several in patterns.items():
        for pattern in several:
            some = [name for name in names if hub_files.is_left_out(name, [pattern])]
            if not some:
                what = f"has no file {pattern} (files.{split}); it has: {hub_files.some(names)}."
                raise StagingError(repository, what, "Correct the pattern, or the revision.")
            found[split].update(dict.fromkeys(some))
    return {split: list(several) for split, several in found.items()}


@dataclass(frozen=True)
class Script:
    """One of verl's own preprocess scripts, in a snapshot."""

    name: str
    code_path: Path
    arguments: Sequence[str]
    # HF_HOME of the script.
    home: Path
    # Where it finds the hub, and what it says there; what is not given it has of the node.
    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        name: str,
        code_path: str,
        arguments: Sequence[str],
        shared_root: Path,
        *,
        endpoint: str | None = None,
        token: str | None = None,
    ) -> Script:
        if not SCRIPT.fullmatch(name):
            raise StagingError("script", f'"{name}" is no name of a Python file.', "Say gsm8k.py, without directories.")
        own = [flag for argument in arguments for flag in OUTPUT_FLAGS if argument.split("=")[0] == flag]
        if own:
            raise StagingError("arguments", f"has {own[0]}, which is set already.", "Leave it out.")
        code, home = shared_root / SNAPSHOTS / code_path, shared_root / hub.HF_HOME
        return cls(name, code, arguments, home, hub.address_of(endpoint) if endpoint else None, token)

    @property
    def label(self) -> str:
        return f"{self.name} of {self.code_path.name}"

    @property
    def identity(self) -> dict[str, Any]:
        # A snapshot keeps its name and its content, wherever the shared root is seen.
        return {"script": self.name, "code_path": self.code_path.name, "arguments": list(self.arguments)}

    @property
    def quick(self) -> bool:
        return False

    @property
    def path(self) -> Path:
        return self.code_path / SCRIPTS / self.name

    def size(self) -> int:
        self._flag()
        return 0

    def differs(self, manifest: Mapping[str, Any]) -> str:
        return difference_of(manifest, self.identity)

    def _flag(self) -> str:
        """What the script calls the directory for its output."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            there = sorted(path.name for path in self.path.parent.glob("*.py"))
            what = f"cannot be read ({error.strerror}); the scripts there are: {', '.join(there) or 'none'}."
            todo = "A snapshot of a release has none: take one of verl's repository (git+https://…@v0.9.1)."
            raise StagingError(self.path, what, todo) from error
        for flag in OUTPUT_FLAGS:
            if re.search(rf"""["']{flag}["']""", text):
                return flag
        todo = "Run it by hand, and stage what it writes with files."
        raise StagingError(self.path, f"takes neither {' nor '.join(OUTPUT_FLAGS)}.", todo)

    def fetch(self, scratch: Path, progress: Progress, manifest: Mapping[str, Any]) -> Fetched:
        output = scratch / "output"
        output.mkdir()
        command = [sys.executable, str(self.path), self._flag(), str(output), *self.arguments]
        # What the image lets verl import besides may be for another version of it than the snapshot's.
        inherited = {name: value for name, value in os.environ.items() if name != "VERL_USE_EXTERNAL_MODULES"}
        environment = {
            **inherited,
            # The snapshot's verl, and nothing of what Ansible has put there for this module.
            "PYTHONPATH": str(self.code_path),
            "PYTHONDONTWRITEBYTECODE": "1",
            # What it says stands in the order in which it said it.
            "PYTHONUNBUFFERED": "1",
            # What it fetches is there the next time, and what somebody has put there is found without a network.
            "HF_HOME": str(self.home),
            **{name: value for name, value in {"HF_ENDPOINT": self.endpoint, "HF_TOKEN": self.token}.items() if value},
        }
        progress.begin(f"running {self.name}")
        with tempfile.TemporaryFile() as log, hub_files.followed(progress, lambda: 0):
            done = subprocess.run(
                command, env=environment, cwd=scratch, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            )
            log.seek(0)
            said = hub_errors.without_secrets(log.read().decode(errors="replace"), self.token, self.endpoint)
        lines = [line for line in said.splitlines() if line.strip()]
        last = "\n".join(["", *lines[-SHOWN_LINES:], ""])
        if done.returncode:
            todo = "The lines above are the last of its output."
            raise StagingError(self.path, f"ended with exit code {done.returncode}:{last}", todo)
        files = {
            split: [next(path for name in names if (path := output / f"{name}.parquet").is_file())]
            for split, names in SCRIPT_SPLITS.items()
            if any((output / f"{name}.parquet").is_file() for name in names)
        }
        if "train" not in files:
            wrote = ", ".join(sorted(path.name for path in output.iterdir())) or "nothing"
            raise StagingError(self.path, f"wrote no train.parquet, but {wrote}:{last}", "See its output above.")
        return files, {}


@dataclass(frozen=True)
class Tiny:
    """Word problems of addition, made on the spot."""

    workload: str

    @property
    def label(self) -> str:
        return "tiny"

    @property
    def identity(self) -> dict[str, Any]:
        return {"tiny": True}

    @property
    def quick(self) -> bool:
        return True

    def size(self) -> int:
        return 0

    def differs(self, manifest: Mapping[str, Any]) -> str:
        return difference_of(manifest, self.identity)

    def fetch(self, scratch: Path, progress: Progress, manifest: Mapping[str, Any]) -> Fetched:
        build_dataset(scratch, rl_rows() if self.workload == RL else sft_rows())
        return {split: [scratch / f"{split}.parquet"] for split in SPLITS}, {}


def check_val(has_val: bool, val_rows: int | None) -> None:
    if has_val and val_rows is not None:
        raise StagingError("val_rows", "is given, and there are rows for val already.", "Leave val_rows out.")
    if not has_val and val_rows is None:
        todo = "Name files.val, or set val_rows: so many rows of train are taken for it."
        raise StagingError("val", "has no rows.", todo)


def source_of(options: Mapping[str, Any], workload: str, shared_root: Path) -> Source:
    """The one source that a user names; `options` as the module rl_dataset has them."""
    given = [name for name in ("files", "hub", "script", "tiny") if options.get(name)]
    # In a repository, files says which.
    if len(given) != 1 and given != ["files", "hub"]:
        what = f"{' and '.join(given)} are given." if given else "none is given."
        raise StagingError("source", what, "Give one of files, hub (with files), script (with code_path) and tiny.")
    useless = [name for name in ("code_path", "arguments") if options.get(name) and "script" not in given]
    useless += [name for name in ("columns",) if options.get(name) and "files" not in given]
    if useless:
        raise StagingError(useless[0], f"does nothing with {given[0]}.", "Leave it out.")
    if "tiny" in given:
        return Tiny(workload)
    of_hub = {name: options.get(name) for name in ("endpoint", "token")}
    if "script" in given:
        if not options.get("code_path"):
            raise StagingError("code_path", "is not given.", "Name the snapshot in which the script is.")
        return Script.of(options["script"], options["code_path"], options.get("arguments") or (), shared_root, **of_hub)
    patterns = {split: several for split, several in (options.get("files") or {}).items() if several}
    if "train" not in patterns:
        raise StagingError("files.train", "is not given.", "Name the files with the rows to train on.")
    check_val("val" in patterns, options.get("val_rows"))
    if "hub" not in given:
        return Files.of(patterns)
    return Hub.of(options["hub"], options.get("revision"), patterns, shared_root, **of_hub)
