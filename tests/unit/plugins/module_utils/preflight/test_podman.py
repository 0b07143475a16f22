"""Findings about a machine with Podman."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import Engine, EngineStatus
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from samples import DOCKER, HEALTHY, machine

ROOTFUL = Engine("podman", EngineStatus.OK, "4.9.4")
ROOTLESS = replace(ROOTFUL, rootless=True)


def found(engine: Engine, address: str = "") -> list[tuple[str, str, str]]:
    there = machine(uid=1001, user="ml", engine=engine)
    findings = machine_findings("gpu-0", there, Expectation(address=address))
    return [(each.key, each.severity, each.todo) for each in findings if each.key.startswith("podman.")]


def test_nothing_is_wrong() -> None:
    assert found(ROOTLESS) == []


def test_sessions_that_end_come_before_boots() -> None:
    assert found(replace(ROOTLESS, lingers=False, boots=False)) == [
        ("podman.lingers", "error", "loginctl enable-linger ml")
    ]
    ((key, severity, todo),) = found(replace(ROOTLESS, boots=False))
    assert (key, severity) == ("podman.boot", "warning")
    assert todo.startswith("systemctl --user enable podman-restart.service")
    ((_key, _severity, todo),) = found(replace(ROOTFUL, boots=False))
    assert todo.startswith("systemctl enable podman-restart.service")


def test_limits_that_have_no_effect() -> None:
    ((key, severity, _todo),) = found(replace(ROOTLESS, limits_pids=False))
    assert (key, severity) == ("podman.limits", "warning")


def test_networks_of_their_own() -> None:
    ((key, severity, todo),) = found(replace(ROOTLESS, tun=False))
    assert (key, severity) == ("podman.tun", "error")
    assert "chmod 0666 /dev/net/tun" in todo
    assert found(replace(ROOTLESS, tun=False), address="10.0.0.1") == []


def test_other_engines_and_engines_that_do_not_answer_have_no_such_findings() -> None:
    wrong = {"lingers": False, "boots": False, "limits_pids": False, "tun": False}
    assert found(replace(DOCKER, **wrong)) == []
    assert found(replace(ROOTLESS, status=EngineStatus.FAILED, **wrong)) == []


def test_the_findings_are_among_those_of_the_machine_and_no_package_is_needed() -> None:
    there = replace(HEALTHY, engine=replace(ROOTFUL, boots=False, nvidia=True), missing_packages=["requests"])
    keys = [finding.key for finding in machine_findings("gpu-0", there, Expectation())]
    assert keys == ["podman.boot"]


def test_a_user_who_may_not_use_podman_needs_subordinate_ids() -> None:
    denied = replace(ROOTLESS, status=EngineStatus.DENIED, error="permission denied")
    (finding,) = machine_findings("gpu-0", replace(HEALTHY, engine=denied), Expectation())
    assert "usermod --add-subuids" in finding.todo
