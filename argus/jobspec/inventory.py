# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only the inventory decides: where the shared root is, and where the cluster's token may be sent."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..common.findings import Finding, about
from ..common.shared_root import DEFAULT_SHARED_ROOT
from .spec import JobSpec, plain_root

DEFAULT_ADDRESS = str(JobSpec.model_fields["address"].default)
# Nothing but scheme, host and port: programs read anything else in different ways.
ADDRESS = re.compile(r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?/?", re.ASCII)
PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """The parts of an address of Ray's Jobs API."""

    scheme: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether it is an address of this machine by its form. Other names than localhost may lead anywhere."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address | None:
    """The parts of an address; None if it is none, or has more than scheme, host and port."""
    match = ADDRESS.fullmatch(text)
    if not match:
        return None
    scheme, host, port = match.groups()
    number = int(port) if port else PORTS[scheme]
    return Address(scheme, host.strip("[]").lower(), number) if 0 < number < 65536 else None


def inventory_findings(spec: JobSpec, defaults: Mapping[str, Any]) -> Iterator[Finding]:
    """What a JobSpec changes although only the inventory may.

    defaults: those of the inventory, with the keys of a JobSpec.
    """
    root = plain_root(str(defaults.get("shared_root") or DEFAULT_SHARED_ROOT))
    if spec.shared_root != root:
        what = f"is {spec.shared_root}, but the shared root of this inventory is {root}"
        yield about("shared_root", what, "remove it; to use another shared root, use an inventory that has it")
    ray = defaults.get("ray")
    allowed = str((ray.get("address") if isinstance(ray, Mapping) else None) or DEFAULT_ADDRESS)
    address = parse_address(spec.address)
    if address and not address.is_loopback and address != parse_address(allowed):
        what = f"{spec.address!r} is neither on the head itself nor the address of this inventory, {allowed}"
        yield about("ray.address", f"{what}: the cluster's token would be sent there", "remove it")
