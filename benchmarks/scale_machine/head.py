"""Answers `argus nodes` for a machine of scale.py, which has no head of Ray: with the nodes in a file, and no jobs."""

import json
import sys
from pathlib import Path

sys.path.insert(0, "/program")

from argus.cluster.membership import ClusterState, ExpectedNode, compare_nodes

expected = [ExpectedNode(**node) for node in json.load(sys.stdin)["expected"]]
nodes = json.loads(Path(sys.argv[1]).read_text())["data"]["result"]["result"]
state = ClusterState(compare_nodes(expected, nodes), nodes=nodes)
print(json.dumps({"changed": False, "findings": [], "result": state.to_json()}))
