# SPDX-License-Identifier: Apache-2.0
"""Runs git with the user's own settings and credentials, or with an SSH key."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..common.text import one_line
from .options import StagingError

# The variables that git sets for its hooks.
HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
# The commands that run() gets. Options may precede them; an error names only the command.
COMMANDS = ("init", "remote", "fetch", "checkout", "submodule", "ls-remote", "rev-parse", "diff", "ls-files")
# A repository names its submodules, and must not name repositories of this machine.
SUBMODULE_PROTOCOLS = "https:http:ssh"
PROTOCOLS = f"{SUBMODULE_PROTOCOLS}:file"
# The mode of a submodule in the output of git ls-files.
SUBMODULE_MODE = "160000"
COMMIT = re.compile(r"[0-9a-f]{40}")

# The state of a checkout: the commit, changes to it as a patch, and the names of untracked files.
CheckoutState = tuple[str, bytes, list[str]]


class Git:
    """The git of this machine. All methods raise StagingError if git fails, unless they say otherwise."""

    def __init__(self, ssh_key: str = "") -> None:
        """ssh_key: the path of a private key; empty for the user's own keys."""
        # In a hook, these variables name the user's own repository, and every command would work on that one.
        inherited = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
        self.environment = {
            **inherited,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "LC_ALL": "C",
        }
        if ssh_key:
            ssh = f"ssh -o BatchMode=yes -o IdentitiesOnly=yes -i {shlex.quote(str(Path(ssh_key).expanduser()))}"
            self.environment["GIT_SSH_COMMAND"] = ssh
        else:
            # There is no terminal for a passphrase.
            self.environment.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")

    def run(self, *arguments: str, directory: Path | None = None, protocols: str = PROTOCOLS) -> bytes:
        """Runs git, and returns its output. directory: in which git runs. protocols: which it may use."""
        command = ["git", *(["-C", str(directory)] if directory else []), *arguments]
        # Neither an address nor a redirect can choose a transport that runs a command (ext::).
        environment = {**self.environment, "GIT_ALLOW_PROTOCOL": protocols}
        if directory:
            # A directory inside a checkout must not count as one.
            environment["GIT_CEILING_DIRECTORIES"] = str(directory.parent)
        try:
            done = subprocess.run(command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        except FileNotFoundError:
            raise StagingError("git", "is not installed on this machine.", "Install it.") from None
        if done.returncode:
            raise StagingError(
                f"git {next(argument for argument in arguments if argument in COMMANDS)}",
                f"failed: {one_line(done.stderr.decode(errors='replace'))}.",
                "Correct the URL and the ref; a private repository needs a credential helper of git, or an ssh key.",
            )
        return done.stdout

    def check_out(self, url: str, ref: str, directory: Path) -> str:
        """Fetches a branch, a tag or a commit, checks it out in an empty directory, and returns the commit."""
        for arguments in (
            ("init", "--quiet"),
            # Addresses of submodules may be relative to that of origin.
            ("remote", "add", "origin", url),
            ("fetch", "--quiet", "--depth=1", "--no-recurse-submodules", "--", url, ref),
            ("-c", "submodule.recurse=false", "checkout", "--quiet", "--force", "FETCH_HEAD"),
        ):
            self.run(*arguments, directory=directory)
        return self.run("rev-parse", "HEAD", directory=directory).decode().strip()

    def fetch_submodules(self, directory: Path, paths: Sequence[str]) -> list[str]:
        """Checks out submodules of a checkout, recursively. Returns a line for each that cannot be fetched."""
        missing = []
        listed = self.run("ls-files", "--stage", "-z", "--", *paths, directory=directory).decode(errors="replace")
        for name in (line.partition("\t")[2] for line in listed.split("\0") if line.startswith(SUBMODULE_MODE)):
            update = ("submodule", "--quiet", "update", "--init", "--recursive", "--depth=1", "--", name)
            try:
                self.run(*update, directory=directory, protocols=SUBMODULE_PROTOCOLS)
            except StagingError as error:
                missing.append(
                    f"submodule {name} is incomplete: git {without_password(error.finding.problem)} If jobs need it, "
                    "correct this, remove the snapshot (state: absent), and stage it again."
                )
        return missing

    def commit_of(self, url: str, ref: str) -> str:
        """The commit that a branch or a tag points at."""
        commits = {}
        for line in self.run("ls-remote", "--", url, ref, f"{ref}^{{}}").decode(errors="replace").splitlines():
            commit, _dummy, name = line.partition("\t")
            commits[name] = commit
        # An annotated tag is an object of its own; the commit that it points at has ^{} after its name.
        for name in (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", f"{ref}^{{}}", ref):
            if name in commits:
                return commits[name]
        raise StagingError(url, f"has no branch and no tag {ref}.", "Give a commit with all its 40 digits.")

    def checkout_state(self, directory: Path, paths: Sequence[str]) -> CheckoutState | None:
        """The state of a checkout in these paths; None if the directory is not a checkout, or belongs to another user.

        The configuration of a checkout names programs that git runs. Those of another user must not run here; those of
        this user also run with any `git diff`.
        """
        quiet = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
        # In submodules, git would run its own commands with their configuration.
        safe = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
        try:
            if {path.lstat().st_uid for path in (directory, directory / ".git")} != {os.geteuid()}:
                return None
            commit = self.run("rev-parse", "HEAD", directory=directory).decode().strip()
            diff = ("diff", "--binary", "--no-color", *safe, "HEAD", "--", *paths)
            patch = self.run(*quiet, *diff, directory=directory)
            others = ("ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
            listed = self.run(*quiet, *others, directory=directory).decode(errors="replace").split("\0")
        except (StagingError, OSError):
            return None
        return commit, patch, [*filter(None, listed)]


def without_password(text: str) -> str:
    """An address for messages, without user and password."""
    return re.sub(r"://.*@", "://…@", text)
