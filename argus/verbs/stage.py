# SPDX-License-Identifier: Apache-2.0
"""argus stage: puts a model, a dataset, a snapshot of verl or the users' own code below the shared root, or removes it.

argus export: makes a model of a checkpoint. stage.yml and export.yml call `stage` with `detach`: after at most
MOMENT_SECONDS, it returns the result, or a reference with which a later call returns the result or the progress.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import click
from pydantic import BaseModel, Field, ValidationError

from ..common.findings import Finding
from ..common.shared_root import CODE_DIR, DATASETS_DIR, JOBS_DIR, MODELS_DIR, USER_CODE_DIR
from ..common.text import spelling_hint
from ..jobs.listing import UnknownJobError, find_job
from ..jobs.services import OperationError, RefusedError, root_on_machines
from ..staging import models
from ..staging.checkpoint import CHECKPOINT_PATTERN, CHECKPOINT_PREFIX
from ..staging.dataset import stage as datasets
from ..staging.dataset.row_source import UploadedRows
from ..staging.files import remove_tree
from ..staging.items import ITEMS, Dataset, Model, Options, Snapshot, UserCode
from ..staging.lock import read_progress
from ..staging.manifest import StageResult, Status, item_name, read_manifest, result_as_json
from ..staging.options import NAME_WITH_CAPITALS, StageOptions, StagingError, Verify, check_name, check_shared_root
from ..staging.snapshots import SourceSpec, remove_snapshot, stage_snapshot, stage_user_code
from ..staging.store import stage
from ..staging.upload import Attachment, FilesNeededError, inbox, receive, remove_received
from .request import VerbRequest, common_options, request_from, require_node, require_same_cluster, write_answer

# The path of an item, and the function that stages or removes it.
ItemPlan = tuple[Path, Callable[[], StageResult]]
# The result for an item whose files the controller has not sent yet.
FILES_NEEDED = {"changed": False, "status": Status.DEFERRED.value, "files_needed": True}
# The directory of a child in the background, and the file in it: its standard output, which it locks while it lives.
ANSWER_DIR_PREFIX = "argus-verb-"
ANSWER_FILE = "answer"
MOMENT_SECONDS, POLL_SECONDS = 5.0, 0.05
MAX_DESCRIPTORS = 1 << 16


def parse_item(kind: str, values: object) -> Options:
    """The item with these options. kind: one of ITEMS. Raises RefusedError with all options that are wrong."""
    model = ITEMS[kind]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        findings = [option_finding(model, detail["loc"], detail["type"], detail["msg"]) for detail in error.errors()]
        raise RefusedError(findings) from error


def check_items(items: Mapping[str, Sequence[object]]) -> None:
    """Parse all items. items: by their kinds. Raises RefusedError with all wrong options, each located in its item."""
    findings: list[Finding] = []
    for kind, listed in items.items():
        for number, item in enumerate(listed, 1):
            try:
                parse_item(kind, item)
            except RefusedError as error:
                name = item_name(item) or f"number {number}"
                findings += [
                    dataclasses.replace(finding, where=f"{kind} {name}: {finding.where}".removesuffix(": "))
                    for finding in error.findings
                ]
    if findings:
        raise RefusedError(findings)


def option_finding(model: type[BaseModel], place: Sequence[int | str], kind: str, problem: str) -> Finding:
    """The finding for an error of pydantic. place: the keys that lead to the value. kind: the type of the error."""
    where = ".".join(map(str, place))
    if kind == "model_type":
        return Finding(where, "is not a mapping.", "Give it as {name: value}.")
    if kind != "extra_forbidden":
        return Finding(where, f"{problem}.", "Correct it.")
    for key in place[:-1]:
        if isinstance(key, str):
            annotation = model.model_fields[key].annotation
            model = next(candidate for candidate in (annotation, *get_args(annotation)) if isinstance(candidate, type))
    names = [field.alias or name for name, field in model.model_fields.items()]
    return Finding(where, "is unknown.", spelling_hint(str(place[-1]), names) or f"Known are: {', '.join(names)}")


class StageRequest(VerbRequest):
    """The options of `stage`: check `items`; stage or remove `item`; or ask for the result of a reference."""

    # The kind of `item`; empty to check `items`.
    kind: Literal["", "model", "dataset", "snapshot", "user_code"] = ""
    items: dict[str, list[Any]] = Field(default_factory=dict, repr=False)
    item: Any = Field(default=None, repr=False)
    # The controller's description of its files, for a dataset, and for each part of a snapshot.
    upload: UploadedRows | None = None
    parts: list[SourceSpec] = Field(default_factory=list)
    # The address of the Hugging Face hub, None for the usual one; and the token for it.
    endpoint: str | None = None
    token: str | None = Field(default=None, repr=False)
    repair: bool = False
    verify: Verify = Verify.QUICK
    check: bool = False  # check mode of Ansible
    # Return the content that the users' own code had before.
    diff: bool = False
    # The controller's files, which follow the request on standard input; None if there are none.
    attachment: Attachment | None = None
    # Go on in the background if the item takes longer than a moment.
    detach: bool = False
    # The reference to an item that goes on in the background, and the item's path.
    reference: str = ""
    path: str = ""

    @property
    def stage_options(self) -> StageOptions:
        return StageOptions(self.check, self.repair, self.verify is Verify.FULL, self.endpoint, self.token)


def upload_path(request: StageRequest, item: Options) -> Path:
    """The path of the item to which the controller's files belong. Raises StagingError."""
    root = check_shared_root(request.root)
    if isinstance(item, Dataset):
        return root / DATASETS_DIR / check_name("name", item.name)
    if isinstance(item, Snapshot):
        # A snapshot with overlays of the controller has no name before it is staged.
        name = item.code_id or request.parts[0].code_id or "snapshot"
        return root / CODE_DIR / check_name("code_id", name, NAME_WITH_CAPITALS)
    return root / USER_CODE_DIR


def plan_item(root: Path, item: Model | Dataset, options: StageOptions, upload: UploadedRows | None = None) -> ItemPlan:
    """Plan to stage or to remove a model or a dataset. Raises StagingError."""
    if isinstance(item, Dataset):
        if item.state == "absent":
            work = partial(datasets.remove_dataset, root, item.name, item.workload, check=options.check)
        else:
            work = partial(datasets.stage_dataset, root, item, options, upload)
        return root / DATASETS_DIR / item.name, work
    if item.state == "absent":
        if item.name is None:
            raise StagingError("name", "is not set.", "Set it to the name of the model.")
        return root / MODELS_DIR / item.name, partial(models.remove_model, root, item.name, check=options.check)
    request = models.build_request(root, item.name, models.parse_source(with_whole_id(root, item), root, options))
    return request.target, partial(stage, request, options)


def with_whole_id(root: Path, item: Model) -> Model:
    """The model, with the whole id of the job if its source is a checkpoint and has only the end of that id.

    If there is no such job, staging continues: a model that is staged already needs no archive.
    """
    if match := CHECKPOINT_PATTERN.fullmatch(str(item.source)):
        with contextlib.suppress(UnknownJobError):
            job = find_job(root / JOBS_DIR, match["job"]).submission_id
            return item.model_copy(update={"source": f"{CHECKPOINT_PREFIX}{job}{match.string[match.end('job') :]}"})
    return item


def stage_or_remove_snapshot(request: StageRequest, item: Snapshot, received: Path | None) -> StageResult:
    if item.state == "absent":
        return remove_snapshot(request.root, item.code_id, check=request.check)
    return stage_snapshot(request.root, item, request.parts, received, request.stage_options)


def run_item(
    work: Callable[[], StageResult], upload: UploadedRows | None = None, check: bool = False
) -> dict[str, Any]:
    """Stage or remove an item with `work`, and return the result as JSON. Raises StagingError."""
    try:
        staged = work()
        if not check:
            # This also removes what killed processes have left.
            remove_tree(inbox(Path(staged.path)))
        result = result_as_json(staged, read_manifest(Path(staged.path)))
    except FilesNeededError:
        return dict(FILES_NEEDED)
    except StagingError as error:
        raise (upload.with_controller_paths(error) if upload else error) from error
    except ImportError as error:
        raise StagingError(error.name, "cannot be imported.", "Use an image that has it.") from error
    except OSError as error:
        raise StagingError("staging", f"{error}.", "See the message.") from error
    if staged.status is Status.STAGED:
        # The warnings about rows are shown once, when the dataset is new.
        result["notes"] += result.get("report", [])
    return result


# The background: a child process goes on, and writes its answer to a file, which later calls read.


class EndedError(Exception):
    """A child has ended without an answer, as if it was killed."""


def begin_background() -> str:
    """Fork. In the caller, return the reference to the child's answer; in the child, return ""."""
    directory = tempfile.mkdtemp(prefix=ANSWER_DIR_PREFIX)
    answer = os.open(Path(directory, ANSWER_FILE), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(answer, fcntl.LOCK_EX)
    if os.fork():
        os.close(answer)
        return directory
    os.setsid()
    devnull = os.open(os.devnull, os.O_RDWR)
    for source, target in ((devnull, 0), (answer, 1), (devnull, 2)):
        os.dup2(source, target)
    # A reader of an inherited pipe would wait for this child.
    os.closerange(3, MAX_DESCRIPTORS)
    return ""


def background_answer(reference: str) -> dict[str, Any] | None:
    """Read the answer of a child, and remove its file; None if the child goes on. Raises EndedError, OperationError."""
    directory = Path(reference)
    if directory.parent != Path(tempfile.gettempdir()) or not directory.name.startswith(ANSWER_DIR_PREFIX):
        raise OperationError(f"{reference!r} is not a reference to an answer")
    try:
        with (directory / ANSWER_FILE).open("rb") as file:
            if not is_unlocked_soon(file.fileno()):
                return None
            text = file.read()
        shutil.rmtree(directory, ignore_errors=True)
        return dict(json.loads(text))
    except (OSError, ValueError) as error:
        raise EndedError from error


def is_unlocked_soon(answer: int) -> bool:
    """Whether the child that holds the lock on an answer has ended, or ends within MOMENT_SECONDS."""
    deadline = time.monotonic() + MOMENT_SECONDS
    while True:
        try:
            fcntl.flock(answer, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(POLL_SECONDS)


def write_background_answer(reference: str, path: str) -> None:
    """Write the answer of a call that goes on in the background, or its progress. Raises RefusedError, StagingError."""
    try:
        answer = background_answer(reference)
    except EndedError:
        problem = "its process ended without a result, as if it was killed."
        remedy = "Run it again: it continues with what was downloaded. The kernel's log shows whether memory ran out"
        raise StagingError("", problem, remedy) from None
    if answer is None:
        progress = read_progress(Path(path))
        state = {"status": Status.DEFERRED.value, "path": path, "reference": reference}
        write_answer({**state, "progress": dataclasses.asdict(progress) if progress else None})
        return
    if answer["findings"]:
        raise RefusedError([Finding(**finding) for finding in answer["findings"]])
    write_answer(answer["result"], changed=answer["changed"])


def write_result(result: Mapping[str, Any]) -> None:
    """Write a result of run_item as the answer."""
    write_answer({name: value for name, value in result.items() if name != "changed"}, changed=result["changed"])


@click.command(name="stage", hidden=True)
@common_options
def stage_command(as_json: bool, **options: Any) -> None:
    """Stage a model, a dataset, a snapshot or Python files, as stage.yml does."""
    request = request_from(StageRequest, as_json, one_line=True, **options)
    if request.kind == "snapshot" or request.items:
        # If the node does not run, the caller has started a container of its image for this verb.
        require_same_cluster(request)
    else:
        require_node(request)
    if request.reference:
        write_background_answer(request.reference, request.path)
        return
    if not request.kind:
        check_items(request.items)
        write_answer({})
        return
    item, upload = parse_item(request.kind, request.item), request.upload
    received = None
    if request.attachment:
        received = receive(sys.stdin.buffer, request.attachment, upload_path(request, item))
    try:
        if isinstance(item, Model | Dataset):
            if upload and received:
                upload = dataclasses.replace(upload, received=received)
            path, work = plan_item(request.root, item, request.stage_options, upload)
            if request.detach and (reference := begin_background()):
                # This is the caller. The child owns the received files, and continues below.
                received = None
                write_background_answer(reference, str(path))
                return
            write_result(run_item(work, upload, request.check))
        elif isinstance(item, Snapshot):
            write_result(run_item(partial(stage_or_remove_snapshot, request, item, received), check=request.check))
        elif isinstance(item, UserCode):
            write_result(stage_user_code(request.root, item, received, check=request.check, diff=request.diff))
    except FilesNeededError:
        write_result(FILES_NEEDED)
    finally:
        if received:
            remove_received(received)


class ExportRequest(VerbRequest):
    submission_id: str
    # The step of the checkpoint; 0 for the last complete one.
    step: int = 0


@click.command(name="export", short_help="Make a model of a checkpoint.")
@click.argument("submission_id", metavar="ID", required=False)
@click.option("--step", type=int, help="Its step.  [default: the last complete checkpoint]")
@common_options
def export_command(as_json: bool, **options: Any) -> None:
    """Merge a checkpoint of the job ID on a worker, and stage it as a model for the next job."""
    request = request_from(ExportRequest, as_json, **options)
    item = Model(name=None, source=f"job:{request.submission_id}@{request.step}")
    _path, work = plan_item(request.root, item, StageOptions())
    result = run_item(work)
    if as_json:
        write_answer(result, changed=result.pop("changed"))
        return
    path = result["path"].replace(request.shared_root, root_on_machines(request.shared_root), 1)
    click.echo(f"Model {result['name']}: {result['status']}, {path}")
