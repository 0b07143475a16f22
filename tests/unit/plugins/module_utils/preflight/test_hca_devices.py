"""The devices of HCAs, and whether the nodes' user can open them."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import DeviceFile
from ansible_collections.argus.verl.plugins.module_utils.network.hcas import Hca
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from samples import HEALTHY, hca

UP, DOWN = hca("mlx5_0", "up"), hca("mlx5_1", "down")
OPEN = DeviceFile("/dev/infiniband/uverbs0", 0o666, 0, 0)
CLOSED = DeviceFile("/dev/infiniband/uverbs1", 0o660, 0, 110)


def findings(asked: str, hcas: list[Hca], files: list[DeviceFile], groups: tuple[str, ...] = ()) -> list[Finding]:
    expected = Expectation(rdma=asked, groups=groups, user="61000:61000")
    found = machine_findings("gpu-0", replace(HEALTHY, hcas=hcas, rdma_devices=files), expected)
    return [finding for finding in found if finding.key == "hca.devices"]


def test_nothing_is_missing() -> None:
    assert findings("auto", [UP], [OPEN]) == []
    assert findings("auto", [], []) == []
    assert findings("auto", [UP], [OPEN, CLOSED], ("110",)) == []
    # Not asked for.
    assert findings("false", [UP], []) == []
    assert findings("false", [UP], [CLOSED]) == []


def test_driver_without_devices() -> None:
    (finding,) = findings("auto", [UP, DOWN], [])
    assert finding.what == "2 HCA ports, but no /dev/infiniband/uverbs*: jobs would use TCP instead of RDMA"
    assert (finding.severity, "modprobe ib_uverbs" in finding.todo) == (WARNING, True)
    # The engine refuses a device that does not exist.
    (finding,) = findings("true", [], [])
    assert finding.what == "0 HCA ports, but no /dev/infiniband/uverbs*: nodes would not start"
    assert finding.severity == ERROR


def test_devices_that_the_nodes_user_cannot_open() -> None:
    for asked in ("auto", "true"):
        (finding,) = findings(asked, [UP], [OPEN, CLOSED], ("44",))
        assert finding.what == (
            "the nodes' user 61000:61000 cannot open /dev/infiniband/uverbs1 (mode 660, 0:110): jobs would use TCP "
            "instead of RDMA"
        )
        assert finding.severity == WARNING
    # The number of a named group is not known here.
    assert findings("auto", [UP], [CLOSED], ("44", "rdma")) == []
