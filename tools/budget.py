"""Print the sizes of the collection and its slowest tests; fail if a size is above its limit in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from xml.etree import ElementTree

import yaml

REPO = Path(__file__).resolve().parents[1]
SLOWEST_COUNT = 10


def read_text(file: Path) -> str:
    return (REPO / file).read_text(encoding="utf-8", errors="replace")


def count_lines(files: Iterable[Path]) -> int:
    return sum(read_text(file).count("\n") for file in files)


def measure(files: list[Path]) -> dict[str, int]:
    """The sizes by the names of their limits, of files by their paths in the repository."""

    def files_in(*directories: str, suffix: str) -> list[Path]:
        return [file for file in files if file.parts[0] in directories and file.suffix == suffix]

    def plugin_count(kind: str, suffix: str) -> int:
        return sum(file.parent == Path("plugins", kind) and file.suffix == suffix for file in files)

    source = files_in("argus", "plugins", suffix=".py")
    tests = [*files_in("tests", suffix=".py"), *(file for file in files if file.parts[0] == "molecule")]
    pages = [file for file in files if file.suffix == ".md"]
    variables: set[str] = set()
    for file in files:
        if file.match("roles/*/meta/argument_specs.yml"):
            specs = yaml.safe_load(read_text(file))["argument_specs"]
            variables.update(name for spec in specs.values() for name in spec.get("options", {}))
    return {
        "source_lines": count_lines(source),
        "source_files": len(source),
        "test_lines": count_lines(tests),
        "documentation_words": sum(len(read_text(file).split()) for file in pages),
        "public_variables": len(variables),
        "modules": plugin_count("modules", ".py"),
        "actions": plugin_count("action", ".py"),
        "filters": plugin_count("filter", ".yml"),
    }


def slowest_tests(reports: Path) -> list[tuple[float, str]]:
    """The seconds and names of the slowest tests, from a directory of JUnit reports of their last runs."""
    trees = map(ElementTree.parse, reports.glob("*.xml"))
    cases = (case for tree in trees for case in tree.iter("testcase"))
    return sorted(((float(case.get("time", 0)), str(case.get("name"))) for case in cases), reverse=True)[:SLOWEST_COUNT]


def main(say: Callable[[str], object] = print) -> int:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True)
    limits = tomllib.loads(read_text(Path("pyproject.toml")))["tool"]["budget"]
    sizes = measure([Path(name) for name in listed.stdout.split("\0") if name and (REPO / name).is_file()])
    above = [name for name, size in sizes.items() if size > limits[name]]
    for name, size in sizes.items():
        say(f"{name:20} {size:>7,} of {limits[name]:>7,}{'  above its limit' if name in above else ''}")
    for seconds, name in slowest_tests(REPO / ".cache" / "durations"):
        say(f"{seconds:7.1f} s  {name}")
    if above:
        say("Delete something, or raise the limit in pyproject.toml and give the reason in the commit.")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
