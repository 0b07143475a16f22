# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher as it is sent to a node: as files for an archive, and as a program in sealed memory for the head."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Iterator

from ..launcher import __name__ as launcher_package
from ..launcher import (
    admission,
    attempt_checks,
    attempts,
    checkpoints,
    commands,
    draining,
    ending,
    evidence,
    failures,
    health,
    hydra,
    identity,
    isolation,
    job_warnings,
    launch,
    log,
    log_scan,
    masking,
    metrics,
    node,
    outcome,
    output,
    plan,
    processes,
    program,
    pulse,
    ray_api,
    reading,
    recording,
    redact,
    room,
    schema,
    status,
    steward,
    steward_decisions,
    tasks,
    torchrun,
    watch,
    writing,
)
from ..launcher import (
    archive as archive_module,
)
from ..launcher.archive import Archive
from ..launcher.program import MAIN, PACKAGE, Program

LAUNCHER_MODULES = (
    admission,
    archive_module,
    attempt_checks,
    attempts,
    checkpoints,
    commands,
    draining,
    ending,
    evidence,
    failures,
    health,
    hydra,
    identity,
    isolation,
    job_warnings,
    launch,
    log,
    log_scan,
    masking,
    metrics,
    node,
    outcome,
    output,
    plan,
    processes,
    program,
    pulse,
    ray_api,
    reading,
    recording,
    redact,
    room,
    schema,
    status,
    steward,
    steward_decisions,
    tasks,
    torchrun,
    watch,
    writing,
)


def launcher_files() -> dict[str, str]:
    """The launcher as a program: the text of each file by its name."""
    modules = {module.__name__.rpartition(".")[2]: inspect.getsource(module) for module in LAUNCHER_MODULES}
    return {
        f"{PACKAGE}/__init__.py": f'"""A copy of {launcher_package}."""\n',
        **{f"{PACKAGE}/{name}.py": text for name, text in modules.items()},
        "__main__.py": MAIN,
    }


def write_launcher(archive: Archive) -> None:
    """Copy the launcher into the archive: workers run it, and the code that ran beside the training stays known."""
    for name, text in launcher_files().items():
        archive.write_text(f"config/launcher/{name}", text)


@contextlib.contextmanager
def launcher_program() -> Iterator[Program]:
    """The launcher of this process as a program that no other process can change."""
    program = Program.sealed(launcher_files())
    try:
        yield program
    finally:
        if program.descriptor is not None:
            os.close(program.descriptor)
