"""Real files; as root, in a shared root that another user can write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.preflight import saving
from ansible_collections.argus.verl.plugins.module_utils.preflight.saving import save

FILES = {"mvp.html": "<p>ä</p>", "mvp.json": "{}"}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
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


def test_a_directory_that_others_can_write_to_is_refused(shared_root: Path) -> None:
    for mode in (0o775, 0o757):
        (shared_root / "preflight").mkdir(exist_ok=True)
        (shared_root / "preflight").chmod(mode)
        assert f"mode {mode:o}" in save(shared_root, FILES)["msg"]
    assert list((shared_root / "preflight").iterdir()) == []


@as_root
def test_a_directory_of_another_user_is_refused(shared_root: Path) -> None:
    (shared_root / "preflight").mkdir()
    os.chown(shared_root / "preflight", NOBODY, NOBODY)
    result = save(shared_root, FILES)
    assert result["failed"]
    assert f"belongs to user {NOBODY}" in result["msg"]
    assert list((shared_root / "preflight").iterdir()) == []


@as_root
def test_the_report_belongs_to_root_in_a_shared_root_of_jobs(shared_root: Path) -> None:
    os.chown(shared_root, NOBODY, NOBODY)
    save(shared_root, FILES)
    assert (shared_root / "preflight").stat().st_uid == (shared_root / "preflight/mvp.html").stat().st_uid == 0


@as_root
def test_where_root_has_no_rights_the_nodes_user_writes(shared_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with root_squash, which we can only imitate here."""
    os.chown(shared_root, NOBODY, NOBODY)
    mkdir = os.mkdir

    def squashed(path: str, mode: int, *, dir_fd: int) -> None:
        if os.geteuid() == 0:
            raise PermissionError(13, "Permission denied")
        mkdir(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(saving.os, "mkdir", squashed)
    assert save(shared_root, FILES) == {"changed": True, "path": str(shared_root / "preflight")}
    assert (shared_root / "preflight/mvp.html").stat().st_uid == NOBODY


def test_a_shared_root_that_does_not_exist(tmp_path: Path) -> None:
    assert save(tmp_path / "none", FILES) == {"failed": True, "msg": f"{tmp_path}/none: No such file or directory"}
