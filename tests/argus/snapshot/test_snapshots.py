"""Snapshots with overlays, and files that they share."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from staging_snapshots import TAKEN, edit, files, manifest_at, put
from staging_tools import overlay, problems, release, snapshot, source_of

from argus.snapshot.errors import SourceError
from argus.staging.result import Status

pytestmark = pytest.mark.usefixtures("identity")


def test_a_snapshot_is_read_only(shared_root: Path, tree: Path) -> None:
    target = Path(snapshot(shared_root, source_of(str(tree), shared_root)).path)
    found = [target, *target.rglob("*")]
    assert {oct(path.stat().st_mode & 0o777) for path in found if path.is_file()} == {"0o444"}
    assert {oct(path.stat().st_mode & 0o777) for path in found if path.is_dir()} == {"0o555"}


def test_a_snapshot_is_what_a_job_imports(shared_root: Path, index: Path) -> None:
    path = snapshot(shared_root, release("0.9.0"), "mine").path
    code = "import verl, mvp_marker; print(verl.__file__, verl.__version__, mvp_marker.MARKER)"
    done = subprocess.run(
        [sys.executable, "-v", "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{path}/verl/__init__.py 0.9.0 mine\n"
    assert f"code object from '{cache_from_source(f'{path}/verl/__init__.py')}'" in done.stderr


def test_a_snapshot_is_read_by_all_whatever_the_umask(shared_root: Path, tree: Path) -> None:
    before = os.umask(0o077)
    try:
        target = Path(snapshot(shared_root, source_of(str(tree), shared_root)).path)
    finally:
        os.umask(before)
    assert {oct(path.stat().st_mode & 0o777) for path in (target / "verl").rglob("*") if path.is_file()} == {"0o444"}


@pytest.mark.parametrize("check", [False, True])
def test_one_code_id_never_stands_for_two_contents(
    shared_root: Path, snapshots: Path, tree: Path, index: Path, check: bool
) -> None:
    snapshot(shared_root, source_of(str(tree), snapshots), "mine")
    both = rf"mine: contains {tree} \(verl 0.10.0.dev0\), .*{{}}.*choose another name"
    with pytest.raises(SourceError, match=both.format("verl==0.9.1")):
        snapshot(shared_root, release("0.9.1"), "mine", check=check)
    (tree / "verl" / "new.py").write_text("")
    with pytest.raises(SourceError, match=both.format(str(tree))):
        snapshot(shared_root, source_of(str(tree), snapshots), "mine", check=check)


def test_a_local_version_makes_a_code_id_fit_for_a_path(tree: Path, snapshots: Path) -> None:
    (tree / "verl" / "version" / "version").write_text("0.10.0+mine\n")
    assert source_of(str(tree), snapshots).code_id.startswith("verl-0.10.0-mine-")


@pytest.mark.parametrize("code_id", ["../escape", "a/b", ".hidden"])
def test_a_bad_code_id_is_refused(shared_root: Path, code_id: str) -> None:
    with pytest.raises(SourceError, match="code_id: the name"):
        snapshot(shared_root, release("0.9.1"), code_id)


def test_an_overlay_is_put_beside_or_over_what_is_there(
    shared_root: Path, snapshots: Path, tree: Path, mine: Path
) -> None:
    base = source_of(str(tree), snapshots)
    overlays = [overlay(mine, "my_package"), overlay(mine, "./recipe/dapo/")]
    staged = snapshot(shared_root, base, "", overlays)
    target = Path(staged.path)
    assert files(target) == sorted(
        [
            *TAKEN,
            "manifest.json",
            "mvp_marker.py",
            *("my_package/main.py", "my_package/deep/er.py", "recipe/dapo/deep/er.py"),
        ]
    )
    assert (target / "recipe" / "dapo" / "main.py").read_text() == "mine = True\n"
    assert (tree / "recipe" / "dapo" / "main.py").read_text() == "dapo = True\n"
    manifest = manifest_at(target)
    assert manifest["overlays"] == [
        {"path": str(mine), "to": "my_package"},
        {"path": str(mine), "to": "recipe/dapo"},
    ]
    assert problems(target, full=True) == {}
    assert staged.name.startswith(f"{base.code_id}-")
    assert snapshot(shared_root, base, "", overlays).status == Status.EXISTS


def test_a_changed_overlay_is_another_snapshot(shared_root: Path, snapshots: Path, tree: Path, mine: Path) -> None:
    base = source_of(str(tree), snapshots)

    def again(to: str = "my_package", code_id: str = "") -> str:
        return snapshot(shared_root, base, code_id, [overlay(mine, to)]).name

    names = [snapshot(shared_root, base).name, again(), again("elsewhere")]
    again(code_id="mine")
    (mine / "main.py").write_text("changed = True\n")
    names.append(again())
    assert len(set(names)) == 4
    with pytest.raises(SourceError, match=r"mine: contains .*which differs from the present content of"):
        again(code_id="mine")


def test_an_overlay_that_changes_meanwhile_is_refused(
    shared_root: Path, snapshots: Path, tree: Path, mine: Path
) -> None:
    added = overlay(mine, "my_package")
    (mine / "main.py").write_text("changed = True\n")
    with pytest.raises(SourceError, match=f"{mine}: changed while it was copied"):
        snapshot(shared_root, source_of(str(tree), snapshots), "", [added])
    assert not list(snapshots.iterdir())


@pytest.mark.parametrize(
    "to",
    [
        *("", ".", "/", "/verl", "..", "../mine", "verl/../../mine"),
        *("manifest.json", "./manifest.json", "mvp_marker.py/", "manifest.json/mine", "uncommitted.patch"),
    ],
)
def test_an_overlay_stays_below_the_snapshot_and_beside_what_is_its_own(mine: Path, to: str) -> None:
    with pytest.raises(SourceError, match=r'overlay ".*/mine": cannot be put at ".*"\. Give a relative path'):
        overlay(mine, to)


def test_an_overlay_is_a_directory_with_files(mine: Path) -> None:
    for path in (mine / "nowhere", mine / "main.py"):
        with pytest.raises(SourceError, match=r"is not a directory\. Correct its path"):
            overlay(path, "my_package")
    (mine / "link").symlink_to(mine / "deep")
    with pytest.raises(SourceError, match="link: is a link to a directory"):
        overlay(mine, "my_package")


def test_a_snapshot_with_an_overlay_is_a_further_snapshot(
    shared_root: Path, snapshots: Path, repository: Path, mine: Path
) -> None:
    # Differences from its commit are recorded for the second snapshot as well.
    put(repository, {"verl/__init__.py": "not_committed = True\n"})
    base = snapshot(shared_root, source_of(str(repository), snapshots), "Base")
    source = source_of("Base", snapshots)
    further = snapshot(shared_root, source, "", [overlay(mine, "recipe/mine")])
    assert further.name.startswith("Base-")
    assert files(Path(further.path)) == sorted(
        [*TAKEN, "manifest.json", "mvp_marker.py", "uncommitted.patch", "recipe/mine/deep/er.py", "recipe/mine/main.py"]
    )
    assert Path(further.path, "mvp_marker.py").read_text() == f'MARKER = "{further.name}"\n'
    assert Path(further.path, "verl", "__init__.py").read_text() == "not_committed = True\n"
    manifest, before = manifest_at(further.path), manifest_at(base.path)
    assert manifest["source"] == "Base"
    assert manifest["content_sha256"] != before["content_sha256"]
    for name in ("commit", "uncommitted", "untracked", "requirements", "verl_version"):
        assert manifest[name] == before[name]
    # And so on.
    last = snapshot(shared_root, source_of(further.name, snapshots), "last", [overlay(mine, "recipe/more")])
    assert {"recipe/mine/main.py", "recipe/more/main.py"} <= set(files(Path(last.path)))


def test_a_snapshot_that_was_changed_by_hand_is_no_source(
    shared_root: Path, snapshots: Path, tree: Path, mine: Path
) -> None:
    base = snapshot(shared_root, source_of(str(tree), snapshots), "base")
    edit(Path(base.path, "examples", "run.sh"), "ran\n")
    with pytest.raises(SourceError, match=r"base: no longer fits its manifest"):
        snapshot(shared_root, source_of("base", snapshots), "other", [overlay(mine, "my_package")])
    assert [path.name for path in snapshots.iterdir()] == ["base"]


def test_an_overlay_does_not_reach_through_to_a_neighbour(
    shared_root: Path, snapshots: Path, tree: Path, tmp_path: Path
) -> None:
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    mine = put(tmp_path / "mine", {"run.sh": "mine\n"})
    second = snapshot(shared_root, source_of("first", snapshots), "second", [overlay(mine, "examples")])
    assert Path(second.path, "examples", "run.sh").read_text() == "mine\n"
    assert Path(first.path, "examples", "run.sh").read_text() == "run\n"
    for staged in (first, second):
        assert problems(Path(staged.path), full=True) == {}
