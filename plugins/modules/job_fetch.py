#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This part runs where the shared root is; the action plugin of the same name brings its bundle to the controller.
from __future__ import annotations

DOCUMENTATION = r"""
module: job_fetch
short_description: Bring a job's archive to the controller
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Brings config, logs, metrics and the debug bundle of a job to C(<dest>/<submission_id>/) on the controller, as one
    compressed bundle, and its checkpoints on request.
  - Needs the shared root only, so it also works with the cluster down.
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
    description: The shared root as this host sees it.
    type: path
    default: /private
  checkpoints:
    description: Whether to bring its checkpoints as well.
    type: bool
    default: false
  dest:
    description: The directory on the controller that gets a directory of the job's name.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Bring a job's logs here
  argus.verl.job_fetch:
    submission_id: grpo-20260101-120000-1a2b
    dest: artifacts
"""

RETURN = r"""
path:
  description: Where the archive is now, on the controller.
  type: str
  returned: always
files:
  description: How many files were new or had changed.
  type: int
  returned: always
job:
  description: What the archive says of the job, as returned by M(argus.verl.ray_job_info).
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
from ansible_collections.argus.verl.plugins.module_utils.job.submission_id import SUBMISSION_ID
from ansible_collections.argus.verl.plugins.module_utils.status.listing import unknown_job


def chosen(archive: Path, checkpoints: bool) -> Iterator[Path]:
    """Every file but those half written, in order."""
    for path in sorted(archive.rglob("*")):
        below = path.relative_to(archive)
        if path.is_file() and not path.name.startswith(".") and (checkpoints or below.parts[0] != "checkpoints"):
            yield path


def bundle(archive: Path, checkpoints: bool, file: str) -> None:
    """A compressed tar of the archive; of a job that runs, files may grow meanwhile, or go."""
    # Level 1: logs shrink tenfold, and the network is rarely slower than a higher level.
    with tarfile.open(file, "w:gz", compresslevel=1) as tar:
        for path in chosen(archive, checkpoints):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as content:
                tar.addfile(tar.gettarinfo(fileobj=content, arcname=str(path.relative_to(archive))), content)


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
    jobs = Path(module.params["shared_root"]) / "jobs"
    archive = jobs / module.params["submission_id"]
    if not SUBMISSION_ID.fullmatch(module.params["submission_id"]) or not archive.is_dir():
        module.fail_json(msg=unknown_job(jobs, module.params["submission_id"]))
    # Not in module.tmpdir, which is gone before the bundle is fetched; 0600 by mkstemp.
    descriptor, file = tempfile.mkstemp(prefix="argus-verl-", suffix=".tar.gz")
    os.close(descriptor)
    try:
        bundle(archive, module.params["checkpoints"], file)
    except OSError as error:
        Path(file).unlink()
        module.fail_json(msg=f"{error.filename or file}: {error.strerror}. Is there space in {tempfile.gettempdir()}?")
    module.exit_json(changed=False, bundle=file, archive=str(archive))


if __name__ == "__main__":
    main()
