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
job:
  description: The job as its archive describes it, as returned by M(argus.verl.ray_job_info).
  type: dict
  returned: always
"""

import contextlib
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.status.listing import UnknownJobError, find_job


def chosen(archive: Path, checkpoints: bool) -> Iterator[Path]:
    """The files to fetch, in order, without temporary files."""
    for path in sorted(archive.rglob("*")):
        below = path.relative_to(archive)
        if path.is_file() and not path.name.startswith(".") and (checkpoints or below.parts[0] != "checkpoints"):
            yield path


def bundle(archive: Path, checkpoints: bool, file: str) -> None:
    """Write a compressed tar of the archive. While the job runs, files may grow or disappear meanwhile."""
    # Level 1 shrinks logs tenfold; higher levels are usually slower than the network.
    with tarfile.open(file, "w:gz", compresslevel=1) as tar:
        for path in chosen(archive, checkpoints):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as content:
                tar.addfile(tar.gettarinfo(fileobj=content, arcname=str(path.relative_to(archive))), content)


def fetch(module: AnsibleModule, archive: Path) -> None:
    # Not in module.tmpdir, which is removed before the action plugin fetches the bundle. mkstemp sets mode 0600.
    descriptor, file = tempfile.mkstemp(prefix="argus-verl-", suffix=".tar.gz")
    os.close(descriptor)
    try:
        bundle(archive, module.params["checkpoints"], file)
    except OSError as error:
        Path(file).unlink()
        module.fail_json(
            msg=f"{error.filename or file}: {error.strerror}. Does {tempfile.gettempdir()} have enough free space?"
        )
    else:
        module.exit_json(changed=False, bundle=file, archive=str(archive))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "submission_id": {"type": "str", "required": True},
            "shared_root": {"type": "path", "default": "/private"},
            "checkpoints": {"type": "bool", "default": False},
            "dest": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        archive = find_job(Path(module.params["shared_root"]) / "jobs", module.params["submission_id"]).path
    except UnknownJobError as error:
        module.fail_json(msg=str(error))
    else:
        fetch(module, archive)


if __name__ == "__main__":
    main()
