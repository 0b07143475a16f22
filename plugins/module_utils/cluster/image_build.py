# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build an image on a machine from a context that the controller has sent.

Runs on machines with Python 3.9 and newer.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from .image_archive import ImageError, ImageStore
from .images import INPUTS_LABEL
from .programs import environment

# What is shown of a build that fails.
LINES, LINE_BYTES = 20, 300


def build_command(engine: str, image: str, build: Mapping[str, Any]) -> list[str]:
    argv = [engine, "build", "--tag", image, "--label", f"{INPUTS_LABEL}={build['inputs']}"]
    argv += ["--file", str(build["dockerfile"])]
    for name, value in build["args"].items():
        argv += ["--build-arg", f"{name}={value}"]
    # Layers that the user wants to have again are in the engine's cache.
    return [*argv, "--force-rm", "-"]


def build_image(store: ImageStore, image: str, build: Mapping[str, Any]) -> dict[str, Any]:
    with Path(build["context"]).open("rb") as context:
        output = run(build_command(store.engine, image, build), "the build", context)
    found = store.find(image)
    if found is None or found.labels.get(INPUTS_LABEL) != build["inputs"]:
        raise ImageError(f"{store.engine} has not built {image}, although it reports no error", output)
    if build["push"]:
        run([store.engine, "push", image], f"pushing {image}", subprocess.DEVNULL)
    return {"id": found.id}


def pull_image(store: ImageStore, image: str) -> dict[str, Any]:
    output = run([store.engine, "pull", "--quiet", image], f"pulling {image}", subprocess.DEVNULL)
    found = store.find(image)
    if found is None:
        raise ImageError(f"{store.engine} has not pulled {image}, although it reports no error", output)
    return {"id": found.id, "labels": dict(found.labels)}


def run(argv: Sequence[str], what: str, source: IO[bytes] | int) -> list[str]:
    """Run a command of the engine, and return the last lines of its output."""
    ended = subprocess.run(
        argv, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), check=False
    )
    lines = [line[:LINE_BYTES] for line in ended.stdout.decode(errors="replace").splitlines() if line.strip()][-LINES:]
    if ended.returncode:
        last = lines[-1] if lines else "without a message"
        raise ImageError(f"{what} failed with exit code {ended.returncode}: {last}", lines)
    return lines
