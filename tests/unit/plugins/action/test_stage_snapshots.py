"""The controller reads and sends, the program writes: real commands, with an engine that runs them on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Node
from program_machine import node_in, refuse
from staging_snapshots import IGNORED, LEFT, TAKEN, commit, files, git, manifest_at, plain_git, put
from staging_task import run

from argus.common.shared_root import SNAPSHOTS


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_git(monkeypatch)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "shared").mkdir()
    return node_in(tmp_path / "shared")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory for temporary files, in which nothing is left."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    yield tmp_path / "tmp"
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def tree(tmp_path: Path, temporary: Path) -> Path:
    """A source tree of verl, with all that a snapshot must not take."""
    return put(tmp_path / "src", {**TAKEN, **LEFT, **IGNORED})


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return put(tmp_path / "mine", {"main.py": "mine = True\n", "deep/er.py": "", "__pycache__/main.pyc": ""})


def stage(node: Node, check: bool = False, repair: bool = False, **item: Any) -> dict[str, Any]:
    return run("snapshots", node, item, check, repair=repair)[0]


def snapshots(node: Node) -> Path:
    return Path(node.shared_root) / SNAPSHOTS


def test_a_directory_with_overlays(node: Node, tree: Path, mine: Path) -> None:
    overlays = [{"path": str(mine), "to": "my_package"}, {"path": str(mine), "to": "recipe/dapo"}]
    request = {"source": str(tree), "code_id": "mine", "overlays": overlays}
    target = snapshots(node) / "mine"
    expected = {
        "changed": True,
        "kind": "snapshot",
        "name": "mine",
        "path": str(target),
        "status": "staged",
        "notes": [],
        "findings": [],
        "diff": [{"before": "", "after": f"snapshot {target}\n"}],
    }
    assert stage(node, check=True, **request) == expected
    assert not target.exists()
    result = stage(node, **request)
    assert {**result, **expected} == result and result["verl_version"] == "0.10.0.dev0"
    mine_files = ("my_package/main.py", "my_package/deep/er.py", "recipe/dapo/deep/er.py")
    assert files(target) == sorted([*TAKEN, "manifest.json", "mvp_marker.py", *mine_files])
    assert (target / "recipe" / "dapo" / "main.py").read_text() == "mine = True\n"
    assert {path.stat().st_mode & 0o777 for path in target.rglob("*")} == {0o444, 0o555}
    manifest = manifest_at(target)
    assert (manifest["source"], manifest["overlays"]) == (str(tree), overlays)
    assert manifest["requirements"] == ["ray[default]>=2.41.0", "pandas"]
    again = stage(node, **request)
    assert (again["changed"], again["status"]) == (False, "exists")
    # Other content with this name.
    refused = stage(node, source=str(tree), code_id="mine")
    assert refused["failed"] and "mine: contains" in refused["msg"]
    assert refused["findings"][0]["what"].startswith(f"{target}: ")


def test_a_submodule_that_cannot_be_fetched_is_a_warning(node: Node, tmp_path: Path) -> None:
    repository = put(tmp_path / "team", TAKEN)
    git(repository, "init", "--quiet", "--initial-branch=main")
    head = commit(repository, {})
    # Without its directory, it would not be committed.
    (repository / "verl/gone").mkdir()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},verl/gone")
    commit(repository, {})
    result = stage(node, source=f"git+file://{repository}@main", code_id="mine")
    (finding,) = result["findings"]
    assert (result["status"], finding["severity"]) == ("staged", "warning") and "verl/gone" in finding["what"]
    assert stage(node, source=f"git+file://{repository}@main", code_id="mine")["status"] == "exists"


def test_nothing_is_sent_unless_it_is_needed(node: Node, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(check: bool = False, **item: Any) -> list[str]:
        return run("snapshots", node, item, check)[1]

    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert sent(source="verl==0.9.1", check=True) == []
    assert [len(sent(source=str(tree), code_id="mine")) for _run in range(2)] == [len(TAKEN), 0]
    assert sent(code_id="mine", state="absent") == []


@pytest.mark.parametrize("is_down", [False, True])
def test_sources_on_the_shared_root_are_read_by_the_program(
    node: Node, tree: Path, tmp_path: Path, mine: Path, is_down: bool
) -> None:
    if is_down:
        refuse(node, "Error response from daemon: No such container: head")
    below = Path(node.shared_root) / "user"
    put(below / "src", TAKEN)
    put(below / "recipe", {"more.py": ""})
    # The machine has it at another path.
    (tmp_path / "machine").symlink_to(node.shared_root)
    there = replace(node, shared_root_source=str(tmp_path / "machine"))
    overlays = [{"path": f"{tmp_path}/machine/user/recipe", "to": "more"}, {"path": str(mine), "to": "mine"}]
    result = stage(there, source=f"{tmp_path}/machine/user/src", code_id="first", overlays=overlays)
    assert result["status"] == "staged", result
    assert manifest_at(result["path"])["source"] == f"{tmp_path}/machine/user/src"
    assert {"more/more.py", "mine/main.py", *TAKEN} <= set(files(Path(result["path"])))
    further = stage(there, source="first", overlays=[{"path": f"{tmp_path}/machine/user/recipe", "to": "again"}])
    assert further["status"] == "staged" and further["name"].startswith("first-")
    for source in ("first", "second"):
        assert stage(there, source=source)["failed"]
