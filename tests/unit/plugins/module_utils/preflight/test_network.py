from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.system import System
from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import INFINIBAND, Hca, Interface
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.host import hostname_problems
from ansible_collections.argus.verl.plugins.module_utils.preflight.network import (
    derived_environment,
    hardware_cells,
    network_findings,
)
from samples import HEALTHY

HCAS = [Hca(f"mlx5_{number}", 1, f"ib{number}", "up", 400, INFINIBAND) for number in range(8)]
ETH0 = Interface("eth0", ("10.0.0.1/24",), 1500, 25, "up", uplink=True)


def context(name: str = "gpu-0", last: int = 1, **expected: object) -> Context:
    eth0 = replace(ETH0, addresses=(f"10.0.0.{last}/24",))
    expectation = Expectation(**{"address": f"10.0.0.{last}", **expected})  # type: ignore[arg-type]
    return Context(name, replace(HEALTHY, interfaces=(eth0,), hcas=HCAS), expectation)


BOTH = ("10.0.0.1", "127.0.1.1")


@pytest.mark.parametrize(
    ("addresses", "expected", "severity", "name"),
    [
        (BOTH, {}, "warning", "eth0"),
        (BOTH, {"address": "10.9.9.9"}, "error", ""),
        (BOTH, {"address": "10.9.9.9", "network_env": {"GLOO_SOCKET_IFNAME": "bond0"}}, "warning", "bond0"),
        (["10.0.0.1"], {}, "", ""),
        # Nodes with a network of their own have other names.
        (BOTH, {"address": ""}, "", ""),
    ],
)
def test_hostname_of_a_loopback(addresses: list[str], expected: dict[str, Any], severity: str, name: str) -> None:
    probed = context(**expected)
    machine = replace(probed.machine, system=System(hostname="gpu-0", addresses=tuple(addresses)))
    problems = list(hostname_problems(machine, probed.expected))
    assert [(problem.severity, problem.key) for problem in problems] == [(severity, "network.hostname")] * bool(
        severity
    )
    assert all("127.0.1.1" in problem.text and problem.text.endswith(name) for problem in problems)


@pytest.mark.parametrize(
    ("no_proxy", "missing"),
    [
        ("", "10.0.0.1, 10.0.0.2, 127.0.0.1"),
        ("10.0.0.1, 127.0.0.1", "10.0.0.2"),
        ("10.0.0.0/24,127.0.0.1", ""),
        ("*", ""),
        ("10.0.0.1,example.org,127.0.0.0/8", "10.0.0.2"),
    ],
)
def test_proxy_for_connections_within_the_cluster(no_proxy: str, missing: str) -> None:
    for proxies in ({"http_proxy": "http://proxy:3128"}, {}):
        first = context()
        first = replace(first, machine=replace(first.machine, proxies={**proxies, "no_proxy": no_proxy}))
        findings = network_findings({"gpu-0": first, "gpu-1": context("gpu-1", last=2)})
        matches = [finding for finding in findings if finding.key == "network.proxy"]
        assert [finding.where for finding in matches] == (["gpu-0"] if missing and proxies else [])
        assert all(f" {missing}: " in finding.problem for finding in matches)


def test_cells_say_what_is_derived_and_what_is_set() -> None:
    contexts = {
        "gpu-0": context(last=1),
        "gpu-1": context("gpu-1", last=2, network_env={"NCCL_IB_HCA": "mlx5_7", "GLOO_SOCKET_IFNAME": "bond0"}),
        "box": context("box", address=""),
    }
    table = hardware_cells(contexts)
    assert (table["gpu-0"]["rate"], table["gpu-0"]["address"]) == ("8 x 400 Gbit/s", "10.0.0.1")
    assert table["gpu-0"]["NCCL_SOCKET_IFNAME"] == "=eth0 (derived)"
    assert (table["gpu-1"]["NCCL_IB_HCA"], table["gpu-1"]["GLOO_SOCKET_IFNAME"]) == ("mlx5_7 (set)", "bond0 (set)")
    assert "box" not in table
    contexts["ctl"] = context("ctl", 3, trains=False)
    environments = derived_environment(contexts)
    assert set(environments) == {"gpu-0", "gpu-1", "ctl"} and environments["gpu-0"]["GLOO_SOCKET_IFNAME"] == "eth0"
