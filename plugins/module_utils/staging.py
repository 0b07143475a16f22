# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories under the shared root that are made once: whole or not at all, each with its manifest."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import hashlib
import json
import operator
import os
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from ansible_collections.argus.verl.plugins.module_utils.findings import Finding, duration, size_text

A = TypeVar("A")
B = TypeVar("B")
MANIFEST = "manifest.json"
STAGED, EXISTS, REPAIRED, REMOVED, ABSENT = "staged", "exists", "repaired", "removed", "absent"
# Not made, because it may take long and that was not wanted; not made, because something is wrong.
DEFERRED, REFUSED = "deferred", "refused"

# What a build that was killed leaves behind. It is hidden, and its name tells whose it is.
LOCK = re.compile(r"\.(?P<name>.+)\.lock")
LEFTOVER = re.compile(r"\.(?P<name>.+)\.staging-[0-9a-f]{8}(\.manifest\.json)?")
# How often who waits looks whether the lock is free, and how often its holder tells how far it is.
LOCK_SECONDS, PROGRESS_SECONDS = 0.2, 1.0
# A holder that is alive tells more often; on a shared root that stands still nobody does.
SILENT_SECONDS = 600.0
# For what reads or writes much.
THREADS = 4
# For calls on a network file system, which wait more than they work; on a local disk one takes 0.02 to 0.05 ms.
CALLS = 8
ALONE_SECONDS, SLOW_SECONDS = 0.005, 0.0002
# Of a file that somebody else removed, NFS may say that its handle is stale.
GONE = (errno.ENOENT, errno.ESTALE)
NAMED_FILES = 20
ADDED = "is not in the manifest"

# In lower case, the form of a submission id: a name of a dataset ends up in paths, tags and commands.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
# Models and code ids come with capitals (Qwen2.5-0.5B-Instruct).
NAME_WITH_CAPITALS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

# What all modules that stage something take.
OPTIONS: dict[str, dict[str, Any]] = {
    "shared_root": {"type": "path", "default": "/private"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "repair": {"type": "bool", "default": False},
    "verify": {"type": "str", "choices": ["quick", "full"], "default": "quick"},
    "defer": {"type": "bool", "default": False},
}


class StagingError(Exception):
    """Says where something is wrong, what it is, and what to do about it."""

    def __init__(self, where: object, what: str, todo: str) -> None:
        super().__init__(f"{where}: {what} {todo}")
        self.finding = Finding(str(where), what, todo)


@dataclass(frozen=True)
class Staged:
    """One thing under the shared root, and what became of it.

    kind: what it is, for example "model".
    status: "staged" when it was made now, "repaired" when files of it were put right, "removed" when it was removed
        (each: or would be, in check mode), "exists" or "absent" when nothing was to be done.
    """

    kind: str
    name: str
    path: str
    status: str
    # What was repaired or is worth knowing, a line each.
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.status in (STAGED, REPAIRED, REMOVED)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "notes": list(self.notes)}


def refusal(error: Exception) -> dict[str, Any]:
    """What a module fails with: the message, and what is wrong, where, and what to do as a finding."""
    finding = error.finding if isinstance(error, StagingError) else Finding("staging", str(error), "see the message")
    return {"msg": str(error), "finding": finding.as_dict()}


def how(given: Mapping[str, Any], *, check: bool) -> dict[str, bool]:
    """The options that all modules have, as stage takes them."""
    return {"check": check, "repair": given["repair"], "full": given["verify"] == "full", "defer": given["defer"]}


def outcome(staged: Staged, manifest: Mapping[str, Any] | None, details: Sequence[str]) -> dict[str, Any]:
    """What all modules return, but for the name; and those details of the manifest that it has."""
    return {
        "changed": staged.changed,
        "path": staged.path,
        "status": staged.status,
        "notes": list(staged.notes),
        "diff": difference([staged]),
        **{name: manifest[name] for name in details if manifest and name in manifest},
    }


def difference(results: Iterable[Staged]) -> dict[str, str]:
    """Ansible's diff: what was there before, and what is there now."""
    results = list(results)
    return {
        "before": "".join(f"{each.kind} {each.path}\n" for each in results if each.status not in (STAGED, ABSENT)),
        "after": "".join(f"{each.kind} {each.path}\n" for each in results if each.status not in (REMOVED, ABSENT)),
    }


def check_name(kind: str, name: str, allowed: re.Pattern[str] = NAME) -> str:
    """The name itself, when it is fit to be a directory under the shared root."""
    if not allowed.fullmatch(name):
        raise StagingError(kind, f'the name "{name}" is not allowed.', f"Choose one that matches {allowed.pattern}")
    return name


def check_shared_root(shared_root: Path) -> Path:
    """The shared root itself. It is never made: where it is missing it is not mounted, and a local disk would fill."""
    if not shared_root.is_dir():
        raise StagingError(
            f'shared_root "{shared_root}"', "is no directory here.", "Mount or make it first, or correct its path."
        )
    return shared_root


def check_space(directory: Path, size: int) -> None:
    """Whether `size` further bytes fit where a directory is, or will be."""
    while not directory.exists():
        directory = directory.parent
    free = shutil.disk_usage(directory).free
    if size > free:
        raise StagingError(
            directory,
            f"has {size_text(free)} free, and {size_text(size)} are needed.",
            "Make room: stage_gc.yml removes snapshots that nobody uses, staged.yml shows what is there.",
        )


# --- Manifests -------------------------------------------------------------------------------------------------------


def manifest_file(target: Path) -> Path:
    """In the directory; of a link beside it, because what it points at is not ours."""
    return manifest_beside(target) if target.is_symlink() else target / MANIFEST


def manifest_beside(target: Path) -> Path:
    return target.with_name(f".{target.name.removeprefix('.')}.{MANIFEST}")


def manifest_of(target: Path) -> dict[str, Any] | None:
    """What the manifest of a staged directory says; None when there is nothing of that name."""
    # A dangling link occupies the name too.
    if not os.path.lexists(target):
        return None
    file = manifest_file(target)
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise StagingError(
            target, f"exists, but was not staged: it has no {file.name}.", "Choose another name, or move it away."
        ) from None
    except OSError as error:
        raise StagingError(
            target, f"cannot be read ({error}).", f"Give user id {os.geteuid()} permission to read it."
        ) from error
    except ValueError as error:
        raise StagingError(
            file, f"is not readable as JSON ({error}).", f"Remove {target} and stage it again."
        ) from error
    if not isinstance(manifest, dict):
        raise StagingError(file, "is not a mapping.", f"Remove {target} and stage it again.")
    return manifest


def replace_manifest(target: Path, manifest: Mapping[str, Any]) -> None:
    """Say something else of the files that are there; for who holds the lock."""
    written = manifest_beside(beside(target))
    try:
        written.write_text(manifest_text(manifest), encoding="utf-8")
        sync(written)
        written.replace(manifest_file(target))
    finally:
        remove_leftovers(target)
    sync(target)


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """JSON for people, with a line for each file."""
    # The last key, whose empty value can be cut off.
    last = {key: value for key, value in manifest.items() if key != "files"} | {"files": {}}
    own = json.dumps(last, indent=1, ensure_ascii=False)
    files = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in manifest["files"].items()]
    listed = "{\n" + ",\n".join(files) + "\n }" if files else "{}"
    return own.removesuffix("{}\n}") + listed + "\n}\n"


def each(function: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """The results for all items, in their order.

    Threads help where calls wait, on a network file system or for a large file; on a local disk they would only get in
    each other's way. So one begins, and the others join when it is slow.
    """
    results: list[Any] = [None] * len(items)
    # Taking the next one is atomic.
    places = iter(range(len(items)))
    over = threading.Event()

    def work() -> None:
        for place in places:
            results[place] = function(items[place])

    def join() -> None:
        if over.wait(ALONE_SECONDS):
            return
        done = len(items) - operator.length_hint(places)
        if done * SLOW_SECONDS < ALONE_SECONDS:
            with ThreadPoolExecutor(CALLS - 1) as pool:
                for other in [pool.submit(work) for _dummy in range(CALLS - 1)]:
                    other.result()

    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(join)
        try:
            work()
        finally:
            over.set()
        joining.result()
    return results


def list_files(
    directory: Path, known: Mapping[str, str] | None = None, *, read_only: bool = False
) -> dict[str, dict[str, Any]]:
    """Size, time of change and SHA-256 of the files below a directory, by their relative paths, in order.

    known: the files that count with their hashes, if somebody knows them; otherwise all are looked for and read.
    read_only: take the permissions to write away as well.
    """

    def entry(name: str) -> dict[str, Any]:
        path = f"{directory}/{name}"
        stat = os.stat(path)
        # One that other snapshots have as well may be another user's, and is read-only already.
        if read_only and stat.st_mode & 0o777 != 0o444:
            os.chmod(path, 0o444)
        sha256 = file_sha256(path) if known is None else known[name]
        return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256}

    names = sorted(files_below(directory) if known is None else known)
    return dict(zip(names, each(entry, names), strict=True))


def files_below(directory: Path) -> Iterator[str]:
    """The relative paths of all files, of links and of what is no directory either, below a directory."""
    return (name for name, _entry in entries_below(directory, lambda _name: False))


def entries_below(directory: Path, leave: Callable[[str], bool]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What is no directory below a directory, with its relative path; `leave`: files and directories not to look at."""

    def scan(prefix: str) -> tuple[list[tuple[str, os.DirEntry[str]]], list[str]]:
        files, directories = [], []
        with os.scandir(directory / prefix) as entries:
            for entry in entries:
                if leave(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    directories.append(f"{prefix}{entry.name}/")
                else:
                    files.append((prefix + entry.name, entry))
        return files, directories

    level = [""]
    while level:
        scanned = each(scan, level)
        level = []
        for files, directories in scanned:
            yield from files
            level += directories


def directories_of(names: Iterable[str]) -> list[str]:
    """The directories in which files lie, by relative paths; the outer ones come first."""
    found: set[str] = set()
    for name in names:
        parent = name.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return sorted(found, key=lambda path: (path.count("/"), path))


def file_sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def problems(target: Path, manifest: Mapping[str, Any], *, full: bool = False) -> dict[str, str]:
    """What no longer fits the manifest, by file.

    A file of which size and time of change are as they were is taken for unchanged, as rsync does, unless `full`.
    """
    expected: Mapping[str, Mapping[str, Any]] = manifest.get("files", {})

    def problem(name: str) -> str:
        path, entry = f"{target}/{name}", expected[name]
        try:
            stat = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return "is missing"
        if stat.st_size != entry["size"]:
            return f"has {stat.st_size} bytes, not {entry['size']}"
        if (full or stat.st_mtime_ns != entry.get("mtime_ns")) and file_sha256(path) != entry["sha256"]:
            return "has other content"
        return ""

    names = sorted(expected)
    # Of what a link points at others may have more. What an import leaves changes nothing for who uses it. Before the
    # files themselves, because NFS then has what it is asked of most of them.
    there = () if target.is_symlink() else (name for name, _entry in entries_below(target, is_litter))
    extra = sorted({*there} - {*names, MANIFEST})
    found = dict(zip(names, each(problem, names), strict=True)) | dict.fromkeys(extra, ADDED)
    return {name: what for name, what in found.items() if what}


def is_litter(name: str) -> bool:
    """What tools leave in a source tree, and what differs from one import to the next."""
    return any(part in (".git", "__pycache__") or part.endswith((".pyc", ".egg-info")) for part in name.split("/"))


def named(files: Mapping[str, str]) -> str:
    """Files and what is wrong with each, as text; of very many the first."""
    said = [f"{name} {what}" for name, what in files.items()]
    more = f", and {len(said) - NAMED_FILES} more" if len(said) > NAMED_FILES else ""
    return ", ".join(said[:NAMED_FILES]) + more


# --- The lock, and how far its holder is -----------------------------------------------------------------------------


class Progress:
    """How far a build is, written where everybody who waits for it can read it."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.started_at = time.time()
        self.what = ""
        self.total = 0
        self.done = 0
        self.counting = threading.Lock()

    def begin(self, what: str, total: int = 0) -> None:
        """What is done now; `total` in bytes, when it is known."""
        self.what, self.total, self.done, self.started_at = what, total, 0, time.time()
        self.write()

    def add(self, size: int) -> None:
        """So many bytes more are done; from any thread."""
        with self.counting:
            self.done += size

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """Written every second, also while nothing can be counted: a holder that lives is heard of."""
        over = threading.Event()

        def write() -> None:
            self.write()
            while not over.wait(PROGRESS_SECONDS):
                self.write()

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join()

    def write(self) -> None:
        if self.file is None:
            return
        said = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "what": self.what,
            "done": self.done,
            "total": self.total,
            "started_at": self.started_at,
            "time": time.time(),
        }
        # In place: the file is the lock. Who reads half of it reads again.
        with contextlib.suppress(OSError), self.file.open("r+", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")
            file.truncate()


def lock_file(target: Path) -> Path:
    """What is locked while a target is made; also where its progress is."""
    return target.with_name(f".{target.name}.lock")


def read_progress(target: Path) -> dict[str, Any] | None:
    """How far somebody is who stages the target now, as Progress writes it."""
    try:
        # Of what was longer the end may still be there.
        said = json.loads(lock_file(target).read_text(encoding="utf-8").partition("\n")[0])
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def progress_line(said: Mapping[str, Any]) -> str:
    """One line of how far somebody is, from what Progress wrote."""
    parts = [f"{said['what'] or 'beginning'} on {said['host']}"]
    done, total, seconds = said["done"], said["total"], said["time"] - said["started_at"]
    if total:
        parts.append(f"{size_text(done)} of {size_text(total)} ({100 * done // total} %)")
    elif done:
        parts.append(size_text(done))
    if done and seconds > 0:
        rate = done / seconds
        parts.append(f"{size_text(rate)}/s")
        if total > done:
            parts.append(f"{duration((total - done) / rate)} left")
    return ", ".join(parts)


def is_held(target: Path) -> bool:
    """Whether somebody makes a target now; who begins in this moment waits for the next one."""
    try:
        with lock_file(target).open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        # What may not be read, or not be locked, is somebody's.
        return error.errno not in GONE
    return False


@contextlib.contextmanager
def locked(target: Path) -> Iterator[Progress]:
    """Hold the right to make a target, on all machines that see it; the kernel frees it when its holder dies."""
    file = lock_file(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    silent_since, last = time.monotonic(), None
    while True:
        lock = file.open("a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            now = read_progress(target)
            if now != last:
                silent_since, last = time.monotonic(), now
            if time.monotonic() - silent_since > SILENT_SECONDS:
                holder = f"{last['host']}, process {last['pid']}" if last else "somebody"
                raise StagingError(
                    target,
                    f"is being staged by {holder}, of which nothing was heard for {SILENT_SECONDS:.0f} s.",
                    "See what that process waits for, or end it.",
                ) from None
            time.sleep(LOCK_SECONDS)
            continue
        # Whoever held it has removed the file that was opened here.
        if is_at(file, lock.fileno()):
            break
        lock.close()
    with lock:
        progress = Progress(file)
        try:
            with progress.written():
                yield progress
        finally:
            file.unlink(missing_ok=True)


def is_at(file: Path, descriptor: int) -> bool:
    """Whether what is open is what has this name now."""
    # NFS then asks its server; otherwise it answers from memory for some seconds.
    os.close(os.open(file.parent, os.O_RDONLY))
    try:
        return os.fstat(descriptor).st_ino == file.stat().st_ino
    except OSError as error:
        if error.errno not in GONE:
            raise
        return False


def tidy(target: Path) -> None:
    """Remove what somebody has left who was killed when all was done; who is at work now needs it, and stays alone."""
    file = lock_file(target)
    # Whoever may not write there has nothing to tidy up.
    with contextlib.suppress(OSError), file.open("r+", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_at(file, lock.fileno()):
            remove_leftovers(target)
            file.unlink()


# --- Staging ---------------------------------------------------------------------------------------------------------

# Fills the empty directory that it is given, or puts a link to another one in its place, and returns what the manifest
# shall say besides the files; if it knows them, all that count, by relative path, with their SHA-256 as "hashes".
Build = Callable[[Path, Progress], Mapping[str, Any]]


@dataclass(frozen=True)
class Request:
    """Something that is to be under the shared root, and how it is made."""

    kind: str
    name: str
    target: Path
    build: Build
    # Why a manifest is not of what is asked for; nothing when it is.
    differs: Callable[[Mapping[str, Any]], str] = lambda manifest: ""
    # Whoever imports from it cannot change it by accident.
    read_only: bool = False
    # How many bytes it will take, as far as that is known before.
    size: Callable[[], int] = lambda: 0
    # Whether it is made in a moment.
    quick: bool = False

    def result(self, status: str, notes: Sequence[str] = ()) -> Staged:
        return Staged(self.kind, self.name, str(self.target), status, tuple(notes))


def stage(
    request: Request, *, check: bool = False, repair: bool = False, full: bool = False, defer: bool = False
) -> Staged:
    """Make it once; what is there is verified.

    check: only say what would become of it.
    repair: put files right that no longer fit the manifest; without it they are an error that names them.
    full: verify content, even of files that look unchanged.
    defer: leave what may take longer than a moment undone, and say so.
    """
    with reported(request.target, "staged"):
        wrong = examine(request, full, repair)
        if wrong is None:
            check_space(request.target, request.size())
        elif not wrong:
            if not check:
                tidy(request.target)
            return request.result(EXISTS)
        if check:
            return request.result(STAGED if wrong is None else REPAIRED, notes(wrong))
        if defer and not request.quick:
            return request.result(DEFERRED)
        with locked(request.target) as progress:
            # Whoever held the lock before may have done it.
            wrong = examine(request, full, repair)
            if wrong is None:
                return make(request, progress)
            return mend(request, progress, wrong) if wrong else request.result(EXISTS)


def examine(request: Request, full: bool, repair: bool) -> dict[str, str] | None:
    """As compare; what may not be repaired is an error."""
    wrong = compare(request, full)
    if wrong and (not repair or ADDED in wrong.values()):
        raise StagingError(
            request.target,
            f"no longer fits its manifest: {named(wrong)}.",
            "Move away what was added; the rest is put back as it was staged with -e staging_repair=true."
            if ADDED in wrong.values()
            else "Put it back as it was staged with -e staging_repair=true.",
        )
    return wrong


def compare(request: Request, full: bool) -> dict[str, str] | None:
    """What of a target is not as it was staged; None when there is no target, an error when it is something else."""
    manifest = manifest_of(request.target)
    if manifest is None:
        return None
    kind = manifest.get("kind")
    if kind != request.kind:
        raise StagingError(request.target, f"is of kind {kind}, not {request.kind}.", "Choose another name.")
    differs = request.differs(manifest)
    if differs:
        raise StagingError(
            request.target, differs, "What is staged never changes: choose another name, or remove it (state: absent)."
        )
    return problems(request.target, manifest, full=full)


def notes(wrong: Mapping[str, str] | None) -> list[str]:
    return [f"{name} {what}" for name, what in (wrong or {}).items()]


def make(request: Request, progress: Progress) -> Staged:
    """Build beside the target, and rename."""
    with built(request, progress) as building:
        try:
            if building.is_symlink():
                publish_link(building, request.target)
            else:
                building.rename(request.target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
                raise
            # Where locks do not reach to all machines, somebody else was faster; theirs has to be what was asked for.
            examine(request, full=False, repair=False)
            return request.result(EXISTS)
    sync(request.target.parent)
    return request.result(STAGED)


def publish_link(building: Path, target: Path) -> None:
    """A link counts when it is there: its manifest goes before it, and nothing that has the name is replaced."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    manifest_beside(building).rename(manifest_beside(target))
    target.symlink_to(building.readlink())


def mend(request: Request, progress: Progress, wrong: Mapping[str, str]) -> Staged:
    """Build it again, and put those files in place that were changed or lost."""
    target = request.target
    files = (manifest_of(target) or {}).get("files", {})
    with built(request, progress) as building:
        again = (manifest_of(building) or {}).get("files", {})
        other = [name for name in files if again.get(name, {}).get("sha256") != files[name]["sha256"]]
        if other:
            raise StagingError(
                target,
                f"cannot be repaired: its source gives other content now ({', '.join(other[:NAMED_FILES])}).",
                "Remove it (state: absent) and stage it again, or choose another name.",
            )
        if target.is_symlink():
            # What it points at was put right by the build; perhaps it pointed elsewhere.
            for name in wrong:
                keep_time(building / name, files[name])
            building.replace(target)
            return request.result(REPAIRED, notes(wrong))
        for name in wrong:
            for parent in reversed(Path(name).parents):
                if not (target / parent).exists():
                    with writable((target / parent).parent):
                        (target / parent).mkdir()
                    shutil.copymode(building / parent, target / parent)
            with writable((target / name).parent), writable((building / name).parent):
                keep_time(building / name, files[name])
                (building / name).replace(target / name)
                sync(target / name)
    return request.result(REPAIRED, notes(wrong))


def keep_time(path: Path, entry: Mapping[str, Any]) -> None:
    """A file that looks as its manifest says need not be read again."""
    time_ns = entry.get("mtime_ns", time.time_ns())
    os.utime(path, ns=(time_ns, time_ns))


@contextlib.contextmanager
def built(request: Request, progress: Progress) -> Iterator[Path]:
    """The finished directory with its manifest, on disk, beside its place; if it is still there at the end, it goes."""
    target = request.target
    remove_leftovers(target)
    building = beside(target)
    # Not tempfile.mkdtemp: its mode 0700 would shut out the nodes' users.
    building.mkdir()
    try:
        progress.begin("building")
        said = dict(request.build(building, progress))
        hashes = said.pop("hashes", None)
        progress.begin("writing to disk")
        files = list_files(building, hashes, read_only=request.read_only)
        manifest = {
            "kind": request.kind,
            "name": request.name,
            **said,
            "staged_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "staged_on": socket.gethostname(),
            "bytes": sum(entry["size"] for entry in files.values()),
            "files": files,
        }
        manifest_file(building).write_text(manifest_text(manifest), encoding="utf-8")
        if request.read_only:
            protect(building, files)
        sync_all(building)
        if building.is_symlink():
            # What it points at may be on another file system.
            sync_all(building.parent)
        yield building
    finally:
        remove_leftovers(target)


def beside(target: Path) -> Path:
    """A name that is free; a sibling is on the same file system, where a rename is atomic."""
    return target.with_name(f".{target.name}.staging-{secrets.token_hex(4)}")


def remove_leftovers(target: Path) -> None:
    """What a build leaves, and what killed ones have left; under the lock nobody else is at work on it."""
    if not os.path.lexists(target):
        manifest_beside(target).unlink(missing_ok=True)
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.staging-*"):
        match = LEFTOVER.fullmatch(leftover.name)
        if match and match["name"] == target.name:
            remove_tree(leftover)


def protect(directory: Path, names: Iterable[str]) -> None:
    """Take the permissions to write away from a directory with its manifest, and from those in which its files lie."""
    (directory / MANIFEST).chmod(0o444)
    each(lambda name: (directory / name).chmod(0o555), [*directories_of(names), "."])


@contextlib.contextmanager
def writable(directory: Path) -> Iterator[None]:
    """Directories that are read-only for their owner too, for the time of a change."""
    mode = directory.stat().st_mode
    directory.chmod(mode | 0o200)
    try:
        yield
    finally:
        directory.chmod(mode)


def remove(kind: str, name: str, target: Path, users: Callable[[], Sequence[str]], *, check: bool = False) -> Staged:
    """Remove something staged, unless jobs use it; `users` are their submission ids."""
    with reported(target, "removed"):
        manifest = manifest_of(target)
        if manifest is None:
            if not check:
                tidy(target)
            return Staged(kind, name, str(target), ABSENT)
        if manifest.get("kind") != kind:
            raise StagingError(target, f"is of kind {manifest.get('kind')}, not {kind}.", "Nothing was removed.")
        with contextlib.nullcontext() if check else locked(target):
            # Whoever held the lock before may have done it.
            if not os.path.lexists(target):
                return Staged(kind, name, str(target), ABSENT)
            using = users()
            if using:
                todo = "Wait for the end of these jobs, or stop them (stop.yml)."
                raise StagingError(target, f"is used by {', '.join(using)}.", todo)
            if not check:
                # It goes at once, whatever happens to what is left of it.
                target.rename(beside(target))
                remove_leftovers(target)
        return Staged(kind, name, str(target), REMOVED)


@contextlib.contextmanager
def reported(target: Path, what: str) -> Iterator[None]:
    """Errors of the file system say where and what to do."""
    try:
        yield
    except OSError as error:
        todo = f"See that user id {os.geteuid()} may write there, and that its file system has room and locks."
        raise StagingError(target, f"cannot be {what}: {error}.", todo) from error


def sync_all(directory: Path) -> None:
    """Bring a file system to the disk: a rename must not survive a power cut that what is renamed does not."""
    # One call for thousands of files; Python has none for a single file system.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(directory))
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot do this for a directory, and then do not need it.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def remove_tree(directory: Path) -> None:
    """Remove one of our own directories, which may be read-only already; one of another user stays, and what a link
    points at."""
    if not directory.is_dir() or directory.is_symlink():
        directory.unlink(missing_ok=True)
        return
    for parent, _dummy, _dummy in os.walk(directory):
        try:
            Path(parent).chmod(0o700)
        except OSError:
            return
    shutil.rmtree(directory, ignore_errors=True)
