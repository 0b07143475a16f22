# SPDX-License-Identifier: Apache-2.0
"""The request to submit a job, the request to submit an earlier job again, and the checks that need no nodes."""

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

# Defaults of JobSpecs that come from other variables of the inventory than job_defaults.
INVENTORY_KEYS = ("shared_root", "ray.address", "resources.nnodes")


def time_limit_findings(spec: JobSpec, now: float) -> Iterator[Finding]:
    """Findings about a job that will not fit the time for which the cluster has its machines."""
    stop_at = departures.read_stop_at()
    if stop_at is None:
        return
    seconds_left = stop_at - now
    stopped = f"jobs are stopped at {departures.moment_text(stop_at)}, before the cluster's machines are taken away"
    if seconds_left <= 0:
        yield about("deadline", stopped, "ask for machines again")
        return
    if spec.deadline is not None and spec.deadline > seconds_left:
        problem = f"{duration(spec.deadline)} do not fit: {stopped}, which is in {duration(seconds_left)}"
        remedy = "ask for the machines for longer, or resume the job later with resume_from"
        yield about("deadline", problem, remedy, WARNING)


class TagLimit(BaseModel, extra="forbid"):
    """The maximum numbers of jobs, and of their GPUs, that may be active at once; None: any number."""

    jobs: NonNegativeInt | None = None
    gpus: NonNegativeFloat | None = None


class JobRequest(BaseModel):
    jobspec: Any = None
    # The extra variables of ansible-playbook that change the JobSpec, see with_command_line.
    command_line: list[dict[str, Any]] = Field(default_factory=list)
    # The keys of a JobSpec that the inventory sets for all jobs.
    defaults: dict[str, Any] = Field(default_factory=dict)
    # The secrets that the inventory has for jobs, by name. The job gets those that its JobSpec names.
    secrets: dict[str, Any] = Field(default_factory=dict, repr=False)
    notify: str = Field(default="", repr=False)
    # How many jobs with a tag, and GPUs of them, may be active at once, by tag. Malformed limits stay as written, for a
    # finding.
    limits: dict[str, Annotated[TagLimit | Any, Field(union_mode="left_to_right")]] = Field(default_factory=dict)
    # The id of the earlier job that is submitted again; empty for a new job.
    resubmitted_from: str = ""
    submitted_by: str = ""
    check: bool = False

    @property
    def author_jobspec(self) -> Any:
        """The JobSpec with the changes of the command line and without the defaults of the inventory."""
        return with_command_line(self.jobspec, self.command_line)

    def parsed(self) -> tuple[list[Finding], JobSpec | None]:
        """All findings that need no cluster, and the JobSpec with defaults; None if it cannot be parsed."""
        author_jobspec = self.author_jobspec
        findings, spec = parse_jobspec(with_defaults(author_jobspec, defaults_for(author_jobspec, self.defaults)))
        if spec:
            keys = {finding.key for finding in findings}
            more = [*inventory_findings(spec, self.defaults), *secret_value_findings(spec.secrets, self.secrets)]
            findings += [finding for finding in more if finding.key not in keys]
        findings = [with_variable(finding, author_jobspec, self.defaults) for finding in findings]
        return [*set_only_findings(self.command_line), *limit_findings(self.limits), *findings], spec


def limit_findings(limits: Mapping[str, Any]) -> Iterator[Finding]:
    for tag, limit in limits.items():
        if not isinstance(limit, TagLimit):
            yield Finding(f"job_limits.{tag}", f"is {limit!r}", "give jobs, gpus or both, such as {jobs: 2, gpus: 16}")


def with_variable(finding: Finding, jobspec: Mapping[str, Any], defaults: Mapping[str, Any]) -> Finding:
    """The finding, located in the variable job_defaults if that has the key and the JobSpec does not."""
    in_defaults = has_key(defaults, finding.key) and not has_key(jobspec, finding.key)
    if not in_defaults or finding.where != finding.key or finding.key in INVENTORY_KEYS:
        return finding
    return replace(finding, where=f"job_defaults.{finding.key}")


def resubmission(request: JobRequest, submission_id: str, registry: Registry) -> JobRequest:
    """The request to submit a job again, with its JobSpec from the registry. Raises OperationError.

    The JobSpec in its archive is not used: the job may have changed it, and so ask for other secrets.
    """
    jobspec = registered_jobspec(registry, submission_id)
    without_id = {key: value for key, value in jobspec.items() if key != "submission_id"}
    return request.model_copy(update={"jobspec": without_id, "resubmitted_from": submission_id})


def registered_jobspec(registry: Registry, submission_id: str) -> Mapping[str, Any]:
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
    """The JobSpec without an override that repeats the directory of its checkpoints: the new job has another."""
    overrides = override_list(jobspec.get(OVERRIDES) or ())
    local_dir = {LOCAL_DIR: checkpoint_path(archive)}
    kept = [override for override in overrides if not repeats_value(override, local_dir)]
    return jobspec if kept == overrides else {**jobspec, OVERRIDES: kept}
