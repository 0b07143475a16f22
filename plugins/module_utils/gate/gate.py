# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate: all that can be known of a job before its submission.

Runs on the head. What is to be looked at on workers is sent there by value, as Ray tasks without CPUs: the job is
composed and its files are read where it will run.
"""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import checks
from ..checks import node, worker
from ..findings import Finding, errors
from ..job.capacity import Cluster, size_findings, size_of
from ..job.plan import Job, plan_job
from ..job.spec import JobSpec
from ..job.spec_checks import OVERRIDES, accelerator_findings
from ..launcher import attempts
from ..launcher.archive import Archive
from ..launcher.ray_api import RayHead, does_not_fit, free_workers
from ..launcher.tasks import Connection
from . import composition
from . import config as config_checks
from . import head as gate_head

ANSWER_SECONDS = 60.0


@dataclass
class Looked:
    """What the gate found."""

    findings: list[Finding] = field(default_factory=list)
    # None when the snapshot does not tell what job it would be.
    job: Job | None = None
    # The one that it goes on from.
    checkpoint: str = ""
    # Why there is no room for it at the moment; the job waits for it.
    no_place: str = ""
    # The composed configuration, as YAML.
    resolved: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def examine(spec: JobSpec, submission_id: str, head: RayHead) -> Looked:
    """All findings on a checked JobSpec; RayApiError when the head does not answer."""
    began = time.time()
    nodes = head.nodes()
    cluster = Cluster.of(nodes)
    looked = Looked(gate_head.file_findings(spec) + size_findings(spec, cluster))
    code_path = Path(spec.inputs.code_path)
    profile = gate_head.snapshot_profile(code_path)
    if profile is None or profile.module(spec.workload) is None or not cluster.workers:
        return looked
    looked.findings += accelerator_findings(profile, cluster)
    size = size_of(spec, cluster)
    unfit, checkpoint = gate_head.resume_findings(spec, size.gpus)
    looked.findings += unfit
    looked.checkpoint = str(checkpoint.path) if checkpoint else ""
    code_id = gate_head.read_marker(code_path) or ""
    looked.job = plan_job(spec, cluster, code_id, submission_id, profile, checkpoint)
    fits = not errors(looked.findings)
    seen = look(spec, looked.job, profile.version, workers_of(nodes))
    # Of an override, or of a file, the head has said it already.
    said = {finding.key for finding in looked.findings if finding.key.startswith(f"{OVERRIDES}.")}
    same = {(finding.where, finding.what) for finding in looked.findings}
    looked.findings += [
        finding for finding in seen.findings if finding.key not in said and (finding.where, finding.what) not in same
    ]
    looked.resolved, looked.facts = seen.resolved, seen.facts
    # A job that is too large for the cluster needs no word of what is free in it.
    if fits:
        looked.no_place = no_place(looked.job, head, began)
        if looked.no_place and not looked.job.plan.wait_for_resources:
            todo = "wait until other jobs have ended, or set wait_for_resources: 2h"
            looked.findings.append(Finding("resources", looked.no_place, todo, key="resources"))
    return looked


def workers_of(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The names of the workers that are alive, by Ray's node ids."""
    return {worker.node_id: worker.name for worker in free_workers(nodes, {})}


def no_place(job: Job, head: RayHead, since: float) -> str:
    """Why a job cannot begin now, or nothing; nobody had taken its place at a moment since then."""
    plan = job.plan
    other = attempts.other_queue(Archive(job.archive), head.jobs()) if plan.transfer_queue else ""
    return other or does_not_fit(
        head.free(since), plan.nnodes, plan.gpus_per_node, plan.cpus_per_node, plan.entrypoint_num_cpus
    )


@dataclass
class Seen:
    """What the nodes said of a job."""

    findings: list[Finding] = field(default_factory=list)
    # The composed configuration, as YAML.
    resolved: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def request(spec: JobSpec, job: Job) -> dict[str, Any]:
    """What is to be looked at; see node_checks."""
    inputs, reward = spec.inputs, spec.inputs.reward
    files = [f"{inputs.code_path}/mvp_marker.py", f"{inputs.model}/config.json"]
    files += [f"{inputs.dataset}/train.parquet", f"{inputs.dataset}/val.parquet", *([reward.file] if reward else [])]
    return {
        "shared_root": spec.shared_root,
        "workload": spec.workload,
        "code_path": inputs.code_path,
        "model": inputs.model,
        "dataset": inputs.dataset,
        "reward": [reward.file, reward.name] if reward else None,
        # Secrets stay on the head; a placeholder stands for each.
        "environment": {**job.runtime_env["env_vars"], **job.plan.driver_env, **dict.fromkeys(spec.secrets, "secret")},
        # With their sizes on the head: a node that sees another size has another file system there.
        "files": {file: Path(file).stat().st_size for file in files if Path(file).is_file()},
        "accept": list(spec.accept),
        "debugger": spec.debugger,
    }


def on_worker(job: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """On one worker: the composed configuration, and what is wrong with all that it names."""
    composed = composition.compose(job["code_path"], job["module"], job["overrides"], asked["environment"])
    seen = worker.check_worker({**asked, "config": composed["config"]})
    found = list(seen["findings"])
    if asked["debugger"] == "post_mortem":
        try:
            version = importlib.metadata.version("debugpy")
        except importlib.metadata.PackageNotFoundError:
            version = "0.0"
        # With an older one Ray passes breakpoints by without a word (ray/util/debugpy.py).
        if tuple(map(int, version.split(".")[:2])) < (1, 8):
            todo = "put debugpy 1.8 or newer into the image, or set debugger: legacy"
            found.append(
                {"where": "debugger", "what": "debugpy 1.8 is not on the workers", "todo": todo, "severity": "error"}
            )
    return {"composed": composed, "findings": found, "facts": seen["facts"]}


def look(spec: JobSpec, job: Job, version: str, workers: Mapping[str, str]) -> Seen:
    """Ask every worker. `version` is verl's; `workers` are their names by Ray's node ids."""
    seen = Seen()
    connection = Connection()
    if connection.problem:
        seen.findings.append(Finding("cluster", connection.problem, "see cluster_status.yml"))
        return seen
    for module in (composition, checks, sys.modules[__name__]):
        # Nodes have no collection: its code goes along with the tasks.
        connection.ray.cloudpickle.register_pickle_by_value(module)
    asked = request(spec, job)
    started = {name: connection.on(node_id, node.check_node, asked) for node_id, name in workers.items()}
    one = sorted(workers, key=lambda node_id: workers[node_id])[0]
    plan = {"code_path": job.plan.code_path, "module": job.plan.module, "overrides": list(job.plan.overrides)}
    started[""] = connection.on(one, on_worker, plan, asked)
    values, problems = connection.results(started, ANSWER_SECONDS)
    connection.ray.shutdown()
    for name, problem in problems.items():
        todo = "see cluster_status.yml"
        seen.findings.append(Finding("cluster", f"{name or workers[one]} cannot look at the job: {problem}", todo))
    answer = values.pop("", None)
    if answer:
        composed = answer["composed"]
        seen.resolved, seen.facts = composed["yaml"], answer["facts"]
        for refused in composed["errors"]:
            where = f"{OVERRIDES}: {refused['key']}" if refused["key"] else OVERRIDES
            key = f"{OVERRIDES}.{refused['key']}" if refused["key"] else OVERRIDES
            near = refused["nearest"]
            todo = f"did you mean {near}?" if near else "correct it; config/ in the snapshot's trainer has all keys"
            seen.findings.append(Finding(where, " ".join(refused["error"].split()), todo, key=key))
        found = list(answer["findings"])
        if composed["config"]:
            plan_, environment = job.plan, asked["environment"]
            found += config_checks.config_findings(
                composed["config"], spec.workload, plan_.nnodes, plan_.gpus_per_node, version, environment
            )
        seen.findings += [Finding(**{"key": finding["where"], **finding}) for finding in found]
    seen.findings += of_nodes(values)
    return seen


def of_nodes(values: Mapping[str, Sequence[Mapping[str, str]]]) -> list[Finding]:
    """What nodes found, each said once, with the nodes that did."""
    nodes: dict[tuple[str, str, str, str], list[str]] = {}
    for name, found in sorted(values.items()):
        for finding in found:
            key = (finding["where"], finding["what"], finding["todo"], finding["severity"])
            nodes.setdefault(key, []).append(name)
    return [
        Finding(where, f"{', '.join(names)}: {what}", todo, severity, key=where)
        for (where, what, todo, severity), names in nodes.items()
    ]
