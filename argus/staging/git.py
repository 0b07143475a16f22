# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs git, with a token or a key for private repositories."""

from __future__ import annotations

import base64
import os
import shlex
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from ..common.text import one_line
from .errors import StagingError

# git sets them for its hooks.
HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
COMMANDS = ("init", "fetch", "checkout", "ls-remote", "rev-parse")
PROTOCOLS = "https:http:ssh:file"


class Git:
    """The git of this machine, with a token or a key for a private repository."""

    def __init__(self, token: str = "", ssh_key: str = "") -> None:
        # In a hook they name the user's own repository, and every command would work on that one.
        inherited = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
        # Neither an address nor a redirect can choose a transport that runs a command (ext::).
        self.environment = {
            **inherited,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": PROTOCOLS,
            "GIT_NO_LAZY_FETCH": "1",
            "LC_ALL": "C",
        }
        if ssh_key:
            ssh = f"ssh -o BatchMode=yes -o IdentitiesOnly=yes -i {shlex.quote(ssh_key)}"
            self.environment["GIT_SSH_COMMAND"] = ssh
        else:
            # There is no terminal for a passphrase.
            self.environment.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
        self.token = token

    def run(self, *arguments: str, directory: str | Path | None = None) -> str:
        """The output of git; the token is in its environment only, not in its arguments or in a file."""
        command = ["git", *(["-C", str(directory)] if directory else []), *arguments]
        address = next((argument for argument in arguments if argument.startswith("http")), "")
        environment = self._with_token(address) if self.token and address else self.environment
        try:
            done = subprocess.run(command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        except FileNotFoundError:
            raise StagingError("git", "is not installed on this machine.", "Install it.") from None
        if done.returncode:
            raise StagingError(
                f"git {next(each for each in arguments if each in COMMANDS)}",
                f"failed: {one_line(done.stderr.decode(errors='replace'))}.",
                "Correct the URL and the ref; a private repository needs a token (staging_git_token) or an ssh key.",
            )
        # Not in text mode, which replaces all line ends by the same one: a patch contains those of its files.
        return done.stdout.decode(errors="surrogateescape")

    def _with_token(self, address: str) -> dict[str, str]:
        url = urlsplit(address)
        # GitHub, GitLab, Gitea and Bitbucket accept any user name, but not an empty one.
        secret = base64.b64encode(f"x-access-token:{self.token}".encode()).decode()
        # After the user's own settings, such as a proxy.
        count = int(self.environment.get("GIT_CONFIG_COUNT") or 0)
        return {
            **self.environment,
            # Not without encryption either, should a redirect lead there.
            "GIT_ALLOW_PROTOCOL": url.scheme,
            "GIT_CONFIG_COUNT": str(count + 1),
            # For this host alone: git does not send it where a redirect points.
            f"GIT_CONFIG_KEY_{count}": f"http.{url.scheme}://{url.netloc}/.extraHeader",
            f"GIT_CONFIG_VALUE_{count}": f"Authorization: Basic {secret}",
        }

    def fetch(self, url: str, ref: str, directory: Path) -> None:
        """Checks out a branch, a tag or a commit in an empty directory. Nothing of its submodules is fetched."""
        for arguments in (
            ("init", "--quiet"),
            ("fetch", "--quiet", "--depth=1", "--no-recurse-submodules", "--", url, ref),
            ("-c", "submodule.recurse=false", "checkout", "--quiet", "--force", "FETCH_HEAD"),
        ):
            self.run(*arguments, directory=directory)

    def commit_of(self, url: str, ref: str) -> str:
        """The commit that a branch or a tag points at."""
        found = {}
        for line in self.run("ls-remote", "--", url, ref, f"{ref}^{{}}").splitlines():
            commit, _dummy, name = line.partition("\t")
            found[name] = commit
        # An annotated tag is an object of its own; the commit that it points at has ^{} after its name.
        for name in (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", f"{ref}^{{}}", ref):
            if name in found:
                return found[name]
        raise StagingError(url, f"has no branch and no tag {ref}.", "Give a commit with all its 40 digits.")
