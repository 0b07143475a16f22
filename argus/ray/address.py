# SPDX-License-Identifier: Apache-2.0
"""The address of a Ray head, and which addresses may receive the cluster's token."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import MutableMapping

# An address has scheme, host and port and nothing else, which programs would read in different ways.
ADDRESS = re.compile(r"(https?)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?/?")
DEFAULT_PORTS = {"http": 80, "https": 443}
# The variable with a host that may receive the token besides loopback. It comes from the inventory, never from a file
# that jobs can write.
ALLOWED_HOST_VARIABLE = "ARGUS_VERL_HEAD_HOST"


def parse_address(text: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of the address of a head; None if the text is not such an address, or has more parts."""
    if not (match := ADDRESS.fullmatch(text)):
        return None
    scheme, host, port = match.groups()
    number = int(port) if port else DEFAULT_PORTS[scheme]
    return (scheme, host.strip("[]").lower(), number) if 0 < number < 65536 else None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def remove_proxies(environ: MutableMapping[str, str]) -> None:
    """Remove the proxies from an environment: Ray's client would use them even for a loopback address.

    A proxy would receive the cluster's token, and cannot reach the loopback of this machine.
    """
    for name in [name for name in environ if name.lower().endswith("_proxy")]:
        del environ[name]


def allow_host(address: str) -> None:
    """Let this process and its children send the token to an address of the inventory, besides loopback."""
    parsed = parse_address(address)
    os.environ[ALLOWED_HOST_VARIABLE] = parsed[1] if parsed else ""
