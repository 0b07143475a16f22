from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hub import Hub, model
from staging_snapshots import attached
from staging_store import manifest_json, until

from argus import cli
from argus.archive.archive import Archive
from argus.common.identity import NODE
from argus.staging.items import Model
from argus.verbs import stage
from argus.verbs.stage import with_whole_id

NAME = "org/name"


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This process is in a node, with a directory for temporary files."""
    (tmp_path / "tmp").mkdir()
    for name, value in {
        NODE: "head",
        "TMPDIR": str(tmp_path / "tmp"),
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


# Keys of the request, and not of its item.
OF_REQUEST = ("kind", "endpoint", "token", "repair", "verify", "upload", "diff")


def request_of(item: dict[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in item.items() if name not in OF_REQUEST}
    return {"item": values, **{name: item[name] for name in OF_REQUEST if name in item}}


PROGRAM = """
from argus.verbs import stage
stage.MOMENT_SECONDS = {seconds}
from argus.__main__ import start
start()
"""


class Program:
    """The program in this process, or with `detached` in one of its own, as a machine starts it."""

    def __init__(self, root: Path, ask: Callable[..., Any]) -> None:
        self.root, self.ask = root, ask

    def __call__(
        self, item: dict[str, Any], files: Mapping[str, bytes] | None = None, **options: Any
    ) -> dict[str, Any]:
        """files: what follows the request."""
        attachment, tar = attached(files) if files else (None, b"")
        request = {**request_of(item), "shared_root": str(self.root), "attachment": attachment, **options}
        return self.answer(*self.ask("stage", follows=tar, **request))

    def detached(self, item: dict[str, Any], seconds: float = 1.0, **options: Any) -> dict[str, Any]:
        """seconds: how long the program waits for the end of the work."""
        request = {**request_of(item), "shared_root": str(self.root), "detach": True, **options}
        command = [sys.executable, "-c", PROGRAM.format(seconds=seconds), "stage", "--json"]
        done = subprocess.run(command, input=json.dumps(request), text=True, capture_output=True, check=False)
        return self.answer(done.returncode, json.loads(done.stdout))

    def answer(self, code: int, answer: dict[str, Any]) -> dict[str, Any]:
        assert (code != 0) == bool(answer["findings"])
        return {**answer["result"], "changed": answer["changed"], "findings": answer["findings"]}


@pytest.fixture
def program(root: Path, ask: Callable[..., Any]) -> Program:
    return Program(root, ask)


def test_a_model_is_staged_verified_repaired_and_removed(hub: Hub, root: Path, program: Program) -> None:
    commit = hub.add(NAME, model())
    item = {"kind": "model", "name": "Name", "source": NAME, "endpoint": hub.url}
    path = f"{root}/common/models/Name"
    facts = {"commit": commit, "bytes": sum(map(len, model().values())), "source": NAME}
    absent = {"name": "Name", "path": path, "notes": [], "findings": []}
    present, it = {**absent, **facts}, f"model {path}\n"

    def result(status: str, before: str, after: str) -> dict[str, Any]:
        changed = status not in ("exists", "absent")
        return {"status": status, "changed": changed, "diff": [{"before": before, "after": after}]}

    assert program(item, check=True) == {**absent, **result("staged", "", it)}
    assert program(item) == {**present, **result("staged", "", it)}
    assert program(item) == {**present, **result("exists", it, it)}
    Path(path, "config.json").unlink()
    repaired = {**present, **result("repaired", it, it), "notes": ["config.json is missing"]}
    assert program({**item, "repair": True}) == repaired
    gone = {**item, "state": "absent"}
    assert program(gone, check=True) == {**present, **result("removed", it, "")}
    assert program(gone) == {**absent, **result("removed", it, "")}
    assert program(gone) == {**absent, **result("absent", "", "")}
    assert not list(root.glob("hf/hub/models--*"))


def test_an_error_is_a_finding_without_the_token(
    hub: Hub, root: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, model(), private=True)
    hub.echo = "you gave hf_wrong"
    item = {"kind": "model", "name": "Name", "source": NAME, "endpoint": hub.url, "token": "hf_wrong"}
    (finding,) = program(item)["findings"]
    assert finding["where"] == f"{NAME} on {hub.url}" and "hf_wrong" not in json.dumps(finding)
    monkeypatch.setitem(sys.modules, "torch", None)
    (finding,) = program({"kind": "model", "name": "tiny", "source": "tiny"})["findings"]
    assert finding["where"] == "torch"
    assert list((root / "common/models").iterdir()) == []


@pytest.mark.parametrize(
    ("item", "places"),
    [
        ({"kind": "model", "name": "x"}, ["source"]),
        ({"kind": "model", "state": "absent"}, ["name"]),
        ({"kind": "model", "source": "tiny"}, ["name"]),
        ({"kind": "model", "reversion": "main", "exclude": 7}, ["exclude", "reversion"]),
        ({"kind": "dataset", "columns": {"promt": "a"}, "tiny": True}, ["columns.promt", "name"]),
        ({"kind": "dataset", "name": "x", "files": {"test": ["/a"]}}, ["files.test", "files.train"]),
        ({"kind": "snapshot", "overlays": [{"path": "/a", "too": "b"}]}, ["overlays.0.to", "overlays.0.too"]),
        ({"kind": "snapshot"}, ["source"]),
    ],
)
def test_all_wrong_options_are_findings(program: Program, item: dict[str, Any], places: list[str]) -> None:
    for check in (True, False):
        assert sorted(finding["where"] for finding in program(item, check=check)["findings"]) == places


def test_a_missing_shared_root_and_a_process_of_no_node_are_refused(
    root: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program({})["findings"] == []
    assert program({"kind": "dataset", "name": "x", "tiny": True}, shared_root=f"{root}/x")["findings"]
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT", "/srv/mvp")
    assert program({}, shared_root_source="/srv/other")["findings"]
    monkeypatch.delenv(NODE)
    assert program({})["findings"] and program({"kind": "dataset", "name": "x", "tiny": True})["findings"]
    assert list(root.iterdir()) == []


def test_work_of_a_moment_is_one_call(program: Program, tmp_path: Path) -> None:
    item = {"kind": "dataset", "name": "sums", "tiny": True}
    staged = program.detached(item, seconds=60)
    assert (staged["status"], staged["changed"], staged["rows"]) == ("staged", True, {"train": 128, "val": 16})
    assert program(item)["status"] == "exists"
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def slow(hub: Hub, program: Program, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A model whose download takes a minute, and what a caller gets that does not wait for it."""
    monkeypatch.setattr(stage, "MOMENT_SECONDS", 1.0)
    hub.add(NAME, model())
    hub.rate = sum(map(len, model().values())) / 60
    hub.token = "hf_secret"
    item = {"kind": "model", "name": "Name", "source": NAME, "endpoint": hub.url, "token": hub.token}
    begun = program.detached(item)
    assert (begun["status"], begun["changed"]) == ("deferred", False)
    assert begun["path"] == f"{program.root}/common/models/Name"
    assert process_of(begun)
    return begun


def poll(program: Program, begun: dict[str, Any]) -> dict[str, Any]:
    return program({}, reference=begun["reference"], path=begun["path"])


def process_of(begun: dict[str, Any]) -> int:
    lock = Path(begun["path"]).with_name(f".{Path(begun['path']).name}.lock")
    # Its writer replaces the text in place.
    until(lambda: lock.exists() and lock.read_text().rstrip().endswith("}"))
    return int(json.loads(lock.read_text())["pid"])


def test_longer_work_goes_on_and_is_answered_once(
    hub: Hub, program: Program, slow: dict[str, Any], tmp_path: Path
) -> None:
    pid = process_of(slow)
    # It survives what ends the session of its caller, and nothing of it waits for the caller's terminal or pipes.
    assert os.getsid(pid) == pid != os.getsid(0)
    read, written, errors = (str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in range(3))
    assert read == errors == "/dev/null" and written.startswith(slow["reference"])
    assert Path(slow["reference"]).stat().st_mode & 0o777 == 0o700
    assert "hf_secret" not in Path(f"/proc/{pid}/cmdline").read_text() + Path(f"/proc/{pid}/environ").read_text()
    answers = [slow]
    hub.rate = None
    while "reference" in answers[-1]:
        assert answers[-1]["progress"] is None or answers[-1]["progress"]["pid"] == pid
        answers.append(poll(program, slow))
    assert (answers[-1]["status"], answers[-1]["changed"]) == ("staged", True)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert "hf_secret" not in json.dumps([answers, manifest_json(Path(slow["path"]))])
    # It has been answered, or the node was created anew meanwhile.
    assert "without a result" in poll(program, slow)["findings"][0]["problem"]


def test_a_killed_process_and_its_waiting_successor(program: Program, slow: dict[str, Any], tmp_path: Path) -> None:
    for name, content in model().items():
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).write_bytes(content)
    waits = program.detached({"kind": "model", "name": "Name", "source": str(tmp_path / "model")})
    assert waits["status"] == "deferred" and waits["progress"]["pid"] == process_of(slow)
    os.kill(process_of(slow), signal.SIGKILL)
    assert "without a result" in poll(program, slow)["findings"][0]["problem"]
    assert poll(program, waits)["status"] == "staged"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_only_an_answer_is_read_and_removed(program: Program, tmp_path: Path) -> None:
    (tmp_path / "tmp" / "other").mkdir()
    for reference in ("/etc", "relative", "{tmp}/tmp/other", "{tmp}/tmp/argus-verb-x/.."):
        assert program({}, reference=reference.format(tmp=tmp_path))["findings"]
    assert (tmp_path / "tmp" / "other").exists()


def described(path: str, content: bytes) -> dict[str, Any]:
    return {"path": path, "size": len(content), "mtime_ns": 7, "sha256": hashlib.sha256(content).hexdigest()}


def rows(count: int) -> bytes:
    return "".join(json.dumps({"q": f"{number} + 1?", "a": number + 1}) + "\n" for number in range(count)).encode()


def of_dataset(*contents: bytes) -> dict[str, bytes]:
    return {f"{number}/sums.jsonl": content for number, content in enumerate(contents)}


def uploaded(*contents: bytes, **options: Any) -> dict[str, Any]:
    files = [described(f"/home/ann/{number}/sums.jsonl", content) for number, content in enumerate(contents)]
    columns = {"prompt": "q", "ground_truth": "a"}
    upload = {"controller": "ann", "files": {"train": files}}
    dataset = {"kind": "dataset", "name": "sums", "columns": columns, "data_source": "openai/gsm8k", "val_rows": 1}
    return {**dataset, "files": {"train": ["sums.jsonl"]}, "upload": upload, **options}


def test_files_follow_the_request_only_if_they_are_needed(root: Path, program: Program) -> None:
    item = uploaded(rows(5), rows(3))
    assert program(item)["files_needed"] and list((root / "datasets").iterdir()) == []
    assert program(item, check=True)["status"] == "staged"
    # A failure names files as the controller does.
    (finding,) = program(uploaded(rows(2), b"{\n"), of_dataset(rows(2), b"{\n"))["findings"]
    assert "/home/ann/1/sums.jsonl" in json.dumps(finding) and ".sums.upload" not in json.dumps(finding)
    assert list((root / "datasets").iterdir()) == []
    staged = program(item, of_dataset(rows(5), rows(3)))
    assert (staged["status"], staged["rows"]) == ("staged", {"train": 7, "val": 1})
    assert [path.name for path in (root / "datasets").iterdir()] == ["sums"]
    assert program(item)["status"] == "exists"
    item["upload"]["files"]["train"][0] |= {"mtime_ns": 8, "sha256": ""}
    assert program(item)["files_needed"]
    (root / "datasets/sums/val.parquet").unlink()
    item = uploaded(rows(5), rows(3), repair=True)
    assert program(item)["files_needed"]
    # What a killed process has left goes as well.
    (root / "datasets/.sums.upload/abc").mkdir(parents=True)
    assert program(item, of_dataset(rows(5), rows(3)))["status"] == "repaired"
    assert [path.name for path in (root / "datasets").iterdir()] == ["sums"]


def test_code_of_users_is_replaced_as_a_whole(root: Path, program: Program) -> None:
    code = root / "user/code"

    def item(*contents: bytes, **options: Any) -> dict[str, Any]:
        files = [described(f"pack/{number}.py", content) for number, content in enumerate(contents)]
        return {"kind": "user_code", "name": "pack", "files": files, **options}

    planned = program(item(b"a", b"b"), check=True)
    assert (planned["changed"], planned["status"], list(root.iterdir())) == (True, "staged", [])
    assert program(item(b"a", b"b"))["files_needed"]
    assert program(item(b"a", b"b"), {"pack/0.py": b"a", "pack/1.py": b"b"}) | {"before": {}} == planned
    assert [path.read_text() for path in sorted(code.rglob("*.py"))] == ["a", "b"]
    assert {path.stat().st_mode & 0o777 for path in code.rglob("*.py")} == {0o644}
    assert (program(item(b"a", b"b"))["status"], program(item(b"a", b"b"))["changed"]) == ("exists", False)
    # A process that reads a file goes on to read the old one.
    with (code / "pack/0.py").open() as reading:
        changed = program(item(b"A", b"b", diff=True), {"pack/0.py": b"A", "pack/1.py": b"b"})
        assert (changed["status"], changed["before"], reading.read()) == ("staged", {"pack/0.py": "a"}, "a")
    (code / "pack/1.py").chmod(0o600)
    assert program(item(b"A", b"b"), {"pack/0.py": b"A", "pack/1.py": b"b"})["changed"]
    assert not program(item(b"A", b"b"))["changed"]
    assert [path.name for path in (root / "user").iterdir()] == ["code"]


def test_code_of_users_stays_below_its_directory(root: Path, program: Program) -> None:
    for path in ("../a.py", "/etc/a.py", "a/../../b.py", "a\x1b.py", ""):
        item = {"kind": "user_code", "name": "a.py", "files": [described(path, b"a")]}
        assert program(item, {path: b"a"})["findings"] and program(item)["findings"]
    assert not [file for file in root.rglob("*") if file.is_file()]


def test_what_people_see_of_an_export(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stage, "plan_item", lambda _root, item, _how: (Path(), item))
    monkeypatch.setattr(stage, "run_item", lambda item: {"name": item.source, "status": "staged", "path": f"{root}/m"})
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT", "/srv/mvp")
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT_MOUNT", str(root))
    assert cli.main(["export", "sft-1", "--step", "4"]) == 0
    assert capfd.readouterr().out.splitlines() == ["Model job:sft-1@4: staged, /srv/mvp/m"]
    assert cli.main(["export"]) != 0
    Archive(root / "jobs/sft-20260101-1a2b").reserve()
    for source, whole in (("job:1a2b@4", "job:sft-20260101-1a2b@4"), ("job:3c4d", "job:3c4d")):
        assert with_whole_id(root, Model(name="m", source=source)).source == whole
