"""Snapshots of directories and of other snapshots, with overlays: real files, a real git."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from staging_attacks import put_in_place
from staging_snapshots import SETUP, TAKEN, commit, edit, files, git, manifest_at, put
from staging_store import NOBODY
from staging_tools import overlay, problems, snapshot, source_of

from argus.staging.git import CheckoutState, Git
from argus.staging.manifest import Status
from argus.staging.options import StagingError
from argus.staging.source_tree import directory_requirements, open_within

pytestmark = pytest.mark.usefixtures("identity")


def test_a_snapshot_is_what_a_job_imports_whatever_the_umask(shared_root: Path, tree: Path) -> None:
    before = os.umask(0o077)
    try:
        path = snapshot(shared_root, source_of(str(tree), shared_root), "mine").path
    finally:
        os.umask(before)
    found = [Path(path), *Path(path).rglob("*")]
    assert {oct(each.stat().st_mode & 0o777) for each in found if each.is_file()} == {"0o444"}
    assert {oct(each.stat().st_mode & 0o777) for each in found if each.is_dir()} == {"0o555"}
    code = "import verl, mvp_marker; print(verl.__file__, mvp_marker.MARKER)"
    done = subprocess.run(
        [sys.executable, "-v", "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{path}/verl/__init__.py mine\n"
    assert f"code object from '{cache_from_source(f'{path}/verl/__init__.py')}'" in done.stderr


@pytest.mark.parametrize("check", [False, True])
def test_one_code_id_never_stands_for_two_contents(shared_root: Path, snapshots: Path, tree: Path, check: bool) -> None:
    snapshot(shared_root, source_of(str(tree), snapshots), "mine")
    (tree / "verl" / "new.py").write_text("")
    with pytest.raises(StagingError, match=f"mine: contains {tree} "):
        snapshot(shared_root, source_of(str(tree), snapshots), "mine", check=check)


def test_an_overlay_is_put_beside_or_over_what_is_there(
    shared_root: Path, snapshots: Path, tree: Path, mine: Path
) -> None:
    base = source_of(str(tree), snapshots)
    overlays = [overlay(mine, "my_package"), overlay(mine, "./recipe/dapo/")]
    staged = snapshot(shared_root, base, "", overlays)
    target = Path(staged.path)
    assert {"my_package/main.py", "my_package/deep/er.py", "recipe/dapo/deep/er.py", *TAKEN} < set(files(target))
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


@pytest.mark.parametrize(
    "to",
    [
        *("", ".", "/", "/verl", "..", "../mine", "verl/../../mine"),
        *("manifest.json", "./manifest.json", "mvp_marker.py/", "manifest.json/mine", "uncommitted.patch"),
    ],
)
def test_an_overlay_stays_below_the_snapshot_and_beside_what_is_its_own(mine: Path, to: str) -> None:
    with pytest.raises(StagingError, match=r'overlay ".*/mine": cannot be put at ".*"\. Give a relative path'):
        overlay(mine, to)


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


def test_a_directory_becomes_a_snapshot_without_ignored_files(shared_root: Path, snapshots: Path, tree: Path) -> None:
    staged = snapshot(shared_root, source_of(str(tree), snapshots))
    assert staged.name == f"verl-0.10.0.dev0-{manifest_at(staged.path)['content_sha256'][:8]}"
    assert files(Path(staged.path)) == sorted([*TAKEN, "manifest.json", "mvp_marker.py"])
    manifest = manifest_at(staged.path)
    assert manifest["source"] == str(tree)
    assert manifest["requirements"] == ["ray[default]>=2.41.0", "pandas"]
    # Its .git is none.
    assert "commit" not in manifest


def test_a_changed_directory_is_another_snapshot(shared_root: Path, snapshots: Path, tree: Path) -> None:
    first = snapshot(shared_root, source_of(str(tree), snapshots))
    (tree / "tests" / "test_all.py").write_text("of no concern")
    assert snapshot(shared_root, source_of(str(tree), snapshots)).status == Status.EXISTS
    (tree / "verl" / "__init__.py").write_text("changed = True\n")
    second = snapshot(shared_root, source_of(str(tree), snapshots))
    assert second.status == Status.STAGED
    assert second.name != first.name


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("setup.py", "setup(install_requires=['numpy'])", ["numpy"]),
        ("setup.py", "install_requires = open('requirements.txt').read()", []),
        ("pyproject.toml", '[project]\nname = "verl"\ndependencies = ["numpy>=2"]\n', ["numpy>=2"]),
        (
            "pyproject.toml",
            "[project.optional-dependencies]\nvllm = ['verl[core]', 'vllm; python_version > \"3\"']\nempty = []\n",
            ["verl[core] ; extra == 'vllm'", "vllm ; (python_version > \"3\") and extra == 'vllm'"],
        ),
        ("pyproject.toml", "[project]\noptional-dependencies = 1\n", []),
        ("pyproject.toml", "not toml", []),
    ],
)
def test_requirements_of_a_directory_are_read_where_they_are_literal(
    tmp_path: Path, name: str, text: str, expected: list[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert directory_requirements(tmp_path) == expected


def test_uncommitted_changes_are_stored_as_a_patch(
    shared_root: Path, snapshots: Path, repository: Path, tmp_path: Path
) -> None:
    # Ends of lines and bytes that are not UTF-8 have to come out as they went in.
    windows, latin = repository / "verl" / "windows.py", repository / "verl" / "latin.py"
    windows.write_bytes(b"one\r\ntwo\r\n")
    latin.write_bytes(b"# gr\xfcn\n")
    head = commit(repository, {})
    windows.write_bytes(b"one\r\n2\r\n")
    latin.write_bytes(b"# gr\xfcner\n")
    (repository / "recipe" / "dapo" / "main.py").unlink()
    put(repository, {"verl/binary.bin": "\0\1", "verl/new.py": "", "setup.py": "of no concern"})
    git(repository, "add", "verl/binary.bin")
    staged = snapshot(shared_root, source_of(str(repository), snapshots))
    manifest = manifest_at(staged.path)
    assert {name: manifest[name] for name in ("commit", "uncommitted", "untracked")} == {
        "commit": head,
        "uncommitted": True,
        "untracked": ["verl/new.py"],
    }
    assert "uncommitted.patch" in manifest["files"]
    assert problems(Path(staged.path), full=True) == {}

    # The commit and the patch are what was staged.
    git(tmp_path, "clone", "--quiet", str(repository), "again")
    git(tmp_path / "again", "apply", f"{staged.path}/uncommitted.patch")
    put(tmp_path / "again", {"verl/new.py": ""})
    again = source_of(str(tmp_path / "again"), snapshots)
    assert snapshot(shared_root, again, staged.name).status == Status.EXISTS


@pytest.mark.parametrize("name", ["verl/__init__.py", "examples/more.sh"])
def test_a_directory_that_changes_meanwhile_is_refused(
    shared_root: Path, snapshots: Path, tree: Path, name: str
) -> None:
    source = source_of(str(tree), snapshots)
    (tree / name).write_text("changed = True\n")
    # What comes meanwhile is of no concern: the snapshot is what was described.
    if name == "examples/more.sh":
        path = snapshot(shared_root, source).path
        assert not Path(path, name).exists()
        return
    with pytest.raises(StagingError, match="changed while it was copied"):
        snapshot(shared_root, source)
    assert not list(snapshots.iterdir())


def test_links_to_files_are_followed_and_others_are_refused(shared_root: Path, snapshots: Path, tree: Path) -> None:
    (tree / "verl" / "linked.yaml").symlink_to(tree / "setup.py")
    copied = Path(snapshot(shared_root, source_of(str(tree), snapshots)).path, "verl", "linked.yaml")
    assert copied.read_text() == SETUP
    assert not copied.is_symlink()
    (tree / "verl" / "configs").symlink_to(tree / "examples")
    with pytest.raises(StagingError, match=r"verl/configs: is a link to a directory"):
        source_of(str(tree), snapshots)


def test_a_repair_does_not_change_other_snapshots(shared_root: Path, snapshots: Path, tree: Path) -> None:
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    # An own file of equal content, with a time of its own.
    for file in (snapshots / "first" / "examples" / "run.sh", snapshots / "first" / "verl" / "__init__.py"):
        edit(file, file.read_text() + "# changed\n")
    second = snapshot(shared_root, source_of(str(tree), snapshots), "second")
    with pytest.raises(StagingError, match=r"first: no longer fits .*examples/run\.sh has .*verl/__init__\.py has"):
        snapshot(shared_root, source_of(str(tree), snapshots), "first")
    before = {name: Path(second.path, name).stat() for name in files(Path(second.path))}
    assert snapshot(shared_root, source_of(str(tree), snapshots), "first", repair=True).status == Status.REPAIRED
    assert Path(first.path, "examples", "run.sh").read_text() == "run\n"
    after = {name: Path(second.path, name).stat().st_mtime_ns for name in before}
    assert after == {name: stat.st_mtime_ns for name, stat in before.items()}
    for path in (first.path, second.path):
        assert {each.stat().st_mode & 0o222 for each in (Path(path), *Path(path).rglob("*"))} == {0}
        manifest = manifest_at(path)
        for name, entry in manifest["files"].items():
            assert Path(path, name).stat().st_mtime_ns == entry["mtime_ns"]
        assert problems(Path(path), full=True) == {}


@pytest.mark.parametrize("is_overlay", [False, True])
def test_a_link_that_leads_out_of_a_source_is_named(
    tree: Path, snapshots: Path, tmp_path: Path, is_overlay: bool
) -> None:
    (tmp_path / "id_ed25519").write_text("private")
    (tree / "verl" / "key.py").symlink_to(tmp_path / "id_ed25519")
    with pytest.raises(StagingError, match=f"{tree}/verl/key.py: leads out of {tree}, to {tmp_path}/id_ed25519"):
        overlay(tree, "mine") if is_overlay else source_of(str(tree), snapshots)


@pytest.mark.parametrize("form", ["FIFO", "socket", "device"])
def test_a_special_file_in_a_source_is_an_error(tree: Path, snapshots: Path, form: str) -> None:
    special = tree / "verl" / "special"
    if form == "device":
        special.symlink_to("/dev/zero")
    else:
        put_in_place(form, special, tree)
    with pytest.raises(StagingError, match=r"verl/special: is a link to a directory, a broken link or a special file"):
        source_of(str(tree), snapshots)


def test_a_file_that_becomes_a_fifo_is_not_opened(tree: Path) -> None:
    file = tree / "verl" / "__init__.py"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(StagingError, match="special file"):
        open_within(str(file), tree)


def test_a_name_that_cannot_be_shown_is_refused(tree: Path, snapshots: Path) -> None:
    (tree / "verl" / "a\x1b[2J.py").touch()
    with pytest.raises(StagingError, match="has characters that cannot be shown"):
        source_of(str(tree), snapshots)


def test_a_sparse_file_is_counted_before_it_is_read(tree: Path, snapshots: Path) -> None:
    with (tree / "verl" / "huge").open("wb") as file:
        file.truncate(8 << 40)
    with pytest.raises(StagingError, match="has files of more than 4 GiB"):
        source_of(str(tree), snapshots)


@pytest.fixture
def pwned(tmp_path: Path) -> Path:
    return tmp_path / "PWNED"


@pytest.fixture
def program(tmp_path: Path, pwned: Path) -> str:
    """A program that leaves a mark, and then works as a filter."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\ntouch {pwned}\ncat 2>/dev/null\n")
    path.chmod(0o755)
    return str(path)


def state_of(directory: Path) -> CheckoutState | None:
    return Git().state_of(directory, ["verl"])


@pytest.mark.parametrize(
    "name",
    ["core.fsmonitor", "diff.evil.textconv", "diff.evil.command", "diff.external", "core.pager", "core.sshCommand"],
)
def test_settings_that_only_show_or_speed_up_run_nothing(
    shared_root: Path, snapshots: Path, repository: Path, program: str, pwned: Path, name: str
) -> None:
    commit(repository, {".gitattributes": "* diff=evil\n"})
    head = git(repository, "rev-parse", "HEAD")
    put(repository, {"verl/__init__.py": "changed = True\n", "verl/new.py": ""})
    git(repository, "config", name, program)
    staged = snapshot(shared_root, source_of(str(repository), snapshots))
    assert not pwned.exists()
    manifest = manifest_at(staged.path)
    assert (manifest["commit"], manifest["uncommitted"], manifest["untracked"]) == (head, True, ["verl/new.py"])
    assert "+changed = True" in Path(staged.path, "uncommitted.patch").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("name", [".", ".git"])
def test_a_checkout_of_another_user_is_a_plain_directory(
    shared_root: Path, snapshots: Path, repository: Path, program: str, pwned: Path, name: str
) -> None:
    """Its configuration names programs that git runs."""
    assert state_of(repository)
    git(repository, "config", "filter.evil.clean", program)
    put(repository, {".gitattributes": "* filter=evil\n", "verl/__init__.py": "changed = True\n"})
    os.chown(repository / name, NOBODY, NOBODY)
    staged = snapshot(shared_root, source_of(str(repository), snapshots))
    assert "commit" not in manifest_at(staged.path)
    assert not pwned.exists()


def test_a_directory_in_a_checkout_is_a_plain_directory(repository: Path) -> None:
    put(repository, {"inner/verl/__init__.py": "", "inner/.git/HEAD": ""})
    assert state_of(repository / "inner") is None
    assert state_of(repository / "verl") is None


def test_a_worktree_is_a_checkout(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "worktree"))
    head = commit(tmp_path / "worktree", {"verl/more.py": "more = 1\n"})
    put(tmp_path / "worktree", {"verl/more.py": "more = 2\n"})
    git(repository, "pack-refs", "--all")
    state = state_of(tmp_path / "worktree")
    assert state is not None
    assert state[0] == head
    assert b"+more = 2" in state[1]
