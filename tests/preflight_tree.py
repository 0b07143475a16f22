"""Fake programs and trees of /proc and /sys for tests of preflight."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation, Topic
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import Probed, judged
from ansible_collections.argus.verl.plugins.module_utils.preflight.reading import Reader
from ansible_collections.argus.verl.plugins.module_utils.preflight.table import FAST
from samples import HEALTHY

RECORDED = Path(__file__).parent / "unit" / "fixtures" / "preflight"
OURS, THEIRS = "a" * 64, "b" * 64


class Tree:
    """A machine in a directory: real scripts as its programs, and files below its root."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = path / "root"
        self.programs = path / "bin"
        self.root.mkdir()
        self.programs.mkdir()
        # Programs of this machine, such as a real dmesg, must not answer.
        for name in ("bash", "cat", "sleep", "setsid"):
            (self.programs / name).symlink_to(Path("/usr/bin") / name)
        monkeypatch.setenv("PATH", str(self.programs))
        monkeypatch.setattr(
            "ansible_collections.argus.verl.plugins.module_utils.cluster.programs.SBIN", str(self.programs)
        )

    def program(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(f"#!{self.programs}/bash\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def prints(self, name: str, recorded: str, code: int = 0) -> None:
        self.program(name, f"cat {RECORDED / recorded}; exit {code}")

    def file(self, path: str, text: str = "") -> Path:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    def process(self, pid: int, name: str, state: str = "S", container: str = "") -> None:
        self.file(f"/proc/{pid}/stat", f"{pid} ({name}) {state} 1 1 1 0 -1")
        self.file(f"/proc/{pid}/comm", f"{name}\n")
        self.file(f"/proc/{pid}/cgroup", f"0::/system.slice/docker-{container}.scope\n" if container else "0::/init\n")

    def reader(self, **options: Any) -> Reader:
        return Reader(root=self.root, **options)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path, monkeypatch)


def context(host: str = "gpu-1", expected: Expectation | None = None, machine: Any = HEALTHY) -> Context:
    return Context(host, machine, expected or Expectation())


def differences(
    topic: Topic[Any], facts: Mapping[str, Any], contexts: Mapping[str, Context] | None = None
) -> list[Finding]:
    """The findings of a topic that follow from the comparison of machines, of which these are the facts."""
    probed = {}
    for host, each in facts.items():
        known = contexts[host] if contexts else context(host)
        rows = [list(row) for row in topic.compared(each, known)]
        probed[host] = Probed(known, [], {topic.name: {"columns": {}, "compared": rows}})
    found = judged(list(probed), probed, FAST).findings
    return [finding for finding in found if finding.key.startswith(f"{topic.name}.")]
