# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.ray_cluster_info`: run argus nodes on the head, also while that starts, and show its cluster.

Documented in plugins/modules/ray_cluster_info.py.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.cluster.membership import ExpectedNode, unanswered_state
from ansible_collections.argus.verl.plugins.modules.ray_cluster_info import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result, documented_options
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import HEADS, NODES, Groups
from ansible_collections.argus.verl.plugins.plugin_utils.presence.presence import (
    ClusterInfo,
    RunResults,
    Scope,
    cluster_report,
)
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import TIMEOUT_SECONDS, NodeAction, ProgramError
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report

# After how long a head that does not run is asked again.
PAUSE_SECONDS = 1.0


class ActionModule(NodeAction):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        timeout, earlier = arguments["wait_timeout"], arguments["earlier"]
        if not arguments["plan"]:
            return self.wait_for_nodes([ExpectedNode(**node) for node in arguments["expected"]], earlier, timeout)
        results = RunResults(variables["hostvars"], arguments["plan"])
        answer = self.wait_for_nodes(results.expected(head_answers=earlier.get("problem") == ""), earlier, timeout)
        if arguments["show"] == "never" or (arguments["show"] == "ready" and answer["missing"]):
            return answer
        shown = self.show_cluster(answer, results, variables["groups"], arguments)
        return shown if shown.get("failed") else answer

    def wait_for_nodes(self, expected: Sequence[ExpectedNode], earlier: Result, timeout: float) -> Result:
        """The head's answer once all nodes that may join have joined, or none has joined for `timeout` seconds."""
        began, end = earlier.get("began", time.time()), time.time() + timeout
        awaited = len(earlier.get("awaited", [node for node in expected if not node.absent]))
        while True:
            answer, may_answer_later = self.state(expected, max(0.0, end - time.time()))
            remaining = len(answer["awaited"])
            has_joined = timeout > 0 and remaining < awaited
            # Its engine may restart the head meanwhile.
            may_return = may_answer_later and time.time() + PAUSE_SECONDS < end
            if not remaining or not (has_joined or may_return):
                return {**answer, "changed": False, "began": began, "waited": round(max(0, time.time() - began), 1)}
            if has_joined:
                awaited, end = remaining, time.time() + timeout
            else:
                time.sleep(PAUSE_SECONDS)

    def state(self, expected: Sequence[ExpectedNode], timeout: float) -> tuple[Result, bool]:
        """What the head answers, and whether it may answer later. Without an answer, all nodes are missing."""
        request = {"expected": [node.to_json() for node in expected], "wait_timeout": timeout}
        try:
            # Only the head itself can be asked.
            answer = self.verb_result("nodes", request, TIMEOUT_SECONDS + timeout, only_running_node=True)
            # Jobs can register nodes with Ray, and people paste commands with these addresses.
            for node in answer["nodes"]:
                node |= {} if is_address(str(node.get("node_ip"))) else {"node_ip": ""}
            return answer, False
        except ProgramError as error:
            return unanswered_state(expected, str(error)).to_json(), error.may_answer_later

    def show_cluster(self, answer: Result, results: RunResults, groups: Groups, arguments: Mapping[str, Any]) -> Result:
        """Show the cluster, or the nodes that are missing; a failure if too few are ready."""
        plans = results.nodes()
        scope = Scope(
            name=self.node.cluster,
            dashboard=arguments["dashboard"],
            inventory_nodes=groups[NODES],
            heads=groups[HEADS],
            outside=[node for node in groups[NODES] if node not in plans],
            least=arguments["least"],
        )
        logs = {name: results.log(name) for name in answer["missing"] if name in plans}
        planned = {name: node for name, node in plans.items() if not node.absent_reason}
        return print_report(**cluster_report(ClusterInfo.from_json(answer), planned, logs, scope))


def is_address(text: str) -> bool:
    """Whether it is an IP address, without a zone, which may have any characters."""
    try:
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False
