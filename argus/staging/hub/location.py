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

from ..addresses import is_loopback
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
        return f"{self.name} on {self.endpoint}"

    @property
    def storage(self) -> Path:
        return storage(self.cache, self.kind, self.name)


def storage(cache: Path, kind: str, name: str) -> Path:
    """The directory of a repository in the library's cache."""
    return cache / f"{kind}s--{name.replace('/', '--')}"


def resolve_endpoint(endpoint: str | None, token: str | None = None) -> str:
    """The address of the hub: the user's, the node's, or the default; one that a token may be sent to."""
    address = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    example = f"Give one such as {ENDPOINT}."
    shown = re.sub(r"://.*@", "://…@", address)
    try:
        url = urlsplit(address)
        host, _port = url.hostname, url.port
    except ValueError as error:
        raise StagingError("endpoint", f'"{shown}" is not an address ({error}).', example) from error
    if url.scheme not in ("http", "https") or not host or not address.isprintable() or " " in address:
        raise StagingError("endpoint", f'"{shown}" is not an address.', example)
    if "@" in url.netloc:
        todo = "Remove them from it: it is stored in manifests. A token is set by staging_hf_token."
        raise StagingError("endpoint", f'"{shown}" has a user or a password.', todo)
    if url.query or url.fragment or "?" in address or "#" in address:
        raise StagingError("endpoint", f'"{shown}" has a query or a fragment.', example)
    if token and url.scheme == "http" and not is_loopback(host):
        raise unencrypted(shown)
    return address


def unencrypted(address: str) -> StagingError:
    """The error for a token that would be sent to an address without encryption."""
    todo = "Use an address with https (staging_hf_endpoint, or HF_ENDPOINT on the node), or unset staging_hf_token."
    return StagingError("endpoint", f'"{address}" would get the token unencrypted.', todo)
