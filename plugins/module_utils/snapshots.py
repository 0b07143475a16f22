# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots: immutable copies of a verl source tree under the shared root.

A tree comes from a release, a git repository, a directory or another snapshot, with overlays of a user's own put over
it. Files that other snapshots have already are hard links to them.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import email
import hashlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import urlsplit

from ansible_collections.argus.verl.plugins.module_utils.staging import (
    MANIFEST,
    NAME_WITH_CAPITALS,
    Progress,
    Request,
    Staged,
    StagingError,
    check_name,
    check_shared_root,
    directories_of,
    each,
    entries_below,
    file_sha256,
    is_litter,
    manifest_of,
    problems,
    stage,
)

KIND = "snapshot"
MARKER = "mvp_marker.py"
PATCH = "uncommitted.patch"
# Below the shared root. Each directory in it can be put on PYTHONPATH as it is.
SNAPSHOTS = "common/code/verl"
# Without verl/ it is no snapshot; the others are taken along from a source tree that has them.
PACKAGES = ("verl", "recipe", "examples")
# What a snapshot has beside its packages.
OWN = (MARKER, MANIFEST, PATCH)
# What a manifest says of its source besides, which holds for a snapshot over it as well.
OF_THE_SOURCE = ("commit", "uncommitted", "untracked", "requirements")
RELEASE = re.compile(r"verl==([0-9][0-9A-Za-z]*(?:\.[0-9A-Za-z]+)*)")
# As pip names a repository: git+https://host/path@ref, git+ssh://git@host/path@ref, git+file:///path@ref.
# What comes before the path is the host's, with a user perhaps; git would take a ref with a dash for an option.
REPOSITORY = re.compile(r"git\+(?P<url>(?:https?|ssh|file)://[^/]*/.+)@(?P<ref>[^@:-][^@:]*)")
COMMIT = re.compile(r"[0-9a-f]{40}")
OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
# Files of source code are smaller by far, and are kept until they are written.
LARGE_BYTES = 1 << 20
# In how many of the newest snapshots a file is looked for.
NEIGHBOURS = 4


class Store:
    """The files of the newest snapshots, by content."""

    def __init__(self, snapshots: Path | None) -> None:
        manifests = snapshots.glob(f"[!.]*/{MANIFEST}") if snapshots else ()
        found = sorted(manifests, key=changed_at, reverse=True)[:NEIGHBOURS]
        self.files: dict[str, tuple[str, int, int]] = {}
        for file in found:
            # A broken one is no neighbour; whoever asks for it is told.
            with contextlib.suppress(StagingError):
                for name, entry in (manifest_of(file.parent) or {}).get("files", {}).items():
                    if "mtime_ns" in entry:
                        path = f"{file.parent}/{name}"
                        self.files.setdefault(entry["sha256"], (path, entry["size"], entry["mtime_ns"]))

    def link(self, sha256: str, target: str) -> bool:
        """Whether the target is now a link to a file with this content."""
        if sha256 not in self.files:
            return False
        path, size, mtime_ns = self.files[sha256]
        try:
            stat = os.stat(path)
            # One that was changed by hand must not spread.
            if (stat.st_size, stat.st_mtime_ns) != (size, mtime_ns):
                return False
            os.link(path, target)
        except OSError:
            # Another user's, too many links, or a file system without any.
            return False
        return True


def changed_at(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        # It is being removed.
        return 0


@dataclass(frozen=True)
class Seen:
    """A file as it was read, once."""

    size: int
    mtime_ns: int
    sha256: str
    # Of a large one none: it is read again, and must not have changed meanwhile.
    content: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, path: str) -> Seen:
        with open(path, "rb", buffering=0) as file:
            stat = os.fstat(file.fileno())
            if stat.st_size > LARGE_BYTES:
                return cls(stat.st_size, stat.st_mtime_ns, file_sha256(path))
            content = file.read()
        return cls(len(content), stat.st_mtime_ns, hashlib.sha256(content).hexdigest(), content)

    def write(self, source: str, target: str) -> None:
        """Write to the target what was read of the source."""
        if self.content is not None:
            write(target, self.content)
            return
        shutil.copyfile(source, target)
        stat = os.stat(source)
        if (stat.st_size, stat.st_mtime_ns) != (self.size, self.mtime_ns):
            raise changed_meanwhile(source)


class Tree:
    """A directory that is being filled, with the hashes of what is in it."""

    def __init__(self, directory: Path, store: Store, progress: Progress) -> None:
        self.directory = directory
        self.store = store
        self.progress = progress
        self.hashes: dict[str, str] = {}

    def take(self, source: Path, files: Mapping[str, Seen], to: str = "") -> None:
        """Put files there, each as a link to one of the same content where there is one."""
        targets = {name: f"{to}/{name}" if to else name for name in files}
        for _depth, level in itertools.groupby(directories_of(targets.values()), key=lambda path: path.count("/")):
            each(lambda path: (self.directory / path).mkdir(exist_ok=True), list(level))

        def take(name: str) -> None:
            target, seen = f"{self.directory}/{targets[name]}", files[name]
            # An overlay replaces what was there.
            if targets[name] in self.hashes:
                os.unlink(target)
            if not self.store.link(seen.sha256, target):
                seen.write(f"{source}/{name}", target)
            self.progress.add(seen.size)

        # In no order: into each directory the kernel lets one thread at a time.
        each(take, sorted(files, key=lambda name: files[name].sha256))
        self.hashes |= {targets[name]: seen.sha256 for name, seen in files.items()}

    def put(self, name: str, content: bytes) -> None:
        """A file of ours beside the packages."""
        write(f"{self.directory}/{name}", content)
        self.hashes[name] = hashlib.sha256(content).hexdigest()


def write(target: str, content: bytes) -> None:
    """Read-only from its beginning: on a network file system that is one call less for each file."""
    with open(target, "wb", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o444)) as file:
        file.write(content)


def changed_meanwhile(source: object) -> StagingError:
    return StagingError(source, "changed while it was copied.", "Stage it again when nobody writes to it.")


# --- Sources ---------------------------------------------------------------------------------------------------------


class Source(Protocol):
    """Where a snapshot comes from."""

    @property
    def label(self) -> str:
        """What the manifest names as the source."""

    @property
    def identity(self) -> str:
        """Equal for sources that give the same files."""

    @property
    def code_id(self) -> str:
        """The id of the snapshot when nobody chose one."""

    def fill(self, tree: Tree) -> dict[str, Any]:
        """Put the packages into an empty tree, and return what the manifest shall say of the source."""


@dataclass(frozen=True)
class PyPISource:
    """One release, as a package index has it."""

    version: str

    @property
    def label(self) -> str:
        return f"verl=={self.version}"

    @property
    def identity(self) -> str:
        # A release never changes: its name is enough, and nothing has to be fetched for comparing.
        return self.label

    @property
    def code_id(self) -> str:
        return f"verl-{self.version}"

    def fill(self, tree: Tree) -> dict[str, Any]:
        # Not below the shared root: what lies there would end up in the snapshot.
        with tempfile.TemporaryDirectory() as download, zipfile.ZipFile(self.wheel(Path(download))) as wheel:
            unpacked = Path(download) / "unpacked"
            for name in wheel.namelist():
                if PurePosixPath(name).parts[0] in PACKAGES and not name.endswith("/") and not is_litter(name):
                    wheel.extract(name, unpacked)
            tree.take(unpacked, read_packages(unpacked))
            metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return {"requirements": email.message_from_bytes(wheel.read(metadata)).get_all("Requires-Dist", [])}

    def wheel(self, download: Path) -> Path:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        # Only wheels: a source distribution runs its own code for being looked at. The Python that trains is
        # the image's, so that this machine's may be newer or older than what verl asks for.
        pip += ["--only-binary=:all:", "--ignore-requires-python", "--dest", str(download), self.label]
        done = subprocess.run(pip, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        wheels = list(download.glob("*.whl"))
        if done.returncode or not wheels:
            said = [line for line in done.stderr.splitlines() if not line.startswith("WARNING:")]
            raise StagingError(
                self.label,
                "\n".join(["pip could not fetch its wheel:", *said, ""]),
                f"Give {sys.executable} on this machine a pip and a package index (pip.conf, PIP_INDEX_URL or "
                "PIP_FIND_LINKS), or set source to a directory that holds the source tree.",
            )
        return wheels[0]


@dataclass(frozen=True)
class DirectorySource:
    """A source tree on the machine: a checkout, perhaps with changes of its own."""

    path: Path
    verl_version: str
    files: Mapping[str, Seen]

    @classmethod
    def of(cls, path: Path) -> DirectorySource:
        return cls(path, read_verl_version(path), read_packages(path))

    @property
    def content_sha256(self) -> str:
        return content_sha256(self.files)

    @property
    def label(self) -> str:
        return str(self.path)

    @property
    def identity(self) -> str:
        return f"content {self.content_sha256}"

    @property
    def code_id(self) -> str:
        # A local version (0.10.0+mine) has characters that a path should not have.
        return f"verl-{re.sub(r'[^A-Za-z0-9._-]', '-', self.verl_version)}-{self.content_sha256[:8]}"

    def fill(self, tree: Tree) -> dict[str, Any]:
        tree.take(self.path, self.files)
        if set(self.files) != set(package_files(self.path)):
            raise changed_meanwhile(self.path)
        return {"requirements": directory_requirements(self.path), **checkout_state(self.path, tree)}


@dataclass(frozen=True)
class GitSource:
    """One commit of a repository."""

    url: str
    ref: str
    commit: str
    git: Git

    @property
    def label(self) -> str:
        return f"git+{self.url}@{self.ref}"

    @property
    def identity(self) -> str:
        return f"commit {self.commit}"

    @property
    def code_id(self) -> str:
        return f"{PurePosixPath(urlsplit(self.url).path).stem}-{self.commit[:12]}"

    def fill(self, tree: Tree) -> dict[str, Any]:
        tree.progress.begin(f"fetching {self.label}")
        with tempfile.TemporaryDirectory() as checkout:
            for arguments in (
                ("init", "--quiet"),
                ("fetch", "--quiet", "--depth=1", self.url, self.commit if self.ref == self.commit else self.ref),
                ("checkout", "--quiet", "--force", "FETCH_HEAD"),
            ):
                self.git.run(*arguments, directory=checkout)
            fetched = self.git.run("rev-parse", "HEAD", directory=checkout).strip()
            if fetched != self.commit:
                raise StagingError(self.label, f"moved from {self.commit} to {fetched} meanwhile.", "Stage it again.")
            tree.take(Path(checkout), read_packages(Path(checkout), within=True))
            return {"commit": self.commit, "requirements": directory_requirements(Path(checkout))}


@dataclass(frozen=True)
class SnapshotSource:
    """Another snapshot, over which overlays are put."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def label(self) -> str:
        return self.path.name

    @property
    def identity(self) -> str:
        return f"content {self.manifest['content_sha256']}"

    @property
    def code_id(self) -> str:
        return self.path.name

    def fill(self, tree: Tree) -> dict[str, Any]:
        if problems(self.path, self.manifest):
            raise StagingError(self.path, "no longer fits its manifest.", "Put it back as it was staged first.")
        files = {
            name: Seen(entry["size"], entry["mtime_ns"], entry["sha256"])
            for name, entry in self.manifest["files"].items()
            if name != MARKER
        }
        tree.take(self.path, files)
        return {name: self.manifest[name] for name in OF_THE_SOURCE if name in self.manifest}


class Git:
    """The git of this machine, which may need a token or a key for a private repository."""

    def __init__(self, token: str = "", ssh_key: str = "") -> None:
        # In a hook of git these name somebody's own repository, and everything would be done there.
        own = {name: value for name, value in os.environ.items() if name not in OF_A_HOOK}
        self.environment = {**own, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        if ssh_key:
            ssh = f"ssh -o BatchMode=yes -o IdentitiesOnly=yes -i {shlex.quote(ssh_key)}"
            self.environment["GIT_SSH_COMMAND"] = ssh
        else:
            # Nobody is there who could type a passphrase.
            self.environment.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
        self.token = token

    def run(self, *arguments: str, directory: str | Path | None = None) -> str:
        """What git says; the token is in its environment only, not in its arguments or in a file."""
        environment = dict(self.environment)
        address = next((urlsplit(argument) for argument in arguments if argument.startswith("http")), None)
        if self.token and address:
            # Any user name does for GitHub, GitLab, Gitea and Bitbucket as long as there is one.
            secret = base64.b64encode(f"x-access-token:{self.token}".encode()).decode()
            # After what the user has there, such as a proxy.
            count = int(environment.get("GIT_CONFIG_COUNT") or 0)
            environment |= {
                "GIT_CONFIG_COUNT": str(count + 1),
                # Nor does it go where a redirection points.
                f"GIT_CONFIG_KEY_{count}": f"http.{address.scheme}://{address.netloc}/.extraHeader",
                f"GIT_CONFIG_VALUE_{count}": f"Authorization: Basic {secret}",
            }
        command = ["git", *(["-C", str(directory)] if directory else []), *arguments]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        except FileNotFoundError:
            raise StagingError("git", "is not installed on this machine.", "Install it.") from None
        if done.returncode:
            said = " ".join(done.stderr.decode(errors="replace").split()).rstrip(".")
            raise StagingError(
                f"git {arguments[0]}",
                f"failed: {said}.",
                "Correct the URL and the ref; a private repository needs a token (staging_git_token), or an ssh key.",
            )
        # Not as text, where all ends of lines become the same: a patch has those of its files.
        return done.stdout.decode(errors="surrogateescape")

    def commit_of(self, url: str, ref: str) -> str:
        """The commit that a branch or a tag points at."""
        found = {}
        for line in self.run("ls-remote", url, ref, f"{ref}^{{}}").splitlines():
            commit, _dummy, name = line.partition("\t")
            found[name] = commit
        # An annotated tag is an object of its own; what it points at has ^{} after its name.
        for name in (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", f"{ref}^{{}}", ref):
            if name in found:
                return found[name]
        raise StagingError(url, f"has no branch and no tag {ref}.", "A commit has to be given with all its 40 digits.")


def source_of(text: str, snapshots: Path, git: Git | None = None) -> Source:
    """The source that a user names: a release, a repository, a directory, or a snapshot."""
    release = RELEASE.fullmatch(re.sub(r"\s", "", text))
    if release:
        return PyPISource(release[1])
    if text.startswith("git+"):
        return repository(text, git or Git())
    path = Path(text).expanduser()
    if text.startswith(("/", "~", ".")):
        if (path / "verl" / "__init__.py").is_file():
            return DirectorySource.of(path.resolve())
        what = "has no verl/ package in it." if path.is_dir() else "is not there on this machine."
    else:
        # A name that is not allowed is no snapshot's either.
        manifest = manifest_of(snapshots / text) if NAME_WITH_CAPITALS.fullmatch(text) else None
        if manifest is not None:
            return SnapshotSource(snapshots / text, manifest)
        what = f"is neither a release, a repository, a directory nor a snapshot in {snapshots}."
    raise StagingError(
        f'source "{without_password(text)}"',
        what,
        "Give verl==<version>, git+https://<host>/<path>@<ref>, the absolute path of a directory in which verl/ lies, "
        "or the code_id of a snapshot.",
    )


def repository(text: str, git: Git) -> GitSource:
    match = REPOSITORY.fullmatch(text)
    if not match:
        todo = "Say git+https://<host>/<path>@<branch, tag or commit>, or git+ssh://git@<host>/<path>@<…>."
        raise StagingError(f'source "{without_password(text)}"', "is not a repository with a ref.", todo)
    url, ref = match["url"], match["ref"]
    address = urlsplit(url)
    # One with a slash in it looks like a path.
    if address.password or (address.scheme.startswith("http") and "@" in url):
        where = f'source "{without_password(text)}"'
        raise StagingError(where, "has a password or a token in it.", "Take it out, and set staging_git_token.")
    if git.token and address.scheme == "http" and address.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise StagingError(f'source "{text}"', "would get the token unencrypted.", "Say https, or unset the token.")
    return GitSource(url, ref, ref if COMMIT.fullmatch(ref) else git.commit_of(url, ref), git)


def without_password(text: str) -> str:
    """For errors: an address without what may be a user and a password."""
    return re.sub(r"://.*@", "://…@", text)


# --- Overlays --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overlay:
    """A directory of a user's own, put into a snapshot at a place of its own or over what is there."""

    path: Path
    to: str
    files: Mapping[str, Seen]

    @classmethod
    def of(cls, path: str, to: str) -> Overlay:
        source = Path(path).expanduser()
        if not source.is_dir():
            raise StagingError(f'overlay "{path}"', "is no directory on this machine.", "Correct its path.")
        parts = PurePosixPath(to).parts
        if not parts or to.startswith("/") or ".." in parts or parts[0] in OWN:
            todo = "Give a relative path below the snapshot, such as recipe/mine or my_package."
            raise StagingError(f'overlay "{path}"', f'cannot be put at "{to}".', todo)
        return cls(source.resolve(), "/".join(parts), read_files(source, list(tree_files(source, ""))))

    @property
    def identity(self) -> str:
        return f"{self.to}: {content_sha256(self.files)}"


# --- Staging ---------------------------------------------------------------------------------------------------------


def request(shared_root: Path, source: Source, code_id: str | None = None, overlays: Sequence[Overlay] = ()) -> Request:
    """The snapshot that is to be there."""
    identity = " + ".join((source.identity, *(overlay.identity for overlay in overlays)))
    default = source.code_id
    if overlays:
        default += f"-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    code_id = check_name("code_id", code_id or default, NAME_WITH_CAPITALS)
    snapshots = check_shared_root(shared_root) / SNAPSHOTS
    if isinstance(source, SnapshotSource) and not overlays:
        raise StagingError(f'source "{source.label}"', "is a snapshot already.", "Give it overlays, or leave it out.")

    def build(directory: Path, progress: Progress) -> dict[str, Any]:
        # A repair must not link to what is broken itself, nor change the time of a file that others have as well.
        tree = Tree(directory, Store(None if (snapshots / code_id).exists() else snapshots), progress)
        said = source.fill(tree)
        for overlay in overlays:
            tree.take(overlay.path, overlay.files, overlay.to)
        tree.put(MARKER, f'MARKER = "{code_id}"\n'.encode())
        return {
            "code_id": code_id,
            "source": source.label,
            "identity": identity,
            "overlays": [{"path": str(overlay.path), "to": overlay.to} for overlay in overlays],
            "content_sha256": sha256_of({name: sha for name, sha in tree.hashes.items() if name not in OWN}),
            "verl_version": read_verl_version(directory),
            **said,
            "hashes": tree.hashes,
        }

    def differs(manifest: Mapping[str, Any]) -> str:
        if manifest.get("identity") == identity:
            return ""
        return (
            f"holds {manifest.get('source')} (verl {manifest.get('verl_version')}), "
            f"which is not what {source.label} holds now."
        )

    return Request(KIND, code_id, snapshots / code_id, build, differs, read_only=True)


def snapshot(
    shared_root: Path, source: Source, code_id: str | None = None, overlays: Sequence[Overlay] = (), **how: bool
) -> Staged:
    """Make the snapshot once; `how` as for staging.stage."""
    return stage(request(shared_root, source, code_id, overlays), **how)


def read_verl_version(directory: Path) -> str:
    file = directory / "verl" / "version" / "version"
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise StagingError(file, "is missing.", "Is this a source tree of verl? Every release has this file.") from None


def checkout_state(path: Path, tree: Tree) -> dict[str, Any]:
    """Of a directory that is a git checkout: its commit, and what of the snapshot is not in it, as a patch."""
    git = Git()
    try:
        # With somebody else's checkout git refuses, because its configuration can run programs; then we know nothing.
        commit = git.run("rev-parse", "HEAD", directory=path).strip()
        paths = [name for name in PACKAGES if (path / name).is_dir()]
        patch = git.run("diff", "--binary", "--no-ext-diff", "--no-color", "HEAD", "--", *paths, directory=path)
        listed = git.run("ls-files", "--others", "--exclude-standard", "-z", "--", *paths, directory=path)
    except StagingError:
        return {}
    if patch:
        tree.put(PATCH, patch.encode(errors="surrogateescape"))
    return {"commit": commit, "uncommitted": bool(patch), "untracked": [name for name in listed.split("\0") if name]}


def read_packages(directory: Path, *, within: bool = False) -> dict[str, Seen]:
    """The files of the packages that a snapshot takes; `within`: none may be a link to somewhere else."""
    names = package_files(directory)
    if within:
        outside = [name for name in names if not (directory / name).resolve().is_relative_to(directory.resolve())]
        if outside:
            what = f"{', '.join(outside)} points out of the repository."
            raise StagingError("repository", what, "Do not stage what you do not trust.")
    return read_files(directory, names)


def read_files(directory: Path, names: Sequence[str]) -> dict[str, Seen]:
    return dict(zip(names, each(lambda name: Seen.of(f"{directory}/{name}"), names), strict=True))


def package_files(directory: Path) -> list[str]:
    """The files of the packages that a snapshot takes, by their relative path, in order."""
    return sorted(name for package in PACKAGES for name in tree_files(directory, package))


def tree_files(directory: Path, below: str) -> Iterator[str]:
    """The files below a part of a directory, relative to the directory, without what tools leave."""
    if not (directory / below).is_dir():
        return
    prefix = f"{below}/" if below else ""
    for name, entry in entries_below(directory / below, is_litter):
        # A link to a file is followed: a snapshot must not change with what lies elsewhere.
        if not entry.is_file():
            raise StagingError(
                entry.path,
                "is a link to a directory, a broken link or a special file, and would be missing.",
                "Put there what it points at, or remove it.",
            )
        yield prefix + name


def content_sha256(files: Mapping[str, Seen]) -> str:
    """One hash over names and content of files, equal for equal trees wherever they lie."""
    return sha256_of({name: seen.sha256 for name, seen in files.items()})


def sha256_of(hashes: Mapping[str, str]) -> str:
    lines = (f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def directory_requirements(directory: Path) -> list[str]:
    """What a source tree says that it requires, where that can be read without running its code."""
    project = directory / "pyproject.toml"
    if project.is_file():
        try:
            dependencies = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("dependencies")
        except ValueError:
            dependencies = None
        if dependencies:
            return [str(each) for each in dependencies]
    setup = directory / "setup.py"
    return _setup_requirements(setup.read_text(encoding="utf-8")) if setup.is_file() else []


def _setup_requirements(text: str) -> list[str]:
    """``install_requires`` of a setup.py, as a variable (verl's way) or as an argument."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return []
    values = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and any(isinstance(to, ast.Name) and to.id == "install_requires" for to in node.targets)
    ]
    values += [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "install_requires"]
    for value in values:
        try:
            return [str(each) for each in ast.literal_eval(value)]
        except (ValueError, TypeError):
            # Computed by the code around it.
            continue
    return []
