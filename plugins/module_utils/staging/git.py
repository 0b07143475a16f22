# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots: immutable copies of a verl source tree under the shared root.

A tree comes from a release, a git repository, a directory or another snapshot, with overlays of a user's own put over
it. Files that other snapshots have already are hard links to them.
"""

from __future__ import annotations

import base64
import os
import shlex
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from .errors import StagingError

OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


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
