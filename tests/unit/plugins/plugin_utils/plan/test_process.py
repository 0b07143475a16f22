"""The request of the verb `node`, from the plan of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.node_process import NodeProcess
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import PlanError
from ansible_collections.argus.verl.plugins.plugin_utils.plan.actions import Action, ActionKind, plan_node_action
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import process_arguments, sessions_directory
from samples import PROCESS_HOST, PROCESS_SETTINGS, machine, process_plan, with_settings

STARTED = "1970-01-01T00:01:00+00:00"


def test_the_environment_is_complete_without_that_of_the_connection() -> None:
    environment = process_arguments(process_plan(env={"HOME": "/scratch", "A": "1"}), PROCESS_HOST, "ml")["environment"]
    of_head = process_arguments(process_plan(name="ctl", role="head"), PROCESS_HOST, "ml")["environment"]
    assert {"ARGUS_VERL_REGISTRY", "RAY_gcs_storage_path", "ARGUS_VERL_JOBS_API"} <= of_head.keys() - environment
    assert of_head["ARGUS_VERL_AGENT_API"] == "http://127.0.0.1:20013"
    # Sessions of clusters are apart, and their sockets fit.
    assert sessions_directory("mvp", "/tmp/") == sessions_directory("mvp", "/tmp") != sessions_directory("x", "/tmp")
    path = sessions_directory("mvp", "/" + "x" * 16)
    assert len(f"{path}/ray/session_2026-01-31_23-59-59_999999_4194304/sockets/plasma_store") <= 107
    with pytest.raises(PlanError):
        sessions_directory("mvp", "/" + "x" * 36)
    path = "/opt/verl/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    user = {"HOME": "/scratch", "USER": "ml", "LOGNAME": "ml", "LANG": "C.UTF-8", "PATH": path, "A": "1"}
    state = "/home/ml/.local/state/argus-verl/mvp"
    ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": f"{state}/auth_token"}
    ray |= {"RAY_gcs_rpc_server_reconnect_timeout_s": "600", "RAY_TMPDIR": sessions_directory("mvp", "/tmp")}
    argus = {"CLUSTER": "mvp", "NODE": "worker-0", "SHARED_ROOT": "/srv/shared", "SHARED_ROOT_MOUNT": "/private"}
    argus |= {"NODE_DIRECTORY": PROCESS_HOST.directory, "PROGRAM": f"{state}/program"}
    assert environment == {**user, **ray, **{f"ARGUS_VERL_{name}": value for name, value in argus.items()}}


@pytest.mark.parametrize(
    ("state", "changes", "expected"),
    [
        ("running", {}, Action(ActionKind.KEEP, "runs as planned")),
        ("orphaned", {}, Action(ActionKind.START, "process is orphaned")),
        ("stopped", {}, Action(ActionKind.START, "process is stopped")),
        ("running", {"rotate_token": True}, Action(ActionKind.RECREATE, "its token is rotated, it is running", True)),
    ],
)
def test_action_for_a_process_that_is_there(state: str, changes: dict[str, object], expected: Action) -> None:
    before = process_arguments(process_plan(), PROCESS_HOST, "ml")
    process = NodeProcess(state, 7, STARTED, 0, None, before["specification"], before["settings"])
    host = replace(PROCESS_HOST, node=process)
    probed = machine(process=host, user="ml")
    plan = plan_node_action(with_settings(PROCESS_SETTINGS, **changes), probed, ["worker-0"])  # type: ignore[arg-type]
    assert Action(plan.action, plan.reason, plan.disrupts) == expected
    assert plan.started_at == STARTED
    new = plan_node_action(PROCESS_SETTINGS, machine(process=PROCESS_HOST, user="ml"), ["worker-0"])
    assert (new.action, new.started_at, new.container, new.image, new.image_missing) == ("create", None, {}, "", False)
