# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a repository is: its name and revision, the address of the hub, and its directory in the cache."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import StagingError

ENDPOINT = "https://huggingface.co"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Location:
    """One revision of a repository. cache: the directory that the library calls cache_dir."""

    name: str
    revision: str
    cache: Path
    endpoint: str = ENDPOINT
    token: str | None = field(default=None, repr=False)
    kind: str = "model"

    @property
    def where(self) -> str:
        return f"{self.name} on {self.host}"

    @property
    def host(self) -> str:
        """The endpoint without user and password."""
        parts = urlsplit(self.endpoint)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @property
    def storage(self) -> Path:
        return storage(self.cache, self.kind, self.name)


def storage(cache: Path, kind: str, name: str) -> Path:
    """The directory of a repository in the library's cache."""
    return cache / f"{kind}s--{name.replace('/', '--')}"


def resolve_endpoint(endpoint: str | None) -> str:
    """The address of the hub: the user's, the node's, or the default."""
    address = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    if not re.match(r"https?://[^/]", address):
        raise StagingError("endpoint", f'"{address}" is not an address.', f"Give one such as {ENDPOINT}.")
    return address
