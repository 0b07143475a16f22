# SPDX-License-Identifier: GPL-3.0-or-later
"""Staging from the controller: datasets' files, the users' own code, and calls of `argus stage` in the head's node."""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ansible import constants as C  # noqa: N812
from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding, about
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import USER_CODE_DIR
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.dataset.row_source import (
    FROM_CONTROLLER,
    UploadedRows,
    default_origin,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.files import file_sha256, matching_files
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.lock import ProgressReport
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import StagingError, as_staging_errors
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import (
    Opener,
    content_identity,
    is_ignored,
    is_plain_path,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.upload import Attachment, UploadFile

from .program_call import TIMEOUT_SECONDS, Answer, NodeAction, ProgramError

# The files of a dataset that are on the controller.

PatternsBySplit = Mapping[str, Sequence[str]]


def controller_patterns(item: object) -> dict[str, list[str]]:
    """The patterns of a dataset whose files are on the controller, by split.

    Empty for other datasets, and for options of a wrong type, which the program reports. Decided here, not by the node:
    a job could make the node ask for arbitrary files.
    """
    options = item if isinstance(item, Mapping) else {}
    files, place = options.get("files"), options.get("from")
    if options.get("state") == "absent" or options.get("hub") or not isinstance(files, Mapping):
        return {}
    lists = {split: [value] if isinstance(value, str) else value for split, value in files.items() if value}
    if not all(isinstance(value, list) and all(isinstance(text, str) for text in value) for value in lists.values()):
        return {}
    return lists if (place or default_origin(lists)) == FROM_CONTROLLER else {}


def upload_of(patterns_by_split: PatternsBySplit, inventory: Path) -> UploadedRows:
    """The files of the controller that patterns match, and those that match none; nothing is read yet."""
    controller = socket.gethostname()
    uploads: dict[str, list[UploadFile]] = {}
    missing: dict[str, list[str]] = {}
    for split, patterns in patterns_by_split.items():
        for pattern in patterns:
            full = str(inventory / Path(pattern).expanduser())
            paths = matching_files(full)
            if not paths:
                missing.setdefault(split, []).append(full)
            uploads.setdefault(split, []).extend(upload_file(split, path, controller) for path in paths)
    unique = {split: list(dict.fromkeys(matches)) for split, matches in uploads.items() if matches}
    return UploadedRows(controller, unique, missing)


def upload_file(split: str, path: Path, controller: str) -> UploadFile:
    if not is_plain_path(path.name):
        problem = f"{path.name!r} on the controller {controller} has characters that cannot be shown."
        raise StagingError(f"files.{split}", problem, "Rename the file.")
    if not path.is_file() or not os.access(path, os.R_OK):
        problem = f"the controller {controller} cannot read {path}."
        raise StagingError(f"files.{split}", problem, "Give your user permission to read it.")
    status = path.stat()
    return UploadFile(str(path), status.st_size, status.st_mtime_ns)


def with_hashes(upload: UploadedRows) -> UploadedRows:
    """The upload with the hashes of all files."""
    files = {
        split: [replace(file, sha256=file_sha256(file.path)) for file in split_files]
        for split, split_files in upload.files.items()
    }
    return replace(upload, files=files)


# The users' own code on the controller, compared with what a job uses. An edited file is used once it is staged.

MAX_CODE_FILES, MAX_COMPARED_BYTES = 200, 1 << 20


def edited_file_warnings(sources: Sequence[str], used: Mapping[str, str]) -> list[Finding]:
    """A warning about the files whose hashes differ from those that a job uses.

    sources: files and directories of the controller, as `staging_user_code` names them.
    used: the SHA-256 of the files of the job, by their paths relative to the shared root.
    """
    if not used:
        return []
    files = [pair for source in sources for pair in staged_paths(source)]
    differ = [str(file) for path, file in files if path in used and used[path] != sha256(file)]
    if not differ:
        return []
    problem = f"is not the same as on this machine: {', '.join(sorted(differ))} changed after stage.yml copied it"
    return [about("files", problem, "run stage.yml, or nothing if the copy is what you want", WARNING)]


def staged_paths(source: str) -> Iterator[tuple[str, Path]]:
    """The files of a source by the paths that they get, relative to the shared root."""
    for name, file in itertools.islice(source_files(source), MAX_CODE_FILES):
        yield f"{USER_CODE_DIR}/{name}", file


def source_files(source: str) -> Iterator[tuple[str, Path]]:
    """The files of a source by their paths below USER_CODE_DIR; a trailing / leaves out the directory's own name."""
    top = Path(source)
    if top.is_file():
        yield top.name, top
        return
    base = top if source.endswith("/") else top.parent
    for file in sorted(top.rglob("*")):
        if file.is_file() and not is_ignored(str(file.relative_to(base))):
            yield str(file.relative_to(base)), file


def sha256(file: Path) -> str:
    """The hash of a file; empty if it cannot be read."""
    try:
        with file.open("rb") as content:
            return hashlib.sha256(content.read(MAX_COMPARED_BYTES)).hexdigest()
    except OSError:
        return ""


# Staging by the program in the head's node: an item that takes long goes on there, and its progress is shown.

display = Display()
# How long to wait after a call that was not answered, and how long a node may give no answer before following ends.
RETRY_PAUSE_SECONDS, MAX_SILENCE_SECONDS = 5.0, 300.0
# The slowest connection between an engine and its container, and the shared root behind it.
MIN_TRANSFER_BYTES_PER_SECOND = 10 << 20
# Snapshots are staged in one call, on the slowest file system.
SNAPSHOT_TIMEOUT_SECONDS = 3600


class RefusedItemError(Exception):
    """An item is not staged; findings say why."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(finding.problem for finding in findings))
        self.findings = findings


class StagingAction(NodeAction):
    """Calls `argus stage` in the head's node, and follows it to its end. task_arguments: those of the task."""

    task_arguments: Mapping[str, Any]

    def stage_item(
        self, kind: str, item: object, attachment: Attachment | None = None, path: str = "", **request_fields: object
    ) -> dict[str, Any]:
        """The result for an item, however long it takes. attachment, path: the tar with its files on the machine.

        With its key files_needed, the item cannot be staged without files. Raises RefusedItemError, ProgramError and
        AnsibleConnectionFailure.
        """
        request = {"kind": kind, "item": item, "check": bool(self._task.check_mode), "detach": True}
        request |= request_fields | {name: self.task_arguments[name] for name in ("repair", "verify")}
        request |= {"endpoint": self.task_arguments["hf_endpoint"], "token": self.task_arguments["hf_token"]}
        request["attachment"] = attachment and asdict(attachment)
        seconds: float = SNAPSHOT_TIMEOUT_SECONDS if kind == "snapshot" else TIMEOUT_SECONDS
        seconds += attachment.size / MIN_TRANSFER_BYTES_PER_SECOND if attachment else 0
        answer = self.call_stage(request, seconds, path)
        last_answer_at, last_line = time.monotonic(), ""
        while answer.accepted and (reference := answer.result.get("reference")):
            path = str(answer.result.get("path"))
            last_line = show_progress(PurePosixPath(path).name, answer.result.get("progress"), last_line)
            try:
                answer = self.call_stage({"reference": reference, "path": path})
                last_answer_at = time.monotonic()
            except (AnsibleConnectionFailure, ProgramError) as error:
                if time.monotonic() - last_answer_at > MAX_SILENCE_SECONDS:
                    problem = f"the head's node has not answered for {MAX_SILENCE_SECONDS:.0f} s: {error}."
                    remedy = "Run it again: it continues, or waits for this one"
                    raise RefusedItemError(Finding("", problem, remedy)) from error
                time.sleep(RETRY_PAUSE_SECONDS)
        if not answer.accepted:
            raise RefusedItemError(*answer.findings)
        return {**answer.result, "changed": answer.changed}

    def call_stage(self, request: Mapping[str, Any], seconds: float = TIMEOUT_SECONDS, attachment: str = "") -> Answer:
        only_running = request.get("kind") != "snapshot"
        return self.call_verb("stage", request, seconds, only_running_node=only_running, attachment=attachment)

    def stage_with_files(
        self, kind: str, item: object, files: Mapping[str, Opener], hashes: Mapping[str, str], **request_fields: object
    ) -> dict[str, Any]:
        """The result for an item with files of the controller, by their paths in the tar. hashes: their SHA-256."""
        shell = self._connection._shell
        with tempfile.NamedTemporaryFile(dir=C.DEFAULT_LOCAL_TMP) as file:
            with as_staging_errors(Path(C.DEFAULT_LOCAL_TMP), "written"):
                attachment = Attachment(content_identity(hashes), pack(file.name, files))
            if not shell.tmpdir:
                self._make_tmp_path()
            try:
                path = shell.join_path(shell.tmpdir, "attachment")
                self._transfer_file(file.name, path)
                self._fixup_perms2((shell.tmpdir, path))
                return self.stage_item(kind, item, attachment, path, **request_fields)
            finally:
                # The files of all items need not fit there at the same time.
                self._remove_tmp_path(shell.tmpdir)


def pack(path: str, files: Mapping[str, Opener]) -> int:
    """Write a tar, and return the size of its files."""
    size = 0
    with tarfile.open(path, "w") as archive:
        for name, opener in files.items():
            with opener() as file:
                member = tarfile.TarInfo(name)
                member.size = file.seek(0, os.SEEK_END)
                file.seek(0)
                archive.addfile(member, file)
            size += member.size
    return size


def show_progress(name: str, progress: object, last_line: str) -> str:
    """Show a line of the progress unless it is the last one shown, and return it."""
    report = ProgressReport.from_json(progress)
    line = printable(f"{name}: {report.line()}", lines=False) if report else last_line
    if line != last_line:
        display.display(line)
    return line
