#!/usr/bin/env python3
"""Compares the time and space of a snapshot of verl with `cp -r` and `rsync -a`, in one run on one machine.

The checkout is the wheel of a release, downloaded by pip. The second snapshot is of the same checkout with one changed
file. The figures are medians of several rounds; `--directory` puts the copies on another file system, such as a network
mount.

Run it after `make setup-dev`, on an idle machine: `.venv/bin/python benchmarks/snapshots.py`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from argus.common.shared_root import SNAPSHOTS
from argus.staging.files import remove_tree
from argus.staging.snapshots import snapshot
from argus.staging.sources import PyPISource, source_of
from argus.staging.tree import PACKAGES


def timed(what: Callable[[], object]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def space(directory: Path) -> int:
    """The disk space of a directory; hard links count once."""
    done = subprocess.run(["du", "--summarize", "--block-size=1", str(directory)], capture_output=True, check=True)
    return int(done.stdout.split()[0])


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="0.9.1", help="which release of verl")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--directory", help="the directory for the copies; temporary by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory(dir=given.directory) as there:
        checkout, root, copy = Path(here) / "verl", Path(there) / "shared", Path(there) / "copy"
        with zipfile.ZipFile(PyPISource(given.version).wheel(Path(here))) as wheel:
            wheel.extractall(checkout, [name for name in wheel.namelist() if name.partition("/")[0] in PACKAGES])
        files = [path for path in checkout.rglob("*") if path.is_file()]
        changed = checkout / "verl" / "trainer" / "main_ppo.py"
        size = sum(path.stat().st_size for path in files) / 2**20
        print(
            f"verl {given.version}: {len(files)} files, {size:.1f} MiB; medians of {given.rounds} rounds, in {there}\n"
        )

        def stage() -> None:
            snapshot(root, source_of(str(checkout), root))

        def change() -> None:
            changed.write_text(f"{changed.read_text()}\n# {time.time_ns()}\n")

        def nothing() -> None:
            shutil.rmtree(copy, ignore_errors=True)
            remove_tree(root)
            root.mkdir()

        def links() -> None:
            run("cp", "-al", *map(str, (root / SNAPSHOTS).glob("verl-*")), str(copy))

        # The preparation, and the operation that is measured.
        ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "cp -r": (nothing, lambda: run("cp", "-r", str(checkout), str(copy))),
            "cp -r, to disk": (nothing, lambda: run("sh", "-c", f"cp -r '{checkout}' '{copy}' && sync -f '{copy}'")),
            "first snapshot": (nothing, stage),
            # The lower limit for anything that creates a link for each file.
            "cp -al of the first": (lambda: None, links),
            "second, one file changed": (change, stage),
        }
        if shutil.which("rsync"):
            ways["rsync -a"] = (nothing, lambda: run("rsync", "-a", f"{checkout}/", f"{copy}/"))
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        # All of them in each round, because the speed of a disk varies.
        for _round in range(given.rounds):
            for name, (prepare, way) in ways.items():
                prepare()
                seconds[name].append(timed(way))
        raw = statistics.median(seconds["cp -r"])
        for name in ways:
            median = statistics.median(seconds[name])
            print(f"{name:26} {1000 * median:7.1f} ms  {median / raw:5.2f} x cp -r")
        nothing()
        stage()
        one = space(root)
        change()
        stage()
        print(f"\nspace: first {one / 2**20:.1f} MiB, second {(space(root) - one) / 2**20:.2f} MiB more")
        print(f"       ({100 * (space(root) - one) / one:.1f} %)")


if __name__ == "__main__":
    main()
