#!/usr/bin/env python3
"""The hosts of the task that this process runs in, as dstack names them; without it, this host alone.

Ansible runs on the first host, and reaches the others over SSH. That host has the head and a worker of its own, so that
all GPUs train.
"""

import json
import os

addresses = os.environ.get("DSTACK_NODES_IPS", "").split() or [""]
ssh = {"ansible_connection": "argus.verl.ssh"}
workers = {f"node-{rank}": {"ansible_host": address, **ssh} for rank, address in enumerate(addresses)}
# The address is the one at which others reach it; alone, it needs none.
here = {"ansible_connection": "local", **({"ansible_host": addresses[0]} if addresses[0] else {})}
inventory = {
    "_meta": {"hostvars": {**workers, "node-0": here, "node-head": here}},
    "ray": {"children": ["head", "workers"]},
    "head": {"hosts": ["node-head"]},
    "workers": {"hosts": list(workers)},
}
print(json.dumps(inventory))
