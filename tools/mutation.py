#!/usr/bin/env python3
"""Mutation test: change one place of the code, and check that a unit test fails.

    make mutation [COUNT=200] [SEED=1]

Takes a random sample of the places in packages of argus that cosmic-ray can change, and makes one change at each.
Annotations are left out, because they have no effect. Each mutant is tested in a copy of the checkout, with the unit
tests of its package only; a test that hangs counts as one that fails. Prints the diff of each mutant that no test
noticed, and how many were noticed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_item import MutationSpec

REPO = Path(__file__).resolve().parents[1]
PROGRAM = Path("argus")
# Packages of which each is tested by the tests of all.
JOB_PACKAGES = ("archive", "evidence", "hooks", "io", "launcher", "queue", "ray")
PACKAGES = ("gate", "jobspec", "staging", "steward", *JOB_PACKAGES)
ATTACKS = [f"tests/attacks/test_{name}.py" for name in ("archives", "masking", "regexes")]
JOB_TESTS = [*(f"tests/argus/{package}" for package in JOB_PACKAGES), "tests/unit/test_recorded_archives.py", *ATTACKS]
# The tests of a package, beside those in its own directory.
FURTHER_TESTS = {
    **dict.fromkeys(JOB_PACKAGES, JOB_TESTS),
    "steward": ["tests/argus/queue"],
    "gate": [],
    "jobspec": ["tests/unit/tools/test_jobspec_schema.py"],
    "staging": ["tests/unit/plugins/action/test_stage.py", "tests/attacks/test_staging.py"],
}
TIMEOUT_SECONDS = 300
# A line and a column.
Position = tuple[int, int]


def annotation_spans(source: str) -> list[tuple[Position, Position]]:
    """The begin and the end of every annotation."""
    spans = []
    for node in ast.walk(ast.parse(source)):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(part, ast.expr):
                spans.append(((part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)))
    return spans


def possible_mutations(package: str) -> Iterator[MutationSpec]:
    files = sorted((REPO / PROGRAM / package).rglob("*.py"))
    skipped = {file: annotation_spans(file.read_text(encoding="utf-8")) for file in files}
    for item in _all_work_items(files, {}):
        for mutation in item.mutations:
            if not any(begin <= mutation.start_pos < end for begin, end in skipped[mutation.module_path]):
                yield mutation


def sample_mutations(packages: Sequence[str], count: int, seed: int) -> list[MutationSpec]:
    """One random mutation at each of `count` random places."""
    chance = random.Random(seed)  # noqa: S311 - it has to be repeatable
    by_place: dict[tuple[str, Position], list[MutationSpec]] = {}
    for package in packages:
        for mutation in possible_mutations(package):
            by_place.setdefault((str(mutation.module_path), mutation.start_pos), []).append(mutation)
    chosen = chance.sample(sorted(by_place), min(count, len(by_place)))
    return [chance.choice(by_place[place]) for place in chosen]


def copy_checkout(directory: Path) -> Path:
    """Copy the checkout into a directory for PYTHONPATH, as a collection, and return the path of the copy."""
    collection = directory / "ansible_collections" / "argus" / "verl"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, check=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        if (REPO / name).exists():
            (collection / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, collection / name, follow_symlinks=False)
    return collection


def tests_pass(package: str, collection: Path) -> bool:
    """Whether the unit tests of a package pass in a copy of the checkout."""
    tests = [f"tests/argus/{package}", "tests/unit/test_types.py", *FURTHER_TESTS[package]]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *tests]
    environment = {**os.environ, "PYTHONPATH": str(collection.parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=collection, env=environment, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def unnoticed_diff(mutation: MutationSpec, collection: Path) -> str:
    """The diff of a mutation that no test notices in this copy of the checkout; empty if one does."""
    relative = mutation.module_path.relative_to(REPO)
    file = collection / relative
    before = file.read_text(encoding="utf-8")
    after = mutate_code(before, get_operator(mutation.operator_name)(), mutation.occurrence) or before
    file.write_text(after, encoding="utf-8")
    try:
        if after == before or not tests_pass(relative.parts[1], collection):
            return ""
    finally:
        file.write_text(before, encoding="utf-8")
    pair = before.splitlines(), after.splitlines()
    lines = difflib.unified_diff(*pair, str(relative), mutation.operator_name, n=0, lineterm="")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the random sample")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many are tested at a time")
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=PACKAGES, help="all by default")
    arguments = parser.parse_args()
    mutations = sample_mutations(arguments.packages, arguments.count, arguments.seed)
    killed: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(arguments.workers) as pool:
        free_copies = [copy_checkout(Path(directory, str(number))) for number in range(arguments.workers)]
        broken = [package for package in arguments.packages if not tests_pass(package, free_copies[0])]
        if broken:
            print(f"tests fail without any change: {', '.join(broken)}", file=sys.stderr)
            return 1

        def run(mutation: MutationSpec) -> tuple[MutationSpec, str]:
            collection = free_copies.pop()
            try:
                return mutation, unnoticed_diff(mutation, collection)
            finally:
                free_copies.append(collection)

        for mutation, diff in pool.map(run, mutations):
            package = mutation.module_path.relative_to(REPO / PROGRAM).parts[0]
            tried[package] += 1
            killed[package] += not diff
            if tried.total() % 10 == 0:
                print(f"{killed.total()} of {tried.total()} killed", file=sys.stderr, flush=True)
            if diff:
                print(f"{diff}\n", flush=True)
    for package in arguments.packages:
        print(f"{package}: {killed[package]} of {tried[package]} killed")
    print(f"all: {killed.total()} of {tried.total()} killed, {100 * killed.total() / tried.total():.0f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
