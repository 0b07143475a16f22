# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundle of an archive: packed where the shared root is, unpacked on the controller.

Jobs can write to archives, also while one is packed. The bundle holds regular files and nothing else, each read through
a descriptor that was opened once. And the controller trusts the machine that packed the bundle less than itself.
"""

from __future__ import annotations

import gzip
import os
import secrets
import shutil
import stat
import tarfile
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ..common.text import size_text
from ..launcher.reading import (
    DIRECTORY_FLAGS,
    MIB,
    UnreadableError,
    names_in,
    open_below,
    open_directory,
    open_regular,
    reason,
)
from ..launcher.schema import LATEST

CHECKPOINTS = "checkpoints"
# What one file and all files have at most: without checkpoints, and with them.
FILE_MIB, TOTAL_MIB = 2 << 10, 8 << 10
CHECKPOINT_FILE_MIB, CHECKPOINT_TOTAL_MIB = 64 << 10, 4 << 20
MOST_FILES = 200_000
MOST_LEVELS = 32
PATH_BYTES = 1024
# What a file has in a bundle besides its content: two headers, its path and the rest of a block.
HEADER_BYTES = 4096
# How many skipped files are named.
MOST_NAMED = 100
BLOCK = 1 << 20
DIRECTORY_MODE, FILE_MODE = 0o750, 0o640


class BundleError(Exception):
    """A bundle cannot be packed or unpacked. The message is for people."""


@dataclass(frozen=True)
class Limits:
    """The sizes in bytes that one file and all files have at most."""

    file: int
    total: int

    @property
    def bundle(self) -> int:
        """The size in bytes that a bundle has at most: with its headers, and with files that cannot be compressed."""
        return self.total + self.total // 1000 + MOST_FILES * HEADER_BYTES


def limits(checkpoints: bool, file_mib: int = 0, total_mib: int = 0) -> Limits:
    """The limits of a fetch; 0 stands for the default."""
    default = (CHECKPOINT_FILE_MIB, CHECKPOINT_TOTAL_MIB) if checkpoints else (FILE_MIB, TOTAL_MIB)
    return Limits((file_mib or default[0]) * MIB, (total_mib or default[1]) * MIB)


def shown(name: str) -> str:
    """The name of a file for people; a job may have put control characters into it."""
    return name if name.isprintable() else ascii(name)


# --- Packing ---------------------------------------------------------------------------------------------------------


class Packed:
    """What was packed so far, and what was skipped: ``<name>: <why>``."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.size = self.files = self.left_out = 0
        self.skipped: list[str] = []
        # The paths so far, by the form in which a file system of the controller may compare them.
        self.paths: dict[str, str] = {}

    def skip(self, name: str, why: str) -> None:
        if len(self.skipped) < MOST_NAMED:
            self.skipped.append(f"{shown(name)}: {why}")
        else:
            self.left_out += 1

    def report(self) -> list[str]:
        more = [f"{self.left_out} more"] if self.left_out else []
        return [*self.skipped, *more]

    def problem(self, name: str, size: int) -> str:
        """Why a file must not be packed, or an empty string."""
        paths = {folded(str(path)): str(path) for path in (PurePosixPath(name), *PurePosixPath(name).parents)}
        if folded(name) in self.paths or any(self.paths.get(key, path) != path for key, path in paths.items()):
            return "another name differs from it only by upper and lower case"
        if size > self.limits.file:
            return f"it has {size_text(size)}, more than {size_text(self.limits.file)}"
        if self.size + size > self.limits.total:
            return f"with its {size_text(size)}, all files would have more than {size_text(self.limits.total)}"
        if self.files >= MOST_FILES:
            return f"there are more than {MOST_FILES} files"
        self.paths |= paths
        self.size += size
        self.files += 1
        return ""


def folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


class Exactly:
    """A file that may grow or shrink while it is read, as one of exactly the size that it had in the beginning."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.missing = 0

    def read(self, size: int) -> bytes:
        try:
            data = self.file.read(size)
        except OSError:
            data = b""
        self.missing += size - len(data)
        return data.ljust(size, b"\0")


def pack(jobs: Path, submission_id: str, checkpoints: bool, size: Limits, file: BinaryIO) -> list[str]:
    """Write a compressed tar of an archive; returns what was skipped.

    While the job runs, files may grow or disappear meanwhile. Raises OSError if the bundle cannot be written, and
    BundleError if the archive cannot be read.
    """
    packed = Packed(size)
    try:
        directory = open_directory(jobs, submission_id)
    except (FileNotFoundError, UnreadableError) as error:
        raise BundleError(str(error)) from error
    # Level 1 shrinks logs tenfold; higher levels are usually slower than the network.
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as tar:
        try:
            for name, content in files_below(directory, "", checkpoints, packed):
                with content:
                    add(tar, name, content, packed)
        finally:
            os.close(directory)
    return packed.report()


def files_below(directory: int, prefix: str, checkpoints: bool, packed: Packed) -> Iterator[tuple[str, BinaryIO]]:
    """The files to fetch in order, opened for reading, without temporary files."""
    for entry in entries_of(directory, prefix, packed):
        name = f"{prefix}{entry}"
        if entry.startswith(".") or (name == CHECKPOINTS and not checkpoints):
            continue
        try:
            found = os.stat(entry, dir_fd=directory, follow_symlinks=False)
            why = unusable(name, found.st_mode)
            if why:
                packed.skip(name, why)
            elif stat.S_ISDIR(found.st_mode):
                below = os.open(entry, DIRECTORY_FLAGS, dir_fd=directory)
                try:
                    yield from files_below(below, f"{name}/", checkpoints, packed)
                finally:
                    os.close(below)
            else:
                yield name, open_regular(directory, entry)
        except FileNotFoundError:
            continue
        except OSError as error:
            packed.skip(name, f"it cannot be opened ({reason(error)})")


def entries_of(directory: int, prefix: str, packed: Packed) -> list[str]:
    try:
        return sorted(names_in(directory))
    except OSError as error:
        packed.skip(prefix or ".", f"it cannot be listed ({reason(error)})")
        return []


def unusable(name: str, mode: int) -> str:
    """Why a path cannot be in a bundle, or an empty string."""
    kinds = ((stat.S_ISLNK, "it is a link"), (stat.S_ISFIFO, "it is a FIFO"), (stat.S_ISSOCK, "it is a socket"))
    for is_kind, why in kinds:
        if is_kind(mode):
            return why
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return "it is a device"
    return bad_name(name)


def bad_name(name: str) -> str:
    """Why a path cannot be that of a file on the controller, or an empty string."""
    parts = name.split("/")
    if not name or name.startswith("/") or {"", ".", ".."} & set(parts):
        return "its name leads elsewhere"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    # Line ends, control sequences, and characters that change the direction of text.
    if not name.isprintable():
        return "its name has characters that cannot be shown"
    if len(parts) > MOST_LEVELS:
        return f"it is more than {MOST_LEVELS} levels deep"
    if size > PATH_BYTES or any(len(part.encode()) > 255 for part in parts):
        return f"its name has more than {PATH_BYTES} bytes, or 255 in one part"
    return ""


def add(tar: tarfile.TarFile, name: str, content: BinaryIO, packed: Packed) -> None:
    """Add one file as a regular file, also if it has several names, with the size that it has now."""
    found = os.fstat(content.fileno())
    why = packed.problem(name, found.st_size)
    if why:
        packed.skip(name, why)
        return
    # Its user, group and mode are of no use elsewhere.
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = found.st_size, sane_time(found.st_mtime), FILE_MODE
    exactly = Exactly(content)
    tar.addfile(member, exactly)  # type: ignore[arg-type]  # it only reads
    if exactly.missing:
        packed.skip(name, f"it shrank while it was packed; its last {exactly.missing} bytes are zeros")


def sane_time(seconds: float) -> int:
    """A time of modification that every file system can store."""
    return int(min(max(0, seconds), LATEST))


# --- Unpacking -------------------------------------------------------------------------------------------------------


class Pieces:
    """A compressed stream that is read in pieces: a name of gigabytes in a tar must not fill the memory."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self.file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= BLOCK:
            raise BundleError(f"the bundle has a header of more than {size_text(BLOCK)}")
        return self.file.read(size)


def unpack(bundle: str, dest: Path, name: str, size: Limits, change: bool = True) -> int:
    """Extract new and changed files to a directory below `dest`; returns their number.

    Raises BundleError before anything is extracted if the bundle holds anything but regular files below the archive,
    or more than the limits. No link below `dest` is followed.
    """
    try:
        with gzip.open(bundle) as file, tarfile.open(fileobj=Pieces(file), mode="r:") as tar:  # type: ignore[call-overload]
            changed = [member for member in checked_members(tar, size) if differs(dest, name, member)]
            if change and changed:
                require_space(dest, sum(member.size for member in changed))
                for member in changed:
                    extract(tar, member, dest, name)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, RecursionError) as error:
        raise BundleError(f"the bundle is damaged: {error}") from error
    except UnreadableError as error:
        raise BundleError(f"{error}; move it away, then fetch again") from error
    except OSError as error:
        raise BundleError(f"{error.filename or dest}: {reason(error)}") from error
    return len(changed)


def checked_members(tar: tarfile.TarFile, size: Limits) -> list[tarfile.TarInfo]:
    """The members of a bundle; raises BundleError for what pack does not write."""
    members: list[tarfile.TarInfo] = []
    total, names = 0, set()
    for member in tar:
        why = "" if member.isreg() and not member.issparse() else "it is not a regular file"
        why = why or bad_name(member.name)
        why = why or ("" if 0 <= member.size <= size.file else "it is too large")
        total += member.size
        why = why or ("" if total <= size.total else "all files together are too large")
        why = why or ("" if len(members) < MOST_FILES else f"there are more than {MOST_FILES} files")
        why = why or ("" if member.name not in names else "it is there twice")
        if why:
            raise BundleError(f"the bundle holds {shown(member.name)}, which was refused: {why}")
        names.add(member.name)
        member.mtime = sane_time(member.mtime)
        members.append(member)
    return members


def differs(dest: Path, name: str, member: tarfile.TarInfo) -> bool:
    path = PurePosixPath(name, member.name)
    try:
        directory = open_directory(dest, str(path.parent))
    except FileNotFoundError:
        return True
    try:
        there = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return True
    finally:
        os.close(directory)
    return not stat.S_ISREG(there.st_mode) or there.st_size != member.size or int(there.st_mtime) != int(member.mtime)


def require_space(dest: Path, size: int) -> None:
    """Raises BundleError if the files do not fit; a full disk would harm others."""
    existing = next(path for path in (dest, *dest.parents) if path.is_dir())
    free = shutil.disk_usage(existing).free
    if size > free:
        raise BundleError(f"{dest} has {size_text(free)} of free space; the files have {size_text(size)}")


def extract(tar: tarfile.TarFile, member: tarfile.TarInfo, dest: Path, name: str) -> None:
    """Extract one file, completely or not at all."""
    content = tar.extractfile(member)
    if content is None:
        raise BundleError(f"the bundle has no content for {shown(member.name)}")
    path = PurePosixPath(name, member.name)
    directory = made_directory(dest, path.parent)
    try:
        temporary = f".{secrets.token_hex(8)}.fetching"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, FILE_MODE, dir_fd=directory)
        try:
            with content, os.fdopen(descriptor, "wb") as file:
                shutil.copyfileobj(content, file, BLOCK // 2)
                file.flush()
                os.utime(file.fileno(), (member.mtime, member.mtime))
            os.replace(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(dest / path)) from error
    finally:
        os.close(directory)


def made_directory(dest: Path, path: PurePosixPath) -> int:
    """A descriptor of a directory below `dest`, which is made if it does not exist. No link is followed."""
    dest.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(dest, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in path.parts:
        try:
            os.mkdir(part, DIRECTORY_MODE, dir_fd=descriptor)
        except FileExistsError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        above = descriptor
        try:
            descriptor = open_below(above, part)
        except OSError as error:
            raise UnreadableError(dest / path, f"cannot be opened as a directory ({reason(error)})") from error
        os.close(above)
    return descriptor
