from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from gate_job import parsed, shared_root

from argus.archive.archive import Archive
from argus.common.findings import WARNING
from argus.jobs import job_files as module
from argus.jobs.job_files import JobFiles, change_findings, collect_job_files

USER = "user/code"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return shared_root(tmp_path / "private")


def write(root: Path, **files: str) -> None:
    """Files below user/code; "__" stands for a slash, and I for __init__."""
    for name, text in files.items():
        path = root / USER / f"{re.sub('I$', '__init__', name.replace('__', '/'))}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def collected(root: Path, entry: str | None = "r.py:f", named: Mapping[str, str] | None = None) -> JobFiles:
    return collect_job_files(parsed(root, reward_fn_path=entry), named or {}, f"/code:{root}/{USER}")


def names(files: JobFiles) -> list[str]:
    assert files.record.left_out == {}
    return sorted(name.removeprefix(f"{USER}/") for name in files.texts)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import json, os.path\n", []),
        ("def f():\n    from a import x\n", ["a.py"]),
        ("import p.q\n", ["p/__init__.py", "p/q.py"]),
        ("from p import q\n", ["p/__init__.py", "p/q.py"]),
        # q imports its neighbour, which imports a.
        ("import p.more\n", ["a.py", "p/__init__.py", "p/more.py", "p/neighbour.py"]),
        # Directories without __init__.py are packages as well.
        ("import n.deep\n", ["n/deep.py"]),
        # A file of this name wins over nothing; a package over a file.
        ("import both\n", ["both/__init__.py"]),
        ("from . import a\nfrom .a import b\n", ["a.py"]),
        # Beyond user/code.
        ("from .. import a\nfrom ..... import a\nfrom ..code import a\n", []),
        ("this is no Python", []),
        ("(" * 5000, []),
    ],
)
def test_what_a_file_imports(root: Path, source: str, expected: list[str]) -> None:
    write(root, r=source, a="import r\n", p__I="", p__q="", p__neighbour="import a\n", n__deep="")
    write(root, p__more="from . import neighbour\nfrom .neighbour import x\n", both="", both__I="")
    files = collected(root)
    assert names(files) == sorted(["r.py", *expected])
    assert files.texts[f"{USER}/r.py"] == source


def test_what_settings_name_and_the_classes_in_it(root: Path) -> None:
    write(root, r="", my_tools="import helpers\n", helpers="", loop="", data__rows="")
    (root / USER / "tools.yaml").write_text("tools: [{class_name: my_tools.Calculator}, {x: no.such, y: r.f}]\n")
    (root / USER / "template.bin").write_bytes(b"\xff")
    settings = {"rollout.multi_turn.tool_config_path": "tools.yaml", "data.custom_cls.path": "data/rows.py"}
    settings |= {"data.binary_path": "template.bin", "reward.custom_reward_function.path": "r.py"}
    named = {key: f"{root}/{USER}/{name}" for key, name in settings.items()}
    named |= {"model.tokenizer_path": f"{root}/common/models/tiny", "elsewhere.path": "/etc/passwd"}
    files = collected(root, named=named)
    taken = ("data/rows.py", "helpers.py", "my_tools.py", "r.py", "tools.yaml")
    assert sorted(files.texts) == [f"{USER}/{name}" for name in taken]
    assert list(files.record.left_out) == [f"{USER}/template.bin"]
    assert list(files.record.entries) == [*list(named)[:3], "reward_fn_path"]


def test_files_that_are_left_out(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 40)
    monkeypatch.setattr(module, "MAX_TOTAL_BYTES", 100)
    (tmp_path / "out.py").write_text("secret = 1\n")
    write(root, r="import large, latin, out, link, a, b\n", large="#" * 41, a="#" * 37, b="#" * 37, real="")
    (root / USER / "latin.py").write_bytes(b"# \xe9\n")
    (root / USER / "out.py").symlink_to(tmp_path / "out.py")
    (root / USER / "link.py").symlink_to(root / USER / "real.py")
    files = collected(root)
    assert files.texts[f"{USER}/link.py"] == ""
    left_out = dict(files.record.left_out)
    # Which of the two is read first does not matter.
    assert len({f"{USER}/a.py", f"{USER}/b.py"} & set(left_out)) == 1
    assert "all files together have more than" in str(left_out)
    assert "has more than" in left_out[f"{USER}/large.py"]
    assert "is not UTF-8" in left_out[f"{USER}/latin.py"]
    assert f"{USER}/out.py" in left_out and "secret" not in str(files.texts)


@pytest.fixture
def archive(root: Path) -> Archive:
    write(root, r="import a, b\n", a="1", b="2")
    archive = Archive(root / "jobs" / "grpo-1")
    collected(root).write(archive)
    return archive


def warning(root: Path, archive: Archive) -> str:
    (finding,) = change_findings(archive, collected(root))
    assert (finding.key, finding.severity) == ("files", WARNING)
    return finding.problem


def test_other_files(root: Path, archive: Archive) -> None:
    write(root, a="changed")
    write(root, r="import a, c\n", c="")
    (root / USER / "b.py").unlink()
    problem = warning(root, archive)
    assert "(changed: user/code/a.py, user/code/r.py; gone or no longer imported: user/code/b.py; new" in problem


def test_nothing_that_a_record_names_is_opened(root: Path, archive: Archive, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    record = json.loads((archive.path / "config" / "files.json").read_text())
    record["files"] |= {f"../../{'x' * 300}": "0", str(pipe): "0"}
    (archive.path / "config" / "files.json").write_text(json.dumps(record))
    problem = warning(root, archive)
    assert "gone or no longer imported" in problem and str(pipe) in problem and "x" * 101 not in problem
