"""Real files, as root; a shared root that another user can write to gets none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.preflight.saving import save

FILES = {"mvp.html": "<p>ä</p>", "mvp.json": "{}"}
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root writes it")
NOBODY = 65534


@pytest.fixture
def shared_root(tmp_path: Path) -> Path:
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_mode & 0o005 != 0o005:
            directory.chmod(directory.stat().st_mode | 0o055)
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def test_files_are_written_and_replaced(shared_root: Path) -> None:
    for content in (FILES, {**FILES, "mvp.json": "[]"}):
        assert save(shared_root, content) == {"changed": True, "path": str(shared_root / "preflight")}
        assert {each.name: each.read_text() for each in (shared_root / "preflight").iterdir()} == content
    assert (shared_root / "preflight").stat().st_mode & 0o777 == 0o755
    assert (shared_root / "preflight" / "mvp.html").stat().st_mode & 0o777 == 0o644


def test_the_rest_of_a_run_that_was_killed_is_removed(shared_root: Path) -> None:
    save(shared_root, FILES)
    (shared_root / "preflight" / ".mvp.html.new").write_text("half")
    save(shared_root, FILES)
    assert sorted(each.name for each in (shared_root / "preflight").iterdir()) == ["mvp.html", "mvp.json"]


def test_a_link_instead_of_the_directory_is_not_followed(shared_root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (shared_root / "preflight").symlink_to(tmp_path / "elsewhere")
    result = save(shared_root, FILES)
    assert result["failed"]
    assert "is a link or a file: remove it" in result["msg"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_links_in_the_directory_are_replaced(shared_root: Path, tmp_path: Path) -> None:
    save(shared_root, FILES)
    (tmp_path / "secret").write_text("secret")
    for name in ("mvp.html", ".mvp.json.new"):
        (shared_root / "preflight" / name).unlink(missing_ok=True)
        (shared_root / "preflight" / name).symlink_to(tmp_path / "secret")
    assert not save(shared_root, FILES).get("failed")
    assert (tmp_path / "secret").read_text() == "secret"
    assert (shared_root / "preflight" / "mvp.html").read_text() == FILES["mvp.html"]
    assert not (shared_root / "preflight" / "mvp.html").is_symlink()


@pytest.mark.parametrize(("owner", "mode"), [(0, 0o775), (0, 0o757), (NOBODY, 0o755)])
def test_a_directory_that_others_can_write_to_is_refused(shared_root: Path, owner: int, mode: int) -> None:
    (shared_root / "preflight").mkdir()
    os.chown(shared_root / "preflight", owner, owner)
    (shared_root / "preflight").chmod(mode)
    assert save(shared_root, FILES)["msg"] == f"{shared_root}/preflight can be written by others than root: remove it"
    assert list((shared_root / "preflight").iterdir()) == []


@pytest.mark.parametrize(("owner", "mode"), [(NOBODY, 0o755), (0, 0o775), (0, 0o1777)])
def test_nothing_is_written_where_jobs_could_replace_it(shared_root: Path, owner: int, mode: int) -> None:
    """Whoever can rename the directory can put another page in its place."""
    os.chown(shared_root, owner, NOBODY)
    shared_root.chmod(mode)
    assert save(shared_root, FILES) == {"changed": False, "path": ""}
    assert list(shared_root.iterdir()) == []


def test_a_shared_root_that_does_not_exist(tmp_path: Path) -> None:
    assert save(tmp_path / "none", FILES) == {"failed": True, "msg": f"{tmp_path}/none: No such file or directory"}
