# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The images that the inventory has a Dockerfile for: what goes into them, as a hash and as a build context.

Only the controller reads build contexts. A machine gets one as a tar file, and only to build.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..argus.common.findings import WARNING, Finding
from .inventory import HostVars, Variables

DOCKERFILE = "Dockerfile"
KEYS = ("context", "dockerfile", "args", "push")
# Neither the user's umask nor the time of a checkout is an input. ZIP files have no earlier time.
MODIFIED = 315_532_800
CHUNK_BYTES = 1 << 20
SHA256 = re.compile(r"[0-9a-f]{64}")


class BuildError(Exception):
    """A build context cannot be used; the message has its path, the problem and the fix."""


@dataclass(frozen=True)
class ImageBuild:
    """How an image is built: an entry of cluster_image_builds.

    context: the absolute path of a directory on the controller.
    push: whether the machine that builds also pushes.
    """

    context: str
    dockerfile: str = DOCKERFILE
    args: Mapping[str, str] = field(default_factory=dict)
    push: bool = False

    @classmethod
    def of(cls, given: Variables, above: str) -> ImageBuild:
        """above: the directory of the inventory, for a relative context."""
        return cls(
            context=str(Path(above, str(given["context"])).expanduser()),
            dockerfile=str(given.get("dockerfile") or DOCKERFILE),
            args={str(name): str(value) for name, value in (given.get("args") or {}).items()},
            push=bool(given.get("push", False)),
        )


@dataclass(frozen=True)
class Entry:
    """A file, directory or link of a build context; the name is relative, with slashes."""

    name: str
    path: str
    kind: int
    executable: bool = False

    @property
    def mode(self) -> int:
        return 0o755 if self.executable or self.kind == stat.S_IFDIR else 0o644


def pattern_expression(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern of .dockerignore, as Docker's own matcher builds it."""
    expression, rest = "", pattern
    while rest:
        if rest.startswith("**"):
            rest = rest[2:].removeprefix("/")
            expression += "(?:.*/)?" if rest else ".*"
        elif rest[0] == "[" and "]" in rest[2:]:
            end = rest.index("]", 2) + 1
            expression, rest = expression + rest[:end], rest[end:]
        elif rest[0] == "\\" and len(rest) > 1:
            expression, rest = expression + re.escape(rest[1]), rest[2:]
        else:
            expression += {"*": "[^/]*", "?": "[^/]"}.get(rest[0]) or re.escape(rest[0])
            rest = rest[1:]
    return re.compile(expression, re.DOTALL)


@dataclass(frozen=True)
class Ignored:
    """What .dockerignore leaves out. Of the patterns that match a file or a directory above it, the last one counts."""

    patterns: Sequence[tuple[bool, re.Pattern[str]]] = ()

    @classmethod
    def of(cls, text: str) -> Ignored:
        found = []
        for line in text.splitlines():
            again = line.strip().startswith("!")
            pattern = line.strip().removeprefix("!").strip()
            if not pattern or line.startswith("#"):
                continue
            found.append((not again, pattern_expression(os.path.normpath(pattern).lstrip("/"))))
        return cls(found)

    def has(self, name: str) -> bool:
        parts = name.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        left_out = False
        for ignores, pattern in self.patterns:
            if any(pattern.fullmatch(path) for path in above):
                left_out = ignores
        return left_out

    @property
    def takes_back(self) -> bool:
        return any(not ignores for ignores, _pattern in self.patterns)


def entries(build: ImageBuild) -> list[Entry]:
    """What the context consists of, in a fixed order."""
    root = Path(build.context)
    if not root.is_dir():
        raise BuildError(f"{root} is not a directory on this controller: correct the context in cluster_image_builds")
    if not (root / build.dockerfile).is_file():
        raise BuildError(f"{root / build.dockerfile} does not exist: set dockerfile, relative to the context")
    try:
        # As with BuildKit, a Dockerfile may have its own.
        own = next(
            (file for file in (root / f"{build.dockerfile}.dockerignore", root / ".dockerignore") if file.is_file()),
            None,
        )
        ignored = Ignored.of(own.read_text(encoding="utf-8-sig")) if own else Ignored()
        # Both are sent even if they are left out: the engine reads them.
        always = {build.dockerfile, ".dockerignore"}
        return sorted(_below(root, "", ignored, always), key=lambda entry: entry.name)
    except (OSError, UnicodeError) as error:
        raise BuildError(f"the build context {root} cannot be read: {error}") from error


def _below(root: Path, above: str, ignored: Ignored, always: set[str]) -> Iterator[Entry]:
    with os.scandir(root / above) as listed:
        found = list(listed)
    for each in found:
        name = f"{above}{each.name}"
        # A directory that is left out may have a file that is not.
        left_out = ignored.has(name) and name not in always
        there = each.stat(follow_symlinks=False)
        kind = stat.S_IFMT(there.st_mode)
        inside = any(path.startswith(f"{name}/") for path in always)
        if kind == stat.S_IFDIR and (not left_out or ignored.takes_back or inside):
            yield from _below(root, f"{name}/", ignored, always)
        if left_out:
            continue
        if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            raise BuildError(f"{each.path} is no file, directory or link: move it, or name it in .dockerignore")
        if "\n" in name or not name.isprintable():
            raise BuildError(f"{root} has a file with a name that cannot be printed, {name!r}: rename it")
        yield Entry(name, each.path, kind, kind == stat.S_IFREG and bool(there.st_mode & stat.S_IXUSR))


def inputs_hash(build: ImageBuild) -> str:
    """A hash of everything that goes into the image, but not of the image that it is built on."""
    digest = hashlib.sha256(json.dumps([build.dockerfile, dict(build.args)], sort_keys=True).encode())
    for entry in entries(build):
        digest.update(f"\n{entry.kind:o} {entry.mode:o} {entry.name}\0".encode())
        try:
            digest.update(_content_hash(entry).encode())
        except OSError as error:
            raise BuildError(f"{entry.path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:32]


def _content_hash(entry: Entry) -> str:
    if entry.kind == stat.S_IFDIR:
        return ""
    if entry.kind == stat.S_IFLNK:
        return str(Path(entry.path).readlink())
    digest = hashlib.sha256()
    with Path(entry.path).open("rb") as file:
        while content := file.read(CHUNK_BYTES):
            digest.update(content)
    return digest.hexdigest()


def write_context(build: ImageBuild, target: IO[bytes]) -> None:
    """Write the context as a tar file that is the same wherever the same context is."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for entry in entries(build):
            info = tarfile.TarInfo(entry.name)
            info.mode, info.mtime = entry.mode, MODIFIED
            if entry.kind == stat.S_IFDIR:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif entry.kind == stat.S_IFLNK:
                info.type, info.linkname = tarfile.SYMTYPE, str(Path(entry.path).readlink())
                tar.addfile(info)
            else:
                content = Path(entry.path).read_bytes()
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def build_findings(hosts: Sequence[str], hostvars: HostVars, default_images: Mapping[str, str]) -> list[Finding]:
    """Check cluster_image_builds and cluster_image_archive, once for all hosts that have the same value."""
    found: dict[Finding, None] = {}
    for host in hosts:
        own = hostvars[host]
        images = own.get("cluster_images") or default_images
        wrong = [*_builds_problems(own, images), *_archive_problems(own.get("cluster_image_archive"))]
        found |= dict.fromkeys(Finding(where, what, todo) for where, what, todo in wrong)
        found |= dict.fromkeys(_absent_contexts(own))
    return list(found)


def _builds_problems(own: Variables, images: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    name = "cluster_image_builds"
    builds = own.get(name)
    if not builds:
        return
    if not isinstance(builds, Mapping):
        yield name, f"is {builds!r}", "give a build for each kind, such as {cuda: {context: images/mine}}"
        return
    for kind, build in builds.items():
        where = f"{name}.{kind}"
        if kind not in images:
            yield where, "is no kind of cluster_images", f"add the name of its image there; it has {', '.join(images)}"
        if not isinstance(build, Mapping) or not build.get("context"):
            yield where, "has no context", "add the directory of its Dockerfile on the controller"
            continue
        unknown = [str(key) for key in build if key not in KEYS]
        if unknown:
            yield where, f"has the unknown key {', '.join(unknown)}", f"the keys are {', '.join(KEYS)}"
        if not isinstance(build.get("args") or {}, Mapping):
            yield where, f"has args {build['args']!r}", "give names with their values"
            continue
        image = str(images.get(kind, ""))
        if "@" in image:
            todo = "remove the digest: a build has one that is known only afterwards"
            yield where, f"builds {image}, which names a digest", todo
        if build.get("push") and "/" not in image:
            yield where, f"pushes {image}, which names no registry", "add the registry to its name in cluster_images"


def _is_build(given: Any) -> bool:
    return isinstance(given, Mapping) and bool(given.get("context")) and isinstance(given.get("args") or {}, Mapping)


def _absent_contexts(own: Variables) -> Iterator[Finding]:
    """Contexts that are not here: no problem for who only takes the cluster down, and submits jobs."""
    builds = own.get("cluster_image_builds")
    for kind, given in builds.items() if isinstance(builds, Mapping) else ():
        if not _is_build(given):
            continue
        build = ImageBuild.of(given, str(own.get("inventory_dir") or "."))
        absent = [path for path in (Path(build.context), Path(build.context, build.dockerfile)) if not path.exists()]
        if absent:
            what = f"{absent[0]} does not exist on this controller"
            yield Finding(f"cluster_image_builds.{kind}", what, "correct context or dockerfile", WARNING)


def _archive_problems(given: Any) -> Iterator[tuple[str, str, str]]:
    name = "cluster_image_archive"
    if not given:
        return
    if not isinstance(given, Mapping) or set(given) != {"path", "sha256"}:
        yield name, f"is {given!r}", "give path and sha256 of a file that docker save has written"
        return
    if not str(given["path"]).startswith("/"):
        yield name, f"has the path {given['path']!r}", "give the absolute path on the machines"
    if not SHA256.fullmatch(str(given["sha256"])):
        yield name, f"has the sha256 {given['sha256']!r}", "give the 64 hex digits that sha256sum prints"
