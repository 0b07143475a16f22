"""Real directories: two paths of one directory are two machines that share it, two directories are two that do not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.preflight import trial as module
from ansible_collections.argus.verl.plugins.module_utils.preflight.trial import DIRECTORY_PREFIX, Trial, TrialError

TOKEN = "0123456789abcdef"
NAMES = ("a", "gpu/1")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.5)


def of(root: Path, host: str) -> Trial:
    return Trial(root, TOKEN, host, NAMES)


def meeting(root: Path) -> Path:
    return root / f"{DIRECTORY_PREFIX}{TOKEN}"


def test_two_machines_that_share_a_directory(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    (root / "user").mkdir(parents=True)
    other.symlink_to(root)
    first, second = of(root, "a"), of(other, "gpu/1")
    written = first.written()
    # It is where the user of nodes may write.
    assert [entry.name for entry in root.iterdir()] == ["user"]
    assert (written["uid"], written["seen_uid"], written["renamed"]) == (os.geteuid(), os.geteuid(), True)
    assert written["locks"] == ["flock", "fcntl"]
    assert "locks" not in second.written()
    holder, answer = first.compared(), second.compared()
    assert (answer["seen"]["a"]["uid"], answer["seen"]["a"]["right"]) == (os.geteuid(), True)
    assert holder["seen"]["gpu/1"]["right"]
    assert (answer["locks"], holder["locks"]) == ({"flock": "held", "fcntl": "held"}, {})
    for kind in ("flock", "fcntl"):
        (meeting(root / "user") / f"lock-{kind}").unlink()
        (meeting(root / "user") / f"lock-{kind}").touch()
    # Nobody holds these.
    assert second.compared()["locks"] == {"flock": "free", "fcntl": "free"}
    first.removed()
    assert list((root / "user").iterdir()) == []
    for token in ("", "..", "a/b", "0123456789abcde", "0123456789ABCDEF", "0" * 65):
        with pytest.raises(TrialError):
            Trial(root, token, "a", NAMES)


def test_machines_with_directories_of_their_own_do_not_see_each_other(tmp_path: Path) -> None:
    for number, host in enumerate(NAMES):
        (tmp_path / str(number)).mkdir()
        of(tmp_path / str(number), host).written()
    second = of(tmp_path / "1", "gpu/1")
    assert second.compared() == {"seen": {"a": {"seconds": None, "uid": None, "right": False}}, "locks": {}}
    (meeting(tmp_path / "1") / "a.host").write_text("other")
    seen = second.compared()["seen"]["a"]
    assert seen["seconds"] is not None and not seen["right"]
    of(tmp_path / "0", "a").removed()


def test_pipes_of_a_job_hold_up_nobody(tmp_path: Path) -> None:
    meeting(tmp_path).mkdir()
    for name in ("gpu%2F1.host", "a.host", "lock-flock"):
        os.mkfifo(meeting(tmp_path) / name)
    with pytest.raises(FileExistsError):
        of(tmp_path, "gpu/1").written()
    assert not of(tmp_path, "gpu/1").compared()["seen"]["a"]["right"]


def test_trials_that_were_interrupted_are_removed_by_a_later_one(tmp_path: Path) -> None:
    old, new, other = (
        tmp_path / name for name in (f"{DIRECTORY_PREFIX}{'a' * 16}", f"{DIRECTORY_PREFIX}{'b' * 16}", "data")
    )
    for directory in (old, new, other):
        directory.mkdir()
        (directory / "file").touch()
    link = tmp_path / f"{DIRECTORY_PREFIX}{'c' * 16}"
    link.symlink_to(other)
    for directory in (old, other):
        os.utime(directory, (0, 0))
    of(tmp_path, "gpu/1").written()
    of(tmp_path, "gpu/1").removed()
    assert sorted(tmp_path.iterdir()) == sorted([new, link, other])
    assert (other / "file").exists()
