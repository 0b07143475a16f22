"""The request of the verb `node`, from the plan of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.node_process import NodeProcess
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import PlanError
from ansible_collections.argus.verl.plugins.plugin_utils.plan.actions import (
    AS_PLANNED,
    STALE,
    Action,
    ActionKind,
    planned_node,
)
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import (
    process_arguments,
    sessions_directory,
    start_command,
)
from samples import PROCESS_HOST, PROCESS_SETTINGS, machine, process_plan, with_settings

STARTED = "1970-01-01T00:01:00+00:00"


def test_ray_is_started_as_in_a_container() -> None:
    plan = process_plan()
    arguments = process_arguments(plan, PROCESS_HOST, "ml")
    assert arguments["command"] == start_command(plan)
    assert {"--node-ip-address=10.0.0.21", "--address=10.0.0.20:20000"} <= set(arguments["command"])
    assert arguments["directory"] == PROCESS_HOST.directory
    assert arguments["working_directory"] == arguments["environment"]["RAY_TMPDIR"] == sessions_directory("mvp", "/tmp")


def test_the_environment_is_complete_without_that_of_the_connection() -> None:
    environment = process_arguments(process_plan(env={"HOME": "/scratch", "A": "1"}), PROCESS_HOST, "ml")["environment"]
    assert environment == {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/home/ml/.local/state/argus-verl/mvp/auth_token",
        "PATH": "/opt/verl/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/scratch",
        "USER": "ml",
        "LOGNAME": "ml",
        "LANG": "C.UTF-8",
        "ARGUS_VERL_CLUSTER": "mvp",
        "ARGUS_VERL_NODE": "worker-0",
        "ARGUS_VERL_SHARED_ROOT": "/srv/shared",
        "ARGUS_VERL_SHARED_ROOT_MOUNT": "/private",
        "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
        "RAY_TMPDIR": sessions_directory("mvp", "/tmp"),
        "ARGUS_VERL_NODE_DIRECTORY": PROCESS_HOST.directory,
        "ARGUS_VERL_PROGRAM": "/home/ml/.local/state/argus-verl/mvp/program",
        "A": "1",
    }


def test_the_head_has_the_registry_of_jobs() -> None:
    environment = process_arguments(process_plan(name="ctl", role="head"), PROCESS_HOST, "ml")["environment"]
    assert environment["ARGUS_VERL_REGISTRY"] == "/home/ml/.local/state/argus-verl/mvp/jobs"
    assert environment["RAY_gcs_storage_path"] == "/home/ml/.local/state/argus-verl/mvp/tables"
    assert environment["ARGUS_VERL_JOBS_API"].startswith("http://127.0.0.1:")
    assert environment["ARGUS_VERL_AGENT_API"] == "http://127.0.0.1:20013"


def test_every_argument_is_in_the_specification() -> None:
    first = process_arguments(process_plan(), PROCESS_HOST, "ml")
    assert process_arguments(process_plan(), PROCESS_HOST, "ml") == first
    others = [
        process_arguments(process_plan(python="/opt/x/bin/python3"), PROCESS_HOST, "ml"),
        process_arguments(process_plan(env={"A": "1"}), PROCESS_HOST, "ml"),
        process_arguments(process_plan(gpus=1), PROCESS_HOST, "ml"),
        process_arguments(process_plan(), replace(PROCESS_HOST, directory="/x/mvp/nodes/worker-0"), "ml"),
    ]
    assert len({arguments["specification"] for arguments in [first, *others]}) == 5


def test_sessions_of_clusters_are_apart_and_their_sockets_fit() -> None:
    assert sessions_directory("mvp", "/tmp") != sessions_directory("other", "/tmp")
    assert sessions_directory("mvp", "/tmp/") == sessions_directory("mvp", "/tmp")
    longest = "/" + "x" * 16
    path = sessions_directory("mvp", longest)
    assert len(f"{path}/ray/session_2026-01-31_23-59-59_999999_4194304/sockets/plasma_store") <= 107
    with pytest.raises(PlanError, match=r"RAY_TMPDIR /x+ of ray_node_env is too long: .* at most \d+"):
        sessions_directory("mvp", longest + "x" * 20)


def test_planned_process() -> None:
    plan = planned_node(PROCESS_SETTINGS, machine(process=PROCESS_HOST, user="ml"), ["worker-0"])
    assert (plan.container, plan.image, plan.image_missing, plan.user) == ({}, "", False, "1001:1002")
    assert (plan.action, plan.reason) == (ActionKind.CREATE, "no process")
    assert plan.started_at is None


@pytest.mark.parametrize(
    ("state", "changes", "expected"),
    [
        ("running", {}, Action(ActionKind.KEEP, "runs as planned")),
        ("orphaned", {}, Action(ActionKind.START, "process is orphaned")),
        ("stopped", {}, Action(ActionKind.START, "process is stopped")),
        (
            "running",
            {"gpus": 1},
            Action(
                ActionKind.RECREATE,
                "its settings changed: ray_node_cpus 48 → 12, ray_node_gpus 4 → 1, it is running",
                disrupts=True,
            ),
        ),
        ("running", {"rotate_token": True}, Action(ActionKind.RECREATE, "its token is rotated, it is running", True)),
    ],
)
def test_action_for_a_process_that_is_there(state: str, changes: dict[str, object], expected: Action) -> None:
    before = process_arguments(process_plan(), PROCESS_HOST, "ml")
    found = NodeProcess(state, 7, STARTED, 0, None, before["specification"], before["settings"])
    host = replace(PROCESS_HOST, node=found)
    there = machine(process=host, user="ml")
    plan = planned_node(with_settings(PROCESS_SETTINGS, **changes), there, ["worker-0"])  # type: ignore[arg-type]
    assert Action(plan.action, plan.reason, plan.disrupts) == expected
    assert plan.started_at == STARTED


def test_variables_that_are_derived_anew_do_not_restart_a_process() -> None:
    before = process_arguments(process_plan(derived_env={"GLOO_SOCKET_IFNAME": "eth0"}), PROCESS_HOST, "ml")
    found = NodeProcess(
        "running",
        7,
        "1970-01-01T00:01:00.500000+00:00",
        0,
        None,
        before["specification"],
        before["settings"],
        before["derived"],
    )
    there = machine(process=replace(PROCESS_HOST, node=found), user="ml")

    def reason(**derived: str) -> str:
        return planned_node(with_settings(PROCESS_SETTINGS, derived_env=derived), there, ["worker-0"]).reason

    assert reason(GLOO_SOCKET_IFNAME="eth0") == AS_PLANNED
    assert reason(GLOO_SOCKET_IFNAME="eth1") == reason() == STALE
