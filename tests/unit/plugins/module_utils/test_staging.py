from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils import staging
from ansible_collections.argus.verl.plugins.module_utils.staging import (
    EXISTS,
    LEFTOVER_SECONDS,
    MANIFEST,
    NAME_WITH_CAPITALS,
    STAGED,
    Staged,
    StagingError,
    check_name,
    check_shared_root,
    difference,
    manifest_of,
    stage_directory,
)

# A process that writes half a dataset, says so, and waits for its end.
HALF_A_BUILD = """
import sys, time
from pathlib import Path
from ansible_collections.argus.verl.plugins.module_utils.staging import stage_directory

def build(directory):
    (directory / "train.parquet").write_text("half")
    print("building", flush=True)
    time.sleep(60)
    return {}

stage_directory(Path(sys.argv[1]), build)
"""


def build(directory: Path) -> Mapping[str, str]:
    (directory / "train.parquet").write_text("rows")
    (directory / "more").mkdir()
    (directory / "more" / "val.parquet").write_text("")
    return {"kind": "rl_dataset"}


def no_build(directory: Path) -> Mapping[str, str]:
    raise AssertionError("built again")


def make_old(path: Path) -> None:
    long_ago = time.time() - LEFTOVER_SECONDS - 60
    for each in (*path.rglob("*"), path):
        os.utime(each, (long_ago, long_ago))


def test_a_directory_is_staged_once_with_a_manifest_of_its_files(tmp_path: Path) -> None:
    target = tmp_path / "datasets" / "tiny"
    assert stage_directory(target, build) == STAGED
    assert manifest_of(target) == {
        "kind": "rl_dataset",
        "files": {
            "more/val.parquet": {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()},
            "train.parquet": {"size": 4, "sha256": hashlib.sha256(b"rows").hexdigest()},
        },
    }
    assert stage_directory(target, no_build) == EXISTS
    assert [path.name for path in target.parent.iterdir()] == ["tiny"]


def test_a_read_only_directory_has_no_write_permission_anywhere(tmp_path: Path) -> None:
    stage_directory(tmp_path / "snapshot", build, read_only=True)
    modes = {
        path.relative_to(tmp_path).as_posix(): oct(path.stat().st_mode & 0o777) for path in tmp_path.glob("snapshot/**")
    }
    assert modes == {"snapshot": "0o555", "snapshot/more": "0o555"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.*")} == {0o444}


@pytest.mark.parametrize("error", [ValueError("bad row"), KeyboardInterrupt()])
def test_a_build_that_fails_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def fail(directory: Path) -> Mapping[str, str]:
        build(directory)
        raise error

    with pytest.raises(type(error)):
        stage_directory(tmp_path / "tiny", fail, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_build_that_is_killed_leaves_no_target_and_can_be_repeated(tmp_path: Path) -> None:
    target = tmp_path / "tiny"
    with subprocess.Popen(
        [sys.executable, "-c", HALF_A_BUILD, str(target)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"building\n"
        process.send_signal(signal.SIGKILL)
    leftover = next(tmp_path.iterdir())
    assert staging.LEFTOVER.fullmatch(leftover.name)
    assert manifest_of(target) is None

    # A fresh one may still be at work, an old one is not.
    assert stage_directory(target, build) == STAGED
    assert leftover.exists()
    make_old(leftover)
    assert stage_directory(target, no_build) == EXISTS
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_leftover_is_as_young_as_its_youngest_file(tmp_path: Path) -> None:
    leftover = tmp_path / ".big.staging-0123abcd"
    (leftover / "deep").mkdir(parents=True)
    make_old(leftover)
    (leftover / "deep" / "weights").write_text("still written")
    os.utime(leftover / "deep", (0, 0))
    stage_directory(tmp_path / "tiny", build)
    assert leftover.exists()


def test_other_hidden_directories_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / ".snapshot"
    other.mkdir()
    make_old(other)
    stage_directory(tmp_path / "tiny", build)
    assert other.exists()


def test_who_loses_the_race_finds_what_the_other_made(tmp_path: Path) -> None:
    target = tmp_path / "tiny"

    def slow(directory: Path) -> Mapping[str, str]:
        stage_directory(target, lambda other: {"by": "the fast one"})
        return build(directory)

    assert stage_directory(target, slow) == EXISTS
    assert manifest_of(target) == {"by": "the fast one", "files": {}}
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


@pytest.mark.parametrize("form", ["directory", "file", "dangling link"])
def test_what_was_not_staged_is_never_touched(tmp_path: Path, form: str) -> None:
    target = tmp_path / "tiny"
    if form == "directory":
        target.mkdir()
    elif form == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(StagingError, match=r"tiny: exists, but was not staged.*Choose another name"):
        stage_directory(target, no_build)
    assert os.path.lexists(target)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_broken_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(StagingError, match=r"manifest\.json: is not .* and stage it again"):
        manifest_of(tmp_path)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "datasets").write_text("a file, where a directory has to be")
    with pytest.raises(StagingError, match=rf"tiny: cannot be staged: .*See that {tmp_path}/datasets is .* writable"):
        stage_directory(tmp_path / "datasets" / "tiny", build)


def test_a_shared_root_is_not_made(tmp_path: Path) -> None:
    assert check_shared_root(tmp_path) == tmp_path
    with pytest.raises(StagingError, match=r"is no directory here\. Mount or make it first"):
        check_shared_root(tmp_path / "not-mounted")


@pytest.mark.parametrize("name", ["tiny", "0.9.1", "gsm8k_tiny-2", "a" * 63])
def test_good_names(name: str) -> None:
    assert check_name("datasets", name) == name


@pytest.mark.parametrize("name", ["", ".hidden", "..", "a/b", "a b", "Tiny", "tiny\n", "a" * 64])
def test_bad_names(name: str) -> None:
    with pytest.raises(StagingError, match=r"(?s)^datasets: the name .* is not allowed"):
        check_name("datasets", name)


def test_models_and_code_ids_may_have_capitals() -> None:
    assert check_name("models", "Qwen2.5-0.5B", NAME_WITH_CAPITALS) == "Qwen2.5-0.5B"


def test_the_difference_has_one_line_for_each_result() -> None:
    results = [Staged("model", "old", "/private/m/old", EXISTS), Staged("model", "new", "/private/m/new", STAGED)]
    assert difference(iter(results)) == {
        "before": "model /private/m/old\n",
        "after": "model /private/m/old\nmodel /private/m/new\n",
    }


def test_the_manifest_is_written_for_people(tmp_path: Path) -> None:
    stage_directory(tmp_path / "tiny", build)
    text = (tmp_path / "tiny" / MANIFEST).read_text()
    assert text == json.dumps(json.loads(text), indent=2) + "\n"
