from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.system import System
from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import INFINIBAND, Hca, Interface
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation, Problem
from ansible_collections.argus.verl.plugins.module_utils.preflight.network import (
    derived_environment,
    hardware_cells,
    hostname_problems,
    network_findings,
)
from samples import HEALTHY

HCAS = [Hca(f"mlx5_{number}", 1, f"ib{number}", "up", 400, INFINIBAND) for number in range(8)]
ETH0 = Interface("eth0", ("10.0.0.1/24",), 1500, 25, "up", uplink=True)


def context(name: str = "gpu-0", last: int = 1, **expected: object) -> Context:
    eth0 = replace(ETH0, addresses=(f"10.0.0.{last}/24",))
    known = Expectation(**{"address": f"10.0.0.{last}", **expected})  # type: ignore[arg-type]
    return Context(name, replace(HEALTHY, interfaces=(eth0,), hcas=HCAS), known)


def named(*addresses: str, **expected: object) -> list[Problem]:
    known = context(**expected)
    machine = replace(known.machine, system=System(hostname="gpu-0", addresses=addresses))
    return list(hostname_problems(machine, known.expected))


def test_hostname_of_a_loopback() -> None:
    both = ("10.0.0.1", "127.0.1.1")
    (problem,) = named(*both)
    assert problem.text == ("its host name gpu-0 resolves to 127.0.1.1, a loopback: jobs get GLOO_SOCKET_IFNAME=eth0")
    assert (problem.severity, problem.key) == ("warning", "network.hostname")
    (problem,) = named(*both, address="10.9.9.9")
    assert problem.severity == "error"
    (problem,) = named(*both, address="10.9.9.9", network_env={"GLOO_SOCKET_IFNAME": "bond0"})
    assert (problem.severity, problem.text.endswith("=bond0")) == ("warning", True)
    assert named("10.0.0.1") == []
    # Nodes with a network of their own have other names.
    assert named(*both, address="") == []


def proxy_findings(proxies: dict[str, str]) -> list[Finding]:
    first = context(last=1)
    first = replace(first, machine=replace(first.machine, proxies=proxies))
    findings = network_findings({"gpu-0": first, "gpu-1": context("gpu-1", last=2)})
    return [finding for finding in findings if finding.key == "network.proxy"]


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
    found = proxy_findings({"http_proxy": "http://proxy:3128", "no_proxy": no_proxy})
    assert [finding.where for finding in found] == (["gpu-0"] if missing else [])
    assert all(f"leaves out {missing}: connections" in finding.problem for finding in found)
    assert proxy_findings({"no_proxy": no_proxy}) == []


def test_cells_say_what_is_derived_and_what_is_set() -> None:
    contexts = {
        "gpu-0": context(last=1),
        "gpu-1": context("gpu-1", last=2, network_env={"NCCL_IB_HCA": "mlx5_7", "GLOO_SOCKET_IFNAME": "bond0"}),
        "box": context("box", address=""),
    }
    table = hardware_cells(contexts)
    assert table["gpu-0"] == {
        "rate": "8 x 400 Gbit/s",
        "address": "10.0.0.1",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7 (derived)",
        "NCCL_SOCKET_IFNAME": "=eth0 (derived)",
        "GLOO_SOCKET_IFNAME": "eth0 (derived)",
    }
    assert (table["gpu-1"]["NCCL_IB_HCA"], table["gpu-1"]["GLOO_SOCKET_IFNAME"]) == ("mlx5_7 (set)", "bond0 (set)")
    assert "box" not in table
    contexts["ctl"] = context("ctl", 3, trains=False)
    found = derived_environment(contexts)
    assert set(found) == {"gpu-0", "gpu-1", "ctl"} and found["gpu-0"]["GLOO_SOCKET_IFNAME"] == "eth0"
