# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.job_archive`: fetch the archive of a job from the head, or collect evidence into it there.

Documented in plugins/modules/job_archive.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.archive.archive import SUBMISSION_ID, Archive
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import archive_path
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.bundle import (
    PAGE,
    BundleError,
    Limits,
    bundle_limits,
    unpack,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.describe import describe
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.evidence import COLLECT_TIMEOUT_SECONDS
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.listing import LAST
from ansible_collections.argus.verl.plugins.module_utils.argus.report.page import write_page
from ansible_collections.argus.verl.plugins.modules.job_archive import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result, documented_options, failure
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import invalid_id_message
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import ProgramError, unreachable_text
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import TIMEOUT_SECONDS, NodeAction
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report

display = Display()
# The slowest file system, with compression.
MIN_PACKED_BYTES_PER_SECOND = 10 << 20
HEADER = ("job", "state", "steps", "metric", "first", "last")


def packing_seconds(size: Limits) -> float:
    """How long packing may take."""
    return TIMEOUT_SECONDS + size.total / MIN_PACKED_BYTES_PER_SECOND


def job_row(job: JobInfo) -> list[Any]:
    progress = job.progress
    values = [None if value is None else round(value, 3) for value in (progress.first, progress.last)]
    return [job.submission_id, job.state, progress.step, progress.metric, *values]


def whole_id(reference: str, archive: object) -> str:
    """The whole id of a job from the path of its archive on the head. reference: the end of an id, or `last`."""
    name = archive.rpartition("/")[2] if isinstance(archive, str) else ""
    return name if SUBMISSION_ID.fullmatch(name) and (reference == LAST or name.endswith(reference)) else reference


def write_job_page(archive: Archive) -> str:
    """Write the page of a job, and return its path; on an error, show a warning and return ""."""
    try:
        # A job may have written a page with the time of its status, which would count as current.
        (archive.path / PAGE).unlink(missing_ok=True)
        write_page(archive)
    # Whatever the job wrote into its files, they were fetched, and the task succeeds.
    except Exception as error:
        display.warning(f"The page of {archive.submission_id} was not made: {printable(str(error), lines=False)}")
        return ""
    return str(archive.path / PAGE)


class ActionModule(NodeAction):
    options = documented_options(DOCUMENTATION)
    relations: ClassVar[dict[str, Any]] = {"required_if": [("state", "fetched", ["dest"])]}

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        if arguments.pop("state") == "examined":
            return self.collect_evidence(arguments["submission_id"])
        return self.fetch_job(arguments, arguments.pop("dest"))

    def fetch_job(self, request: Mapping[str, Any], dest: str) -> Result:
        submission_id = request["submission_id"]
        if not SUBMISSION_ID.fullmatch(submission_id or ""):
            # The id becomes a path on the controller.
            return failure(invalid_id_message(submission_id))
        size = bundle_limits(request["checkpoints"])
        try:
            with tempfile.NamedTemporaryFile(suffix=".tar.gz") as bundle:
                answer = self.fetch(request, bundle.name, size.bundle, packing_seconds(size))
                if not answer.accepted:
                    return failure(answer.refusal_text)
                submission_id = whole_id(submission_id, answer.result.get("archive"))
                target = Path(dest).resolve() / submission_id
                files = unpack(bundle.name, target, size, change=not self._task.check_mode)
        except (BundleError, ProgramError) as error:
            return failure(f"The archive was not fetched: {error}.")
        page = "" if self._task.check_mode else write_job_page(Archive(target))
        skipped = answer.result.get("skipped")
        skipped = [printable(line, lines=False) for line in skipped] if isinstance(skipped, list) else []
        if skipped:
            # Ansible does not show the warnings of a task that has changed nothing.
            display.warning(f"Not all files were fetched: {'; '.join(skipped)}")
        job = describe(Archive(target), None, tail=0)
        archive = archive_path(self.node.shared_root_source or self.node.shared_root, submission_id)
        text = [f"Archive:  {archive}", f"Here:     {target}", *([f"Page:     {page}"] if page else [])]
        print_report("Fetched", HEADER, [job_row(job)], text=text)
        return {
            "changed": bool(files),
            "path": str(target),
            "page": page,
            "archive": printable(answer.result.get("archive", "")),
            "left_out": skipped,
            "files": files,
            "job": job.to_json(),
        }

    def collect_evidence(self, submission_id: str) -> Result:
        request = {"submission_id": submission_id, "check": self._task.check_mode}
        try:
            # Evidence is of the node's processes, which another container does not see.
            result = self.verb_result(
                "evidence", request, COLLECT_TIMEOUT_SECONDS + TIMEOUT_SECONDS, only_running_node=True
            )
        except ProgramError as error:
            result = failure(error)
        except AnsibleConnectionFailure as error:
            result = failure(unreachable_text(error, self.node.name))
        missing = "; ".join(result.get("problems") or [result.get("msg", "")])
        nodes = ", ".join(result.get("nodes", []))
        return {**result, "row": [self.node.name, result.get("files", 0), nodes or None, missing or None]}
