# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks storage.*: the shared root compared between all machines, by its mounts and a trial. On the controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..argus.common.findings import Finding
from ..cluster.paths import PathState
from .checks import Context, Problem, difference_findings

# File systems of one machine alone. Containers may still share a bind mount of one of them.
LOCAL_FILE_SYSTEMS = ("btrfs", "ext2", "ext3", "ext4", "overlay", "ramfs", "tmpfs", "xfs", "zfs")
# Mount options that may differ: they name the client, or make no difference to jobs.
IGNORED_OPTIONS = ("addr=", "clientaddr=", "mountaddr=", "port=", "mountport=", "seclabel", "relatime")
# NFS looks again after 3 seconds at first (acregmin), and after 30 for directories (acdirmin).
LATE_SECONDS = 30.0


def mount_findings(contexts: Mapping[str, Context]) -> Iterator[Finding]:
    mounts = {host: mount for host, context in contexts.items() if (mount := shared_root_mount(context))}
    for key, name, value in (
        ("storage.type", "the type of the shared root", lambda mount: mount.fstype),
        ("storage.source", "the source of the shared root", lambda mount: mount.source),
        ("storage.options", "the list of mount options", compared_options),
    ):
        yield from difference_findings(key, name, {host: value(mount) for host, mount in mounts.items()})
    # Nodes that are processes may share a host. These hosts of the inventory have the same addresses.
    machines = {tuple(nic.addresses for nic in contexts[host].machine.interfaces) or host for host in mounts}
    for host, mount in mounts.items():
        if mount.fstype in LOCAL_FILE_SYSTEMS and len(machines) > 1:
            yield Problem("storage.local", f"the shared root is {mount.fstype} from {mount.source}").finding(host)


def compared_options(mount: PathState) -> str:
    return ",".join(sorted(option for option in mount.options if not option.startswith(IGNORED_OPTIONS)))


def shared_root_mount(context: Context) -> PathState | None:
    """Return the mount of the shared root; None if it could not be read, which the checks root.* report."""
    path = context.expected.shared_root
    mount = next((mount for mount in context.machine.mounts if mount.path == path), None)
    return mount if mount and mount.exists and not mount.error else None


@dataclass(frozen=True)
class TrialResult:
    """What one machine returned in the trial."""

    # Why it could not take part; empty if it could.
    error: str = ""
    written: Mapping[str, Any] = field(default_factory=dict)
    # The results of `Trial.compared`: by host, how this machine sees its file; by kind, the state of a lock.
    seen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    locks: Mapping[str, str] = field(default_factory=dict)


def trial_result(written: Mapping[str, Any], compared: Mapping[str, Any]) -> TrialResult:
    """Return what a machine answered. written, compared: the results of its two tasks, which do not fail the play."""
    answer = compared.get("trial") or {}
    return TrialResult(
        error=str(written.get("msg") or compared.get("msg") or ""),
        written=written.get("trial") or {},
        seen=answer.get("seen") or {},
        locks=answer.get("locks") or {},
    )


def trial_findings(trials: Mapping[str, TrialResult]) -> list[Finding]:
    return [
        problem.finding(host)
        for host, trial in trials.items()
        for problem in (*_write_problems(trial), *_lock_problems(trial, trials), *_read_problems(trial, trials))
    ]


def _write_problems(trial: TrialResult) -> Iterator[Problem]:
    written = trial.written
    if trial.error:
        yield Problem("storage.trial", trial.error)
    if written and not written["renamed"]:
        yield Problem("storage.rename", "a file that another one was renamed to has its old content")
    if written and written["uid"] != written["seen_uid"]:
        yield Problem("storage.owner", f"a file of user {written['uid']} belongs to user {written['seen_uid']} there")


def _lock_problems(trial: TrialResult, trials: Mapping[str, TrialResult]) -> Iterator[Problem]:
    if "locks" in trial.written:
        missing = [kind for kind in ("flock", "fcntl") if kind not in trial.written["locks"]]
        if missing:
            yield Problem("storage.locks", f"{' and '.join(missing)} does not work")
    held_kinds = {kind for result in trials.values() for kind in result.written.get("locks", ())}
    for kind, state in trial.locks.items():
        if kind in held_kinds and state != "held":
            effect = "this machine gets it, too" if state == "free" else "it fails on this machine"
            yield Problem("storage.locks", f"another machine holds a lock ({kind}), and {effect}")


def _read_problems(trial: TrialResult, trials: Mapping[str, TrialResult]) -> Iterator[Problem]:
    for other, seen in trial.seen.items():
        written = trials[other].written if other in trials else {}
        if not written:
            # It did not take part.
            continue
        if seen["seconds"] is None:
            yield Problem("storage.canary", f"it does not see the file that {other} has written")
        elif not seen["right"]:
            yield Problem("storage.canary", f"it does not read what {other} has written")
        elif seen["uid"] != written["seen_uid"]:
            user = f"user {seen['uid']} as owner of a file that belongs to user {written['seen_uid']} on {other}"
            yield Problem("storage.owner", f"it sees {user}")
        elif seen["seconds"] > LATE_SECONDS:
            late = f"after {seen['seconds']:.0f} s, expected {LATE_SECONDS:.0f} s at most"
            yield Problem("storage.late", f"it sees the file of {other} {late}")
