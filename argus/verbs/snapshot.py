# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argus snapshot: writes or removes a snapshot of verl, for the module code_snapshot.

The machine has pip, git and the operator's directories. It describes them; if they are needed, their files follow the
request as a tar. What lies on the shared root is read here.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click
from pydantic import BaseModel, Field

from ..snapshot.git import Git
from ..snapshot.sources import Source, directory, overlay
from ..staging.errors import StagingError
from ..staging.manifest import read_manifest
from ..staging.options import StageOptions, Verify
from ..staging.result import Staged, Status, module_result
from ..staging.snapshots import Attachment, Overlay, remove_snapshot, snapshot, snapshot_source, snapshots
from .request import Request, common, request_from, require_own_cluster, write_answer


class Part(BaseModel):
    """The source or an overlay: its place, and what is known of it there.

    path: relative to the shared root. to: of an overlay, its destination in the snapshot.
    """

    place: Literal["machine", "shared_root", "snapshot"]
    label: str
    path: str = ""
    to: str = ""
    identity: str = ""
    code_id: str = ""
    size: int = 0
    facts: dict[str, Any] = Field(default_factory=dict)


class SnapshotRequest(Request):
    """The options of `snapshot`. parts: the source and the overlays. attached: the files of the machine follow."""

    state: Literal["present", "absent"]
    code_id: str = ""
    parts: list[Part] = Field(default_factory=list)
    repair: bool = False
    verify: Verify = Verify.QUICK
    attached: bool = False
    check: bool = False

    @property
    def options(self) -> StageOptions:
        # Without the files of the machine, it can only be told whether they are needed.
        lacks_files = not self.attached and any(part.place == "machine" for part in self.parts)
        return StageOptions(self.check or lacks_files, self.repair, self.verify is Verify.FULL)


def source_of(request: SnapshotRequest, number: int, attachment: Attachment) -> Source:
    """The source or an overlay of a request."""
    part = request.parts[number]
    if part.place == "machine":
        content = partial(attachment.content, number, part.facts)
        return Source(part.label, part.identity, content, part.code_id, part.size)
    if part.place == "shared_root":
        # A link that leads elsewhere gains a job nothing: this process has no more rights.
        path = (request.root / part.path).resolve()
        return overlay(path, part.label) if number else directory(path, part.label, Git())
    if len(request.parts) == 1:
        raise StagingError(f'source "{part.label}"', "is a snapshot already.", "Add overlays, or omit it.")
    return snapshot_source(snapshots(request.root), part.label)


def stage(request: SnapshotRequest, attachment: Attachment) -> Staged:
    if request.state == "absent":
        return remove_snapshot(request.root, request.code_id, check=request.check)
    source, *others = (source_of(request, number, attachment) for number in range(len(request.parts)))
    overlays = [Overlay.of(each, part.to) for each, part in zip(others, request.parts[1:], strict=True)]
    staged = snapshot(request.root, source, request.code_id, overlays, request.options)
    if staged.status is Status.EXISTS and not request.check:
        # Also removes what a killed process has left.
        return snapshot(request.root, source, request.code_id, overlays, StageOptions())
    return staged


@click.command(name="snapshot", hidden=True)
@common
def command(as_json: bool, **options: Any) -> None:
    """Write or remove a snapshot, as stage.yml does."""
    request = request_from(SnapshotRequest, as_json, one_line=True, **options)
    require_own_cluster(request)
    staged = stage(request, Attachment(sys.stdin.buffer))
    result = module_result(staged, read_manifest(Path(staged.path)), ["verl_version"])
    write_answer({"code_id": staged.name, **result}, changed=staged.changed)
