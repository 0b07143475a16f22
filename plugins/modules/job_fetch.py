#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Runs where the shared root is. The action plugin of the same name fetches the bundle to the controller.
from __future__ import annotations

DOCUMENTATION = r"""
module: job_fetch
short_description: Fetch the archive of a training job
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Fetches the configuration, logs, metrics and evidence of a job to C(<dest>/<submission_id>/) on the controller, as
    one compressed bundle. Checkpoints are fetched on request.
  - Only regular files are fetched. Links, FIFOs, devices, sockets, files that are too large, and names that other
    systems cannot store or show are skipped and listed in a warning.
  - Reads the archive as the user of the nodes, never as root.
  - Needs only the shared root, so it also works while the cluster is down.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  submission_id:
    description: The job's id.
    type: str
    required: true
  shared_root:
    description: The path of the shared root on this host.
    type: path
    default: /private
  checkpoints:
    description: Whether to fetch the job's checkpoints as well.
    type: bool
    default: false
  max_file_mib:
    description:
      - The size in MiB up to which a file is fetched. Jobs can create files of any size, which would fill the
        controller. V(0) stands for 2048, or 65536 with O(checkpoints).
    type: int
    default: 0
  max_total_mib:
    description:
      - The size in MiB up to which all files together are fetched. V(0) stands for 8192, or 4194304 with
        O(checkpoints).
    type: int
    default: 0
  dest:
    description: The directory on the controller in which a directory named after the job is created.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Fetch a job's logs
  argus.verl.job_fetch:
    submission_id: grpo-20260101-120000-1a2b
    dest: artifacts
"""

RETURN = r"""
path:
  description: The directory on the controller with the fetched files.
  type: str
  returned: always
files:
  description: The number of files that were new or had changed.
  type: int
  returned: always
skipped:
  description: What was skipped, and why, at most 100 entries. C(<name>), a colon and the reason.
  type: list
  elements: str
  returned: always
job:
  description: The job as its archive describes it, as returned by M(argus.verl.ray_job_info).
  type: dict
  returned: always
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.bundle import BundleError, limits, pack
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.listing import UnknownJobError, find_job
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.reading import UnreadableError
from ansible_collections.argus.verl.plugins.module_utils.privileges import failure, without_root


def fetch(params: dict[str, Any], descriptor: int) -> dict[str, Any]:
    """Write the bundle of an archive to an open file."""
    jobs = Path(params["shared_root"]) / "jobs"
    size = limits(params["checkpoints"], params["max_file_mib"], params["max_total_mib"])
    try:
        archive = find_job(jobs, params["submission_id"])
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            skipped = pack(jobs, archive.submission_id, params["checkpoints"], size, file)
        bundle_bytes = os.fstat(descriptor).st_size
    except (UnknownJobError, BundleError, UnreadableError) as error:
        return failure(str(error))
    except OSError as error:
        return failure(
            f"The bundle cannot be written: {error.strerror}. Does {tempfile.gettempdir()} have enough free space?"
        )
    return {"changed": False, "archive": str(archive.path), "skipped": skipped, "bundle_bytes": bundle_bytes}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "submission_id": {"type": "str", "required": True},
            "shared_root": {"type": "path", "default": "/private"},
            "checkpoints": {"type": "bool", "default": False},
            "max_file_mib": {"type": "int", "default": 0},
            "max_total_mib": {"type": "int", "default": 0},
            "dest": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    # Not in module.tmpdir, which is removed before the action plugin fetches the bundle. mkstemp sets mode 0600. The
    # process that writes it gets it opened: no other process can replace or read it.
    descriptor, file = tempfile.mkstemp(prefix="argus-verl-", suffix=".tar.gz")
    result = without_root(Path(module.params["shared_root"]), lambda: fetch(module.params, descriptor))
    os.close(descriptor)
    if result.get("failed"):
        Path(file).unlink()
        module.fail_json(**result)
    module.exit_json(**result | {"bundle": file})


if __name__ == "__main__":
    main()
