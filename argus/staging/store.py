# SPDX-License-Identifier: Apache-2.0
"""Stages a directory or link once, completely or not at all, and removes it when no job uses it."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath

from ..archive.archive import Archive, archives
from ..archive.program import Program
from ..common.shared_root import CODE_DIR, DATASETS_DIR, DEFAULT_SHARED_ROOT, HUB_CACHE, JOBS_DIR, MODELS_DIR, full_path
from ..io.reading import UnreadableError
from .files import check_space, make_writable, remove_tree, sync_all
from .hub import delete_revision
from .lock import Progress, hold_lock, lock_file, try_lock
from .manifest import (
    ADDED,
    Facts,
    FileEntry,
    Manifest,
    Staged,
    Status,
    check_facts,
    list_files,
    manifest_beside,
    manifest_file,
    notes,
    problems,
    protect,
    read_manifest,
)
from .options import StageOptions, StagingError, as_staging_errors, join_items

# The jobs that use staged items, according to their archives.

# The keys of a JobSpec that name something staged, and the directory of such names below the shared root.
USES = {"code_path": CODE_DIR, "model": MODELS_DIR, "dataset": DATASETS_DIR}


def used_by(shared_root: Path) -> dict[PurePosixPath, list[str]]:
    """The submission ids of jobs that have not ended, by the paths that they use relative to the shared root."""
    jobs_by_path: dict[PurePosixPath, list[str]] = {}
    for archive in open_archives(shared_root):
        try:
            paths = sorted(set(uses(archive.read_jobspec())))
        except (ValueError, RecursionError):
            # Nested too deeply, or not a path.
            continue
        for path in paths:
            jobs_by_path.setdefault(path, []).append(archive.submission_id)
    return jobs_by_path


def programs(shared_root: Path) -> list[str]:
    """The names of the versions of the program with which jobs were submitted that have not ended."""
    return sorted({name for archive in open_archives(shared_root) if (name := Program.recorded(archive))})


def uses(spec: Mapping[str, object]) -> Iterator[PurePosixPath]:
    """The paths that a JobSpec names, relative to the shared root, which nodes may see at another path than we do."""
    root = PurePosixPath(str(spec.get("shared_root", DEFAULT_SHARED_ROOT)))
    for key, home in USES.items():
        if spec.get(key):
            path = PurePosixPath(full_path(str(spec[key]), str(root), home))
            if path.is_relative_to(root):
                yield path.relative_to(root)
    # A reward model, or the data of further datasets, is named in trainer_overrides or env_vars.
    text = json.dumps(spec, ensure_ascii=False)
    for home, name in re.findall(rf"{re.escape(str(root))}/({'|'.join(USES.values())})/([\w.-]+)", text):
        yield PurePosixPath(home, name)


def users(shared_root: Path, target: Path) -> list[str]:
    """The submission ids of jobs that have not ended and use a target, or something in it."""
    relative = PurePosixPath(target.relative_to(shared_root))
    return sorted({job for path, jobs in used_by(shared_root).items() if path.is_relative_to(relative) for job in jobs})


def open_archives(shared_root: Path) -> list[Archive]:
    """The archives of jobs that have not ended; one whose state cannot be read has not.

    A job can write anything into its archive, and must not make staging fail. What is lost is only the protection of
    what this job itself uses.
    """
    unfinished: list[Archive] = []
    with contextlib.suppress(UnreadableError):
        for archive in archives(shared_root / JOBS_DIR):
            state = archive.state()
            if not (state and state.ended):
                unfinished.append(archive)
    return unfinished


# Staging: a directory or link under the shared root is created once, completely or not at all, with its manifest.

# The name of a build that was killed, with its target's name in it.
LEFTOVER = re.compile(r"\.(?P<name>.+)\.staging-[0-9a-f]{8}(\.manifest\.json)?")


@dataclass(frozen=True)
class Built:
    """The result of a build in its directory.

    facts: what the manifest has besides the files. hashes: the SHA-256 of every file that belongs to it, by relative
    path; None if the build has not computed them.
    """

    facts: Facts = field(default_factory=dict)
    hashes: Mapping[str, str] | None = None


# Fills the empty directory that it is given, or replaces it by a link to another directory.
Build = Callable[[Path, Progress], Built]


@dataclass(frozen=True)
class BuildRequest:
    """Something that shall exist under the shared root, and how to build it.

    difference: why a manifest is not of what is requested; empty if it is. read_only: remove write permissions, so that
    an import cannot change it. size: how many bytes it will take, as far as that is known in advance.
    """

    kind: str
    name: str
    target: Path
    build: Build
    difference: Callable[[Manifest], str] = lambda manifest: ""
    read_only: bool = False
    size: Callable[[], int] = lambda: 0

    def result(self, status: Status, notes: Sequence[str] = ()) -> Staged:
        return Staged(self.kind, self.name, str(self.target), status, tuple(notes))


def stage(request: BuildRequest, options: StageOptions | None = None) -> Staged:
    """Creates the target once; if it exists, it is verified."""
    options = options or StageOptions()
    with as_staging_errors(request.target, "staged"):
        differences = examine(request, options)
        if differences is None:
            check_space(request.target, request.size())
        elif not differences:
            if not options.check:
                tidy(request.target)
            return request.result(Status.EXISTS)
        if options.check:
            return request.result(Status.STAGED if differences is None else Status.REPAIRED, notes(differences or {}))
        with hold_lock(request.target) as progress:
            # The previous holder of the lock may have done it.
            differences = examine(request, options)
            if differences is None:
                return create(request, progress)
            return repair(request, progress, differences) if differences else request.result(Status.EXISTS)


def examine(request: BuildRequest, options: StageOptions) -> dict[str, str] | None:
    """The files that are not as they were staged, and may be repaired; None if there is no target.

    Raises StagingError if it is something else, or if they may not be repaired.
    """
    target = request.target
    manifest = read_manifest(target)
    if manifest is None:
        return None
    if manifest.kind != request.kind:
        raise StagingError(target, f"is of kind {manifest.kind}, not {request.kind}.", "Choose another name.")
    difference = request.difference(manifest)
    if difference:
        remedy = "Staged content never changes: choose another name, or remove it first (state: absent)."
        raise StagingError(target, difference, remedy)
    differences = problems(target, manifest, full=options.full)
    remedy = "Restore it as it was staged with -e staging_repair=true."
    if added := ADDED in differences.values():
        remedy = "Move the added files away; -e staging_repair=true restores the others as they were staged."
    if differences and (added or not options.repair):
        raise StagingError(target, f"no longer fits its manifest: {', '.join(notes(differences))}.", remedy)
    return differences


def create(request: BuildRequest, progress: Progress) -> Staged:
    """Builds beside the target, and renames."""
    with built_directory(request, progress) as building:
        if building.is_symlink():
            # A link is complete as soon as it exists: its manifest comes first.
            manifest_beside(building).rename(manifest_beside(request.target))
            request.target.symlink_to(building.readlink())
        else:
            building.rename(request.target)
        sync_all(request.target.parent)
    return request.result(Status.STAGED)


def repair(request: BuildRequest, progress: Progress, differences: Mapping[str, str]) -> Staged:
    """Builds it again, and replaces the files that were changed or lost."""
    target = request.target
    files = (read_manifest(target) or Manifest()).files
    with built_directory(request, progress) as building:
        rebuilt = (read_manifest(building) or Manifest()).files
        changed = [name for name, entry in files.items() if name not in rebuilt or rebuilt[name].sha256 != entry.sha256]
        if changed:
            problem = f"cannot be repaired: its source has other content now ({join_items(changed)})."
            raise StagingError(target, problem, "Remove it (state: absent) and stage it again, or choose another name.")
        if target.is_symlink():
            # The build has repaired the link's destination; the link may have pointed elsewhere.
            for name in differences:
                set_mtime(building / name, files[name])
            building.replace(target)
        else:
            try:
                for directory in (building, target):
                    make_writable(directory)
                for name in differences:
                    set_mtime(building / name, files[name])
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (building / name).replace(target / name)
            finally:
                if request.read_only:
                    protect(target)
            sync_all(target)
    return request.result(Status.REPAIRED, notes(differences))


def set_mtime(path: Path, entry: FileEntry) -> None:
    """Sets the modification time that the manifest has, so that verification need not read the file."""
    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))


@contextlib.contextmanager
def built_directory(request: BuildRequest, progress: Progress) -> Iterator[Path]:
    """The finished directory with its manifest, on disk, beside the target; it is removed if it is still there at the
    end."""
    target = request.target
    remove_leftovers(target)
    building = beside(target)
    # Not tempfile.mkdtemp: its mode 0700 would exclude the users of the nodes.
    building.mkdir()
    try:
        progress.begin("building")
        content = request.build(building, progress)
        progress.begin("writing to disk")
        files = list_files(building, content.hashes)
        facts = {
            "kind": request.kind,
            "name": request.name,
            **content.facts,
            "staged_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "staged_on": socket.gethostname(),
            "bytes": sum(entry.size for entry in files.values()),
        }
        try:
            check_facts(facts)
        except ValueError as error:
            remedy = "Use a source whose name and path are short and have printable characters only."
            raise StagingError(target, f"cannot be described in a manifest: {error}.", remedy) from error
        manifest_file(building).write_text(Manifest(facts, files).text(), encoding="utf-8")
        if request.read_only:
            protect(building)
        sync_all(building)
        if building.is_symlink():
            # The link's destination may be on another file system.
            sync_all(building.parent)
        yield building
    finally:
        remove_leftovers(target)


def beside(target: Path) -> Path:
    """A free name beside the target: a sibling is on the same file system, where a rename is atomic."""
    return target.with_name(f".{target.name}.staging-{secrets.token_hex(4)}")


def remove_leftovers(target: Path) -> None:
    """Removes what builds of a target have left; only for the holder of its lock."""
    if not os.path.lexists(target):
        manifest_beside(target).unlink(missing_ok=True)
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.staging-*"):
        match = LEFTOVER.fullmatch(leftover.name)
        if match and match["name"] == target.name:
            remove_tree(leftover)


def tidy(target: Path) -> None:
    """Removes what a process has left that was killed at its very end; nothing if the lock is held."""
    file = lock_file(target)
    # A user without write permission has nothing to tidy up.
    with contextlib.suppress(OSError):
        if file.exists() and (lock := try_lock(file)) is not None:
            try:
                remove_leftovers(target)
                file.unlink()
            finally:
                os.close(lock)


def remove(shared_root: Path, kind: str, name: str, target: Path, *, check: bool = False) -> Staged:
    """Removes a target unless jobs use it."""
    result = partial(Staged, kind, name, str(target))
    with as_staging_errors(target, "removed"):
        manifest = read_manifest(target)
        if manifest is None:
            if not check:
                tidy(target)
            return result(Status.ABSENT)
        if manifest.kind != kind:
            raise StagingError(target, f"is of kind {manifest.kind}, not {kind}.", "Nothing was removed.")
        with contextlib.nullcontext() if check else hold_lock(target):
            # The previous holder of the lock may have done it.
            if not os.path.lexists(target):
                return result(Status.ABSENT)
            using = users(shared_root, target)
            if using:
                remedy = "Wait until these jobs have ended, or stop them (stop.yml)."
                raise StagingError(target, f"is used by {', '.join(using)}.", remedy)
            if not check:
                # The rename removes it at once, even if deleting its files fails.
                target.rename(beside(target))
                remove_leftovers(target)
        return result(Status.REMOVED)


def remove_downloaded(shared_root: Path, kind: str, name: str, target: Path, *, check: bool = False) -> Staged:
    """Removes something that may have been downloaded from the hub, and its commit unless another item needs it."""
    manifest = None if check else read_manifest(target)
    removed = remove(shared_root, kind, name, target, check=check)
    if not manifest or not manifest.commit or removed.status is not Status.REMOVED:
        return removed
    if not any(needs(path, manifest) for path in target.parent.iterdir()):
        repo_type = "model" if kind == "model" else "dataset"
        delete_revision(shared_root / HUB_CACHE, manifest.source, manifest.commit, repo_type)
    return removed


def needs(path: Path, manifest: Manifest) -> bool:
    """Whether an item needs the commit of a manifest; it may be a link that was created by hand."""
    other = None
    # A directory that was not staged has none.
    with contextlib.suppress(StagingError):
        other = read_manifest(path)
    same = other is not None and (other.source, other.commit) == (manifest.source, manifest.commit)
    return same or path.resolve().name == manifest.commit
