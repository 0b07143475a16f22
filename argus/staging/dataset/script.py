# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows from one of verl's own preprocessing scripts, in a snapshot."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...common.shared_root import HF_HOME, SNAPSHOTS
from ..hub import resolve_endpoint, without_token
from ..items import Dataset
from ..lock import Progress
from ..manifest import Facts, Manifest
from ..options import StageOptions, StagingError
from .source import Fetched, Source

SCRIPTS = "examples/data_preprocess"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.py")
# The option for the output directory, the newer name first; most scripts accept both.
OUTPUT_FLAGS = ("--local_save_dir", "--local_dir")
# The names of the splits in the output of verl's scripts, the best first: hellaswag's test has no answers.
SCRIPT_SPLITS = {"train": ("train",), "val": ("val", "validation", "test")}
SHOWN_LINES = 20


@dataclass(frozen=True)
class Script(Source):
    """A script of a snapshot. home: its HF_HOME. endpoint, token: for the hub; without them it inherits the node's."""

    name: str
    code_path: Path
    arguments: Sequence[str]
    home: Path
    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, options: Dataset, name: str, shared_root: Path, how: StageOptions) -> Script:
        if not options.code_path:
            raise StagingError("code_path", "is not set.", "Set it to the snapshot that contains the script.")
        if not NAME.fullmatch(name):
            todo = "Give it without directories: gsm8k.py."
            raise StagingError("script", f'"{name}" is not the name of a Python file.', todo)
        own = [flag for argument in options.arguments for flag in OUTPUT_FLAGS if argument.split("=")[0] == flag]
        if own:
            raise StagingError("arguments", f"has {own[0]}, which is always set.", "Omit it.")
        code, home = shared_root / SNAPSHOTS / options.code_path, shared_root / HF_HOME
        if how.endpoint or how.token:
            # Without an endpoint of its own, the script inherits the node's.
            address = resolve_endpoint(how.endpoint, how.token)
        return cls(name, code, options.arguments, home, address if how.endpoint else None, how.token)

    @property
    def label(self) -> str:
        return f"{self.name} of {self.code_path.name}"

    @property
    def identity(self) -> Facts:
        # The name of a snapshot stands for its content, and does not depend on the path of the shared root.
        return {"script": self.name, "code_path": self.code_path.name, "arguments": list(self.arguments)}

    @property
    def path(self) -> Path:
        return self.code_path / SCRIPTS / self.name

    def size(self) -> int:
        self._output_flag()
        return 0

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        output = scratch / "output"
        output.mkdir()
        progress.begin(f"running {self.name}")
        log = self._run(scratch, output)
        files = {
            split: [next(path for name in names if (path := output / f"{name}.parquet").is_file())]
            for split, names in SCRIPT_SPLITS.items()
            if any((output / f"{name}.parquet").is_file() for name in names)
        }
        if "train" not in files:
            wrote = ", ".join(sorted(path.name for path in output.iterdir())) or "nothing"
            raise StagingError(self.path, f"wrote no train.parquet, but {wrote}:{log}", "Check its output above.")
        return Fetched(files)

    def _run(self, directory: Path, output: Path) -> str:
        """Runs the script, and returns the last lines of its output."""
        command = [sys.executable, str(self.path), self._output_flag(), str(output), *self.arguments]
        with tempfile.TemporaryFile() as log:
            done = subprocess.run(
                command,
                env=self._environment(),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
            log.seek(0)
            text = without_token(log.read().decode(errors="replace"), self.token)
        lines = [line for line in text.splitlines() if line.strip()]
        last = "\n".join(["", *lines[-SHOWN_LINES:], ""])
        if done.returncode:
            todo = "The lines above are the last ones of its output."
            raise StagingError(self.path, f"ended with exit code {done.returncode}:{last}", todo)
        return last

    def _environment(self) -> dict[str, str]:
        # Modules of the image that verl imports besides may be for another version than the snapshot's.
        inherited = {name: value for name, value in os.environ.items() if name != "VERL_USE_EXTERNAL_MODULES"}
        hub = {name: value for name, value in {"HF_ENDPOINT": self.endpoint, "HF_TOKEN": self.token}.items() if value}
        return {
            **inherited,
            # The snapshot's verl, and not what the node has set.
            "PYTHONPATH": str(self.code_path),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Keeps the lines of stdout and stderr in their order.
            "PYTHONUNBUFFERED": "1",
            # Its downloads stay, and what is already in this cache is found without a network.
            "HF_HOME": str(self.home),
            **hub,
        }

    def _output_flag(self) -> str:
        """The script's option for the output directory."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            there = sorted(path.name for path in self.path.parent.glob("*.py"))
            what = f"cannot be read ({error.strerror}); the scripts there are: {', '.join(there) or 'none'}."
            todo = "A snapshot of a release has none: use one of verl's repository (git+https://…@v0.9.1)."
            raise StagingError(self.path, what, todo) from error
        for flag in OUTPUT_FLAGS:
            if re.search(rf"""["']{flag}["']""", text):
                return flag
        todo = "Run it manually, and stage its output with files."
        raise StagingError(self.path, f"has neither of the options {' and '.join(OUTPUT_FLAGS)}.", todo)
