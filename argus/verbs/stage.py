# SPDX-License-Identifier: Apache-2.0
"""argus stage, export: a model, a dataset, a snapshot or the users' own code under the shared root."""

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
from ..common.text import nearest
from ..jobs.listing import UnknownJobError, find_job
from ..jobs.services import OperationError, RefusedError, on_machines
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
from .request import VerbRequest, common, request_from, require_node, require_same_cluster, write_answer

# Background verbs: a child writes the answer to a file, which later calls read.

# The directory of a child, and the file in it that is its standard output, and locked as long as it lives.
ANSWER_PREFIX, ANSWER = "argus-verb-", "answer"
# The time that a call waits for the answer, and the interval of its checks.
MOMENT_SECONDS, LOOK_SECONDS = 5.0, 0.05
MAX_DESCRIPTORS = 1 << 16


class EndedError(Exception):
    """A child has ended without an answer."""


def begin_background() -> str:
    """Go on in a child in a session of its own. Returns "" there, and in the caller the reference to its answer."""
    directory = tempfile.mkdtemp(prefix=ANSWER_PREFIX)
    answer = os.open(Path(directory, ANSWER), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(answer, fcntl.LOCK_EX)
    if os.fork():
        os.close(answer)
        return directory
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for source, target in ((nothing, 0), (answer, 1), (nothing, 2)):
        os.dup2(source, target)
    # A reader of an inherited pipe would wait for this child.
    os.closerange(3, MAX_DESCRIPTORS)
    return ""


def background_answer(reference: str) -> dict[str, Any] | None:
    """The answer of a child, which is removed; None if the child goes on. Raises EndedError."""
    directory = Path(reference)
    if directory.parent != Path(tempfile.gettempdir()) or not directory.name.startswith(ANSWER_PREFIX):
        raise OperationError(f"{reference!r} is not a reference to an answer")
    try:
        with (directory / ANSWER).open("rb") as file:
            if not answer_has_ended(file.fileno()):
                return None
            text = file.read()
        shutil.rmtree(directory, ignore_errors=True)
        return dict(json.loads(text))
    except (OSError, ValueError) as error:
        raise EndedError from error


def answer_has_ended(answer: int) -> bool:
    """Whether a child has ended, or ends within a moment."""
    end = time.monotonic() + MOMENT_SECONDS
    while True:
        try:
            fcntl.flock(answer, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
        time.sleep(LOOK_SECONDS)


# argus stage: a model, a dataset, a snapshot or the users' own code, for stage.yml and export.yml.
#
# With `detach`, a model or a dataset that takes longer than a moment is answered with a reference; another call with
# it waits for a moment again, and tells the progress.

# The path of an item, and the function that stages or removes it.
Plan = tuple[Path, Callable[[], StageResult]]
FILES_NEEDED = {"changed": False, "status": Status.DEFERRED.value, "files_needed": True}


class StageRequest(VerbRequest):
    """The options of `stage`; without a kind, options of items are checked.

    items: by their kinds, all that will be staged. item: what is staged, of this kind. upload, parts: what the
    controller tells of its files. attachment: these follow the request. diff: return the content of the users' own code
    before. detach: go on when the caller has left. reference, path: of an item that was detached.
    """

    kind: Literal["", "model", "dataset", "snapshot", "user_code"] = ""
    items: dict[str, list[Any]] = Field(default_factory=dict, repr=False)
    item: Any = Field(default=None, repr=False)
    upload: UploadedRows | None = None
    parts: list[SourceSpec] = Field(default_factory=list)
    endpoint: str | None = None
    token: str | None = Field(default=None, repr=False)
    repair: bool = False
    verify: Verify = Verify.QUICK
    check: bool = False
    diff: bool = False
    attachment: Attachment | None = None
    detach: bool = False
    reference: str = ""
    path: str = ""

    @property
    def how(self) -> StageOptions:
        return StageOptions(self.check, self.repair, self.verify is Verify.FULL, self.endpoint, self.token)


def parse_item(kind: str, values: object) -> Options:
    """Raises RefusedError with all options that are wrong."""
    model = ITEMS[kind]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        findings = [finding_of(model, detail["loc"], detail["type"], detail["msg"]) for detail in error.errors()]
        raise RefusedError(findings) from error


def check_items(items: Mapping[str, Sequence[object]]) -> None:
    """Raises RefusedError with the options of all items that are wrong, each with its item."""
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


def finding_of(model: type[BaseModel], place: Sequence[int | str], kind: str, problem: str) -> Finding:
    """place: the keys that lead to the value."""
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
    return Finding(where, "is unknown.", nearest(str(place[-1]), names) or f"Known are: {', '.join(names)}")


def place_of_upload(request: StageRequest, item: Options) -> Path:
    """The path of the item to which files of the controller belong."""
    root = check_shared_root(request.root)
    if isinstance(item, Dataset):
        return root / DATASETS_DIR / check_name("name", item.name)
    if isinstance(item, Snapshot):
        # One of the shared root with overlays of the controller has no name yet.
        name = item.code_id or request.parts[0].code_id or "snapshot"
        return root / CODE_DIR / check_name("code_id", name, NAME_WITH_CAPITALS)
    return root / USER_CODE_DIR


def plan(root: Path, item: Model | Dataset, how: StageOptions, upload: UploadedRows | None = None) -> Plan:
    """The path of a model or a dataset, and what stages or removes it. Raises StagingError."""
    if isinstance(item, Dataset):
        if item.state == "absent":
            work = partial(datasets.remove_dataset, root, item.name, item.workload, check=how.check)
        else:
            work = partial(datasets.stage_dataset, root, item, how, upload)
        return root / DATASETS_DIR / item.name, work
    if item.state == "absent":
        if item.name is None:
            raise StagingError("name", "is not set.", "Set it to the name of the model.")
        return root / MODELS_DIR / item.name, partial(models.remove_model, root, item.name, check=how.check)
    request = models.build_request(root, item.name, models.parse_source(with_whole_id(root, item), root, how))
    return request.target, partial(stage, request, how)


def with_whole_id(root: Path, item: Model) -> Model:
    """A model whose source may be the end of the id of a job. Staging goes on without its archive."""
    if match := CHECKPOINT_PATTERN.fullmatch(str(item.source)):
        with contextlib.suppress(UnknownJobError):
            job = find_job(root / JOBS_DIR, match["job"]).submission_id
            return item.model_copy(update={"source": f"{CHECKPOINT_PREFIX}{job}{match.string[match.end('job') :]}"})
    return item


def snapshot(request: StageRequest, item: Snapshot, received: Path | None) -> StageResult:
    if item.state == "absent":
        return remove_snapshot(request.root, item.code_id, check=request.check)
    return stage_snapshot(request.root, item, request.parts, received, request.how)


def run_item(
    work: Callable[[], StageResult], upload: UploadedRows | None = None, check: bool = False
) -> dict[str, Any]:
    """The result of staging or removing an item, as JSON. Raises StagingError."""
    try:
        staged = work()
        if not check:
            # Also remove the leftovers of killed processes.
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
        # The warnings for the rows are shown once, when the dataset is new.
        result["notes"] += result.get("report", [])
    return result


def write_detached(reference: str, path: str) -> None:
    """Write the answer of a detached call, or its progress. Raises RefusedError and StagingError."""
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
    write_answer({name: value for name, value in result.items() if name != "changed"}, changed=result["changed"])


@click.command(name="stage", hidden=True)
@common
def stage_command(as_json: bool, **options: Any) -> None:
    """Stage a model, a dataset, a snapshot or Python files, as stage.yml does."""
    request = request_from(StageRequest, as_json, one_line=True, **options)
    if request.kind == "snapshot" or request.items:
        # A container of the image does it if the node does not run.
        require_same_cluster(request)
    else:
        require_node(request)
    if request.reference:
        write_detached(request.reference, request.path)
        return
    if not request.kind:
        check_items(request.items)
        write_answer({})
        return
    item, upload = parse_item(request.kind, request.item), request.upload
    received = None
    if request.attachment:
        received = receive(sys.stdin.buffer, request.attachment, place_of_upload(request, item))
    try:
        if isinstance(item, Model | Dataset):
            if upload and received:
                upload = dataclasses.replace(upload, received=received)
            path, work = plan(request.root, item, request.how, upload)
            if request.detach and (reference := begin_background()):
                # The child now owns the received files.
                received = None
                write_detached(reference, str(path))
                return
            write_result(run_item(work, upload, request.check))
        elif isinstance(item, Snapshot):
            write_result(run_item(partial(snapshot, request, item, received), check=request.check))
        elif isinstance(item, UserCode):
            write_result(stage_user_code(request.root, item, received, check=request.check, diff=request.diff))
    except FilesNeededError:
        write_result(FILES_NEEDED)
    finally:
        if received:
            remove_received(received)


# argus export: a checkpoint of a job as a model.


class ExportRequest(VerbRequest):
    submission_id: str
    step: int = 0


@click.command(name="export", short_help="Make a model of a checkpoint.")
@click.argument("submission_id", metavar="ID", required=False)
@click.option("--step", type=int, help="Its step.  [default: the last complete checkpoint]")
@common
def export_command(as_json: bool, **options: Any) -> None:
    """Merge a checkpoint of the job ID on a worker, and stage it as a model for the next job."""
    request = request_from(ExportRequest, as_json, **options)
    item = Model(name=None, source=f"job:{request.submission_id}@{request.step}")
    _path, work = plan(request.root, item, StageOptions())
    result = run_item(work)
    if as_json:
        write_answer(result, changed=result.pop("changed"))
        return
    path = result["path"].replace(request.shared_root, on_machines(request.shared_root), 1)
    click.echo(f"Model {result['name']}: {result['status']}, {path}")
