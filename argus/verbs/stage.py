# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argus stage: a model, a dataset or the users' own code below the shared root. For stage.yml and export.yml.

With `detach`, a call that takes longer than a moment is answered with a reference; another call with it waits for a
moment again, and tells the progress.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from ..common.findings import Finding
from ..common.shared_root import DATASETS, MODELS, USER_CODE
from ..common.text import nearest
from ..jobs.services import RefusedError
from ..staging import models
from ..staging.dataset import stage as datasets
from ..staging.dataset.options import DatasetOptions
from ..staging.dataset.upload import FilesNeededError, inbox, receive
from ..staging.errors import StagingError
from ..staging.files import remove_tree
from ..staging.items import ModelItem, UserCode
from ..staging.lock import read_progress
from ..staging.manifest import read_manifest
from ..staging.options import check_name, check_shared_root
from ..staging.result import Staged, Status, module_result
from ..staging.store import stage
from ..staging.user_code import stage_user_code
from ..staging.users import users
from . import background
from .request import Request, common, request_from, require_node, write_answer

Item = ModelItem | DatasetOptions | UserCode
ITEMS: TypeAdapter[Item] = TypeAdapter(Annotated[Item, Field(discriminator="kind")])
MODEL_FACTS, DATASET_FACTS = ("commit", "bytes", "source"), ("rows", "report")


class StageRequest(Request):
    """The options of `stage`; of nothing, that is its answer.

    item: what is staged. attached: whether its files follow the request. detach: go on when the caller has left.
    reference, path: of an item that was detached.
    """

    item: dict[str, Any] = Field(default_factory=dict, repr=False)
    attached: bool = False
    detach: bool = False
    check: bool = False
    reference: str = ""
    path: str = ""


def parsed(given: Mapping[str, Any]) -> Item:
    """Raises RefusedError with all options that are wrong."""
    try:
        return ITEMS.validate_python(given)
    except ValidationError as error:
        raise RefusedError([finding_of(each["loc"], each["type"], each["msg"]) for each in error.errors()]) from error


def finding_of(place: Sequence[int | str], kind: str, problem: str) -> Finding:
    """place: the kind of the item, and the keys that lead to the value."""
    where = ".".join(map(str, place[1:])) or "kind"
    if kind != "extra_forbidden":
        return Finding(where, f"{problem}.", "Correct it.")
    model: Any = {"model": ModelItem, "dataset": DatasetOptions, "user_code": UserCode}[str(place[0])]
    for key in place[1:-1]:
        model = model.model_fields[key].annotation
    known = list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []
    return Finding(where, "is unknown.", nearest(str(place[-1]), known) or f"Known are: {', '.join(known)}")


def with_files(item: Item, root: Path) -> tuple[Item, Path | None]:
    """An item with the files that follow the request, and the directory that they are in."""
    stream = sys.stdin.buffer
    if isinstance(item, DatasetOptions) and item.upload:
        check_name("name", item.name)
        received = receive(item.upload.all, stream, inbox(check_shared_root(root), item.name))
        return item.model_copy(update={"upload": dataclasses.replace(item.upload, received=received)}), received
    if isinstance(item, UserCode):
        code = check_shared_root(root) / USER_CODE
        return item, receive(item.files, stream, code.with_name(".code.upload"))
    return item, None


def plan(item: ModelItem | DatasetOptions, root: Path, check: bool) -> tuple[Path, Callable[[], Staged]]:
    """The path of an item, and what stages or removes it. Raises StagingError."""
    used_by = partial(users, root)
    if isinstance(item, DatasetOptions):
        if item.state == "absent":
            work = partial(datasets.remove_dataset, root, item.name, item.workload, used_by, check=check)
        else:
            work = partial(datasets.stage_dataset, root, item, item.how(check))
        return root / DATASETS / item.name, work
    if item.state == "absent":
        if item.name is None:
            raise StagingError("name", "is not set.", "Set it to the name of the model.")
        return root / MODELS / item.name, partial(models.remove_model, root, item.name, used_by, check=check)
    if item.source is None:
        raise StagingError("source", "is not set.", "Set it to a repository of the hub, a directory or a job.")
    where = {"endpoint": item.endpoint, "token": item.token}
    source = models.source_of(item.source, root, revision=item.revision, exclude=item.exclude, **where)
    request = models.request(root, item.name, source)
    return request.target, partial(stage, request, item.how(check))


def staged(item: ModelItem | DatasetOptions, work: Callable[[], Staged]) -> dict[str, Any]:
    """What is returned of an item. Raises StagingError."""
    try:
        done = work()
        manifest = read_manifest(Path(done.path))
    except FilesNeededError:
        return {"changed": False, "status": Status.DEFERRED.value, "files_needed": True}
    except StagingError as error:
        if isinstance(item, DatasetOptions) and item.upload:
            raise item.upload.with_own_paths(error) from error
        raise
    except ImportError as error:
        raise StagingError(error.name, "cannot be imported.", "Use an image that has it.") from error
    except OSError as error:
        raise StagingError("staging", f"{error}.", "See the message.") from error
    result = {
        "name": done.name,
        **module_result(done, manifest, MODEL_FACTS if isinstance(item, ModelItem) else DATASET_FACTS),
    }
    if done.status is Status.STAGED:
        # The warnings for the rows are shown once, when the dataset is new.
        result["notes"] += result.get("report", [])
    return result


def user_code(item: UserCode, root: Path, received: Path | None, check: bool) -> dict[str, Any]:
    try:
        return stage_user_code(root, item, received, check=check)
    except FilesNeededError:
        return {"changed": False, "status": Status.DEFERRED.value, "files_needed": True}


def write_detached(reference: str, path: str) -> None:
    """Write the answer of a detached call, or its progress. Raises RefusedError and StagingError."""
    try:
        answer = background.answer_of(reference)
    except background.EndedError:
        what = "its process ended without a result, as if it was killed."
        todo = "Run it again: it continues with what was downloaded. The kernel's log shows whether memory ran out"
        raise StagingError("", what, todo) from None
    if answer is None:
        progress = read_progress(Path(path))
        state = {"status": Status.DEFERRED.value, "path": path, "reference": reference}
        write_answer({**state, "progress": dataclasses.asdict(progress) if progress else None})
        return
    if answer["findings"]:
        raise RefusedError([Finding(**finding) for finding in answer["findings"]])
    write_answer(answer["result"], changed=answer["changed"])


@click.command(name="stage", hidden=True)
@common
def command(as_json: bool, **options: Any) -> None:
    """Stage a model, a dataset or Python files, as stage.yml does."""
    request = request_from(StageRequest, as_json, one_line=True, **options)
    require_node(request)
    if request.reference or not request.item:
        write_detached(request.reference, request.path) if request.reference else write_answer({})
        return
    item, root, received = parsed(request.item), request.root, None
    if request.attached:
        item, received = with_files(item, root)
    try:
        if isinstance(item, UserCode):
            result = user_code(item, root, received, request.check)
        else:
            path, work = plan(item, root, request.check)
            if request.detach and (reference := background.begin()):
                # What has arrived is the child's now.
                received = None
                write_detached(reference, str(path))
                return
            result = staged(item, work)
    finally:
        if received:
            remove_tree(received)
            with contextlib.suppress(OSError):
                received.parent.rmdir()
    write_answer(result, changed=result.pop("changed"))
