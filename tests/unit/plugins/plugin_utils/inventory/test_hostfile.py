"""Lines of hostfiles, and addresses of their hosts. tests/commands/test_init.py writes inventories of whole files."""

from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.inventory import hostfile
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.hostfile import hostfile_inventory, parse_hostfile

ADDRESSES = {"gpu-0": ["fd00::1", "10.0.0.1"], "gpu-1": ["fd00::2"], "local": ["127.0.1.1"]}


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("\n# all of them\n  gpu-0.lab.example   # the first\n", {"gpu-0.lab.example": None}),
        ("gpu_0 slots=8\ngpu-1:4", {"gpu_0": 8, "gpu-1": 4}),
        ("gpu-0 max-slots=16", {"gpu-0": None}),
        ("gpu-0:1#8", {"gpu-0": 1}),
        # Without brackets, all of it is the address.
        ("fd00::1:8", {"fd00::1:8": None}),
        ("[fd00::1]:8\n[fd00::2]\nfd00::3 slots=4", {"fd00::1": 8, "fd00::2": None, "fd00::3": 4}),
        # The node file of PBS has a line for each slot.
        ("gpu-0\ngpu-0\ngpu-1\ngpu-0\ngpu-2\ngpu-1", {"gpu-0": 3, "gpu-1": 2, "gpu-2": None}),
    ],
)
def test_hosts_and_their_gpus(text: str, hosts: dict[str, int | None]) -> None:
    gpus, findings = parse_hostfile(text, "hostfile")
    assert findings == []
    assert list(gpus.items()) == list(hosts.items())


@pytest.mark.parametrize(
    "line",
    [
        *("gpu-0 slots=0", "gpu-0:", "gpu-0 slots=10000", "gpu-0:8 slots=8", "gpu-0 slots=8 slots=8", "gpu-0 8"),
        *("gpu-0 slot=8", "-gpu", "[gpu-0", "[fd00::g]:8", "1:2:3", "me@gpu-0", "\x1b[31mgpu", "gpu-9", "gpu-9:2"),
    ],
)
def test_a_line_that_is_wrong(line: str) -> None:
    _gpus, [finding] = parse_hostfile(f"gpu-9:8\n{line}\ngpu-8\n", "hostfile")
    assert finding.where == "hostfile, line 2"
    assert finding.problem.isprintable()


@pytest.mark.parametrize(
    ("name", "address"),
    # Debian's own name of a machine is "local".
    [("gpu-0", "10.0.0.1"), ("gpu-1", "fd00::2"), ("fd00::3", "fd00::3"), ("local", ""), ("127.0.0.1", ""), ("x", "")],
)
def test_a_node_in_a_container_has_an_address_for_other_hosts(
    monkeypatch: pytest.MonkeyPatch, name: str, address: str
) -> None:
    monkeypatch.setattr(hostfile, "resolve", lambda host: ADDRESSES.get(host, []))
    made = hostfile_inventory(name, "hostfile", {"ray": {"vars": {}}})
    assert made["inventory"]["ray"]["children"]["head"]["hosts"]["ray-head"]["ray_node_address"] == address
    assert bool(made["findings"]) == (not address)
    process = hostfile_inventory(name, "hostfile", {"ray": {"vars": {"ray_node_runtime": "process"}}})
    assert process["findings"] == []
    [finding] = hostfile_inventory("# gpu-0\n\n", "hostfile", {"ray": {"vars": {}}})["findings"]
    assert finding["where"] == "hostfile"
