# SPDX-License-Identifier: Apache-2.0
"""The request to submit a job, and the checks of it that need no nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt

from ..common.findings import WARNING, Finding, about
from ..common.shared_root import archive_path
from ..common.text import duration
from ..io.hydra import override_list
from ..io.reading import UnreadableError
from ..jobspec.environment import secret_value_findings
from ..jobspec.owned import LOCAL_DIR, OVERRIDES, checkpoint_path, repeats_value
from ..jobspec.parse import defaults_for, has_key, parse_jobspec, set_only_findings, with_command_line, with_defaults
from ..jobspec.spec import JobSpec
from ..jobspec.spec_checks import inventory_findings
from ..ray import departures
from .registry import Registry
from .services import OperationError

# Whether a job fits the time for which the cluster has its machines, as far as that is known before it runs.


def time_limit_findings(spec: JobSpec, now: float) -> Iterator[Finding]:
    """Findings about a job that is stopped before it can end."""
    stop_at = departures.read_stop_at()
    if stop_at is None:
        return
    left = stop_at - now
    stopped = f"jobs are stopped at {departures.moment_text(stop_at)}, before the cluster's machines are taken away"
    if left <= 0:
        yield about("deadline", stopped, "ask for machines again")
        return
    if spec.deadline is not None and spec.deadline > left:
        problem = f"{duration(spec.deadline)} do not fit: {stopped}, which is in {duration(left)}"
        remedy = "ask for the machines for longer, or resume the job later with resume_from"
        yield about("deadline", problem, remedy, WARNING)


# The JobSpec of an earlier job comes from the registry: it may have been changed in the job's archive.

# Defaults that come from other variables of the inventory than job_defaults.
INVENTORY_KEYS = ("shared_root", "ray.address", "resources.nnodes")


class TagLimit(BaseModel, extra="forbid"):
    """The maximum numbers of jobs and GPUs at once; None: any number."""

    jobs: NonNegativeInt | None = None
    gpus: NonNegativeFloat | None = None


class JobRequest(BaseModel):
    """The request to submit a job.

    jobspec: as its author wrote it. command_line: the extra variables of ansible-playbook, see parse.py.
    defaults: those of the inventory, with the keys of a JobSpec.
    secrets: the values that the inventory has for jobs, by name. The job gets those that its JobSpec names.
    notify: tells people about the job, a command or an address.
    limits: how many jobs and GPUs the jobs with a tag may hold at once, by tag.
    resubmitted_from: the earlier job.
    submitted_by: ``user@controller``.
    check: check everything, change nothing.
    """

    jobspec: Any = None
    command_line: list[dict[str, Any]] = Field(default_factory=list)
    defaults: dict[str, Any] = Field(default_factory=dict)
    secrets: dict[str, Any] = Field(default_factory=dict, repr=False)
    notify: str = Field(default="", repr=False)
    # Malformed limits stay as written, for a finding.
    limits: dict[str, Annotated[TagLimit | Any, Field(union_mode="left_to_right")]] = Field(default_factory=dict)
    resubmitted_from: str = ""
    submitted_by: str = ""
    check: bool = False

    @property
    def author_jobspec(self) -> Any:
        """The JobSpec without the defaults of the inventory, for the archive."""
        return with_command_line(self.jobspec, self.command_line)

    def parsed(self) -> tuple[list[Finding], JobSpec | None]:
        """All problems that show without asking the cluster, and the JobSpec, see parse_jobspec."""
        author_jobspec = self.author_jobspec
        findings, spec = parse_jobspec(with_defaults(author_jobspec, defaults_for(author_jobspec, self.defaults)))
        if spec:
            keys = {finding.key for finding in findings}
            further = [*inventory_findings(spec, self.defaults), *secret_value_findings(spec.secrets, self.secrets)]
            findings += [finding for finding in further if finding.key not in keys]
        findings = [with_place(finding, author_jobspec, self.defaults) for finding in findings]
        return [*set_only_findings(self.command_line), *limit_findings(self.limits), *findings], spec


def limit_findings(limits: Mapping[str, Any]) -> Iterator[Finding]:
    for tag, limit in limits.items():
        if not isinstance(limit, TagLimit):
            yield Finding(f"job_limits.{tag}", f"is {limit!r}", "give jobs, gpus or both, such as {jobs: 2, gpus: 16}")


def with_place(finding: Finding, jobspec: Mapping[str, Any], defaults: Mapping[str, Any]) -> Finding:
    """The finding, named by the variable of the inventory if only job_defaults has its key."""
    in_defaults = has_key(defaults, finding.key) and not has_key(jobspec, finding.key)
    if not in_defaults or finding.where != finding.key or finding.key in INVENTORY_KEYS:
        return finding
    return replace(finding, where=f"job_defaults.{finding.key}")


def resubmission(request: JobRequest, submission_id: str, registry: Registry) -> JobRequest:
    """The request to submit a job again with the JobSpec with which it was submitted.

    Jobs can write to archives, so the JobSpec there may ask for other secrets. Raises OperationError.
    """
    without_id = {key: value for key, value in original(registry, submission_id).items() if key != "submission_id"}
    return request.model_copy(update={"jobspec": without_id, "resubmitted_from": submission_id})


def original(registry: Registry, submission_id: str) -> Mapping[str, Any]:
    """The JobSpec of a registered job. Raises OperationError if the job is not registered."""
    remedy = "submit its JobSpec file instead, or read and submit config/job_spec.json of its archive: -e jobspec=FILE"
    try:
        job = registry.read(submission_id)
    except UnreadableError as error:
        raise OperationError(f"{submission_id} cannot be submitted again: {error}; {remedy}") from error
    if job is None:
        raise OperationError(
            f"{submission_id} is not registered on this head (cluster_down removes the registry), and jobs can write "
            f"to archives; {remedy}"
        )
    return _without_local_dir(job.jobspec, archive_path(job.shared_root, submission_id))


def _without_local_dir(jobspec: Mapping[str, Any], archive: str) -> Mapping[str, Any]:
    """The JobSpec without the directory of this job's checkpoints, which it may repeat: the new job has another."""
    overrides = override_list(jobspec.get(OVERRIDES) or ())
    local_dir = {LOCAL_DIR: checkpoint_path(archive)}
    kept = [override for override in overrides if not repeats_value(override, local_dir)]
    return jobspec if kept == overrides else {**jobspec, OVERRIDES: kept}
