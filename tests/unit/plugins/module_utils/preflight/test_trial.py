"""Real directories: two paths of one directory are two machines that share it, two directories are two that do not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.preflight import trial as module
from ansible_collections.argus.verl.plugins.module_utils.preflight.trial import PREFIX, Trial, TrialError

TOKEN = "0123456789abcdef"
NAMES = ("a", "gpu/1")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.5)


def of(root: Path, host: str, hosts: tuple[str, ...] = NAMES) -> Trial:
    return Trial(root, TOKEN, host, hosts)


def meeting(root: Path) -> Path:
    return root / f"{PREFIX}{TOKEN}"


def test_two_machines_that_share_a_directory(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    other.symlink_to(root)
    first, second = of(root, "a"), of(other, "gpu/1")
    written = first.written()
    assert (written["uid"], written["seen_uid"], written["renamed"]) == (os.geteuid(), os.geteuid(), True)
    assert written["locks"] == ["flock", "fcntl"]
    assert "locks" not in second.written()
    holder, answer = first.compared(), second.compared()
    assert (answer["seen"]["a"]["uid"], answer["seen"]["a"]["right"]) == (os.geteuid(), True)
    assert holder["seen"]["gpu/1"]["right"]
    assert (answer["locks"], holder["locks"]) == ({"flock": "held", "fcntl": "held"}, {})
    first.removed()
    assert list(root.iterdir()) == []


def test_machines_with_directories_of_their_own_do_not_see_each_other(tmp_path: Path) -> None:
    for number, host in enumerate(NAMES):
        (tmp_path / str(number)).mkdir()
        of(tmp_path / str(number), host).written()
    answer = of(tmp_path / "1", "gpu/1").compared()
    assert answer == {"seen": {"a": {"seconds": None, "uid": None, "right": False}}, "locks": {}}
    of(tmp_path / "0", "a").removed()


def test_locks_that_nobody_holds_are_free(tmp_path: Path) -> None:
    first, second = of(tmp_path, "a"), of(tmp_path, "gpu/1")
    first.written()
    second.written()
    for kind in ("flock", "fcntl"):
        (meeting(tmp_path) / f"lock-{kind}").unlink()
    time.sleep(0.5)
    for kind in ("flock", "fcntl"):
        (meeting(tmp_path) / f"lock-{kind}").touch()
    assert second.compared()["locks"] == {"flock": "free", "fcntl": "free"}


def test_file_of_another_content_is_wrong(tmp_path: Path) -> None:
    second = of(tmp_path, "gpu/1")
    second.written()
    (meeting(tmp_path) / "a.host").write_text("other")
    seen = second.compared()["seen"]["a"]
    assert seen["seconds"] is not None
    assert not seen["right"]


def test_pipes_of_a_job_hold_up_nobody(tmp_path: Path) -> None:
    meeting(tmp_path).mkdir()
    for name in ("gpu%2F1.host", "a.host", "lock-flock"):
        os.mkfifo(meeting(tmp_path) / name)
    with pytest.raises(FileExistsError):
        of(tmp_path, "gpu/1").written()
    assert not of(tmp_path, "gpu/1").compared()["seen"]["a"]["right"]


def test_trial_is_where_the_user_of_nodes_may_write(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    one = of(tmp_path, "gpu/1")
    one.written()
    assert [entry.name for entry in (tmp_path / "user").iterdir()] == [f"{PREFIX}{TOKEN}"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["user"]
    one.removed()
    assert list((tmp_path / "user").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_root_without_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(TrialError, match="cannot write"):
        of(tmp_path, "a")


@pytest.mark.parametrize("token", ["", "..", "a/b", "0123456789abcde", "0123456789ABCDEF", "0" * 65])
def test_token_that_is_none_is_refused(token: str, tmp_path: Path) -> None:
    with pytest.raises(TrialError):
        Trial(tmp_path, token, "a", NAMES)


def test_trials_that_were_interrupted_are_removed_by_a_later_one(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in (f"{PREFIX}{'a' * 16}", f"{PREFIX}{'b' * 16}", "data"))
    for directory in (old, new, other):
        directory.mkdir()
        (directory / "file").touch()
    link = tmp_path / f"{PREFIX}{'c' * 16}"
    link.symlink_to(other)
    for directory in (old, other):
        os.utime(directory, (0, 0))
    of(tmp_path, "gpu/1").written()
    of(tmp_path, "gpu/1").removed()
    assert sorted(tmp_path.iterdir()) == sorted([new, link, other])
    assert (other / "file").exists()
