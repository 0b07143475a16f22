"""Sources of snapshots: releases, directories, repositories."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from staging_snapshots import SETUP, TAKEN, commit, files, git, manifest_at, put, put_wheel
from staging_tools import problems, release, snapshot, source_of

from argus.snapshot.errors import SourceError
from argus.snapshot.sources import Source, directory_requirements
from argus.staging.result import Status

pytestmark = pytest.mark.usefixtures("identity")


def test_a_release_becomes_a_snapshot(shared_root: Path, index: Path) -> None:
    staged = snapshot(shared_root, release("0.9.1"))
    target = shared_root / "common" / "code" / "verl" / "verl-0.9.1"
    assert vars(staged) == {
        "kind": "snapshot",
        "name": "verl-0.9.1",
        "path": str(target),
        "status": Status.STAGED,
        "notes": (),
    }
    assert files(target) == [
        "manifest.json",
        "mvp_marker.py",
        "verl/__init__.py",
        "verl/trainer/config/ppo_trainer.yaml",
        "verl/version/version",
    ]
    assert (target / "mvp_marker.py").read_text() == 'MARKER = "verl-0.9.1"\n'
    manifest = manifest_at(target)
    assert {name: manifest[name] for name in ("kind", "code_id", "source", "verl_version", "requirements")} == {
        "kind": "snapshot",
        "code_id": "verl-0.9.1",
        "source": "verl==0.9.1",
        "verl_version": "0.9.1",
        "requirements": ["ray[default]>=2.41.0", "vllm==0.24.0; extra == 'vllm'"],
    }
    assert list(manifest["files"]) == [name for name in files(target) if name != "manifest.json"]
    assert problems(target, full=True) == {}


def test_an_existing_release_is_not_fetched_again(shared_root: Path, index: Path) -> None:
    snapshot(shared_root, release("0.9.1"))
    for wheel in index.iterdir():
        wheel.unlink()
    assert snapshot(shared_root, release("0.9.1")).status == Status.EXISTS


def test_check_mode_fetches_and_writes_nothing(shared_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert snapshot(shared_root, release("0.9.1"), check=True).status == Status.STAGED
    assert list(shared_root.iterdir()) == []


def test_an_error_of_pip_is_reported_with_what_to_do(shared_root: Path, index: Path) -> None:
    with pytest.raises(SourceError, match=r"(?s)verl==7\.7: pip could not .*No matching.*PIP_FIND_LINKS.*directory"):
        snapshot(shared_root, release("7.7"))
    assert not list(shared_root.rglob("*7.7*"))


def test_a_wheel_that_is_not_verl_leaves_nothing(shared_root: Path, index: Path) -> None:
    put_wheel(index, "0.0.1", version_file=False)
    with pytest.raises(SourceError, match="verl/version/version: is missing"):
        snapshot(shared_root, release("0.0.1"))
    assert not list(shared_root.rglob("*0.0.1*"))


@pytest.mark.parametrize("text", ["verl==0.9.1", " verl == 0.9.1 "])
def test_a_pinned_requirement(text: str, snapshots: Path) -> None:
    assert source_of(text, snapshots).label == "verl==0.9.1"


@pytest.mark.parametrize(
    "text", ["", "verl", "verl>=0.9", "verl==0.9.*", "verl[vllm]==0.9.1", "no-snapshot", "../verl", "src"]
)
def test_an_unknown_source_is_rejected(text: str, tree: Path, snapshots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where an empty text, as a path, would be a source tree.
    monkeypatch.chdir(tree)
    with pytest.raises(SourceError, match=r"is neither a release|does not exist.*Give verl==<version>, git\+https"):
        source_of(text, snapshots)


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


def test_a_moved_directory_is_the_same_source(shared_root: Path, snapshots: Path, tree: Path) -> None:
    snapshot(shared_root, source_of(str(tree), snapshots), "mine")
    moved = tree.rename(tree.with_name("elsewhere"))
    assert snapshot(shared_root, source_of(str(moved), snapshots), "mine").status == Status.EXISTS


def test_a_directory_has_to_hold_verl(
    tmp_path: Path, snapshots: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match="has no verl/ package"):
        source_of(str(tmp_path), snapshots)
    with pytest.raises(SourceError, match="does not exist"):
        source_of("/nowhere", snapshots)
    expected = source_of(str(tree), snapshots)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in ("./src", "~/src", f"{tree}/../src"):
        assert (source_of(text, snapshots).label, source_of(text, snapshots).identity) == (str(tree), expected.identity)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("setup.py", SETUP, ["ray[default]>=2.41.0", "pandas"]),
        ("setup.py", "setup(install_requires=['numpy'])", ["numpy"]),
        ("setup.py", "install_requires = open('requirements.txt').read()", []),
        ("setup.py", "not python at all", []),
        ("pyproject.toml", '[project]\nname = "verl"\ndependencies = ["numpy>=2"]\n', ["numpy>=2"]),
        ("pyproject.toml", '[project]\nname = "verl"\ndynamic = ["dependencies"]\n', []),
        ("pyproject.toml", "not toml", []),
        ("README.md", "", []),
    ],
)
def test_requirements_of_a_directory_are_read_where_they_are_literal(
    tmp_path: Path, name: str, text: str, expected: list[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert directory_requirements(tmp_path) == expected


def test_of_a_clean_checkout_the_commit_is_kept(shared_root: Path, snapshots: Path, repository: Path) -> None:
    put(repository, {"notes.txt": "beside the packages", "verl/__pycache__/a.pyc": ""})
    git(
        repository,
        "config",
        "core.excludesFile",
        str(put(repository, {".git/info/mine": "*.pyc\n"}) / ".git/info/mine"),
    )
    staged = snapshot(shared_root, source_of(str(repository), snapshots))
    manifest = manifest_at(staged.path)
    assert {name: manifest[name] for name in ("commit", "uncommitted", "untracked")} == {
        "commit": git(repository, "rev-parse", "HEAD"),
        "uncommitted": False,
        "untracked": [],
    }
    assert files(Path(staged.path)) == sorted([*TAKEN, "manifest.json", "mvp_marker.py"])


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


def test_a_branch_a_tag_and_a_commit_of_a_repository(shared_root: Path, snapshots: Path, repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "light")
    git(repository, "tag", "--annotate", "--message=release", "v1")
    git(repository, "branch", "team/mine")
    sources: dict[str, Source] = {}
    for ref in ("main", "team/mine", "light", "v1", "HEAD", "refs/tags/v1", head):
        source = source_of(f"git+file://{repository}@{ref}", snapshots)
        assert (source.identity, source.code_id) == (f"commit {head}", f"verl-{head[:12]}")
        sources[ref] = source

    staged = snapshot(shared_root, sources["v1"])
    assert (staged.name, staged.status) == (f"verl-{head[:12]}", Status.STAGED)
    assert files(Path(staged.path)) == sorted([*TAKEN, "manifest.json", "mvp_marker.py"])
    manifest = manifest_at(staged.path)
    assert {name: manifest[name] for name in ("source", "commit", "verl_version", "requirements")} == {
        "source": f"git+file://{repository}@v1",
        "commit": head,
        "verl_version": "0.10.0.dev0",
        "requirements": ["ray[default]>=2.41.0", "pandas"],
    }
    # The same commit by another name is the same snapshot.
    assert {snapshot(shared_root, source).status for source in sources.values()} == {Status.EXISTS}
    for number, ref in enumerate(sources):
        assert snapshot(shared_root, sources[ref], f"by-ref-{number}").status == Status.STAGED


def test_a_commit_that_no_branch_ends_with(shared_root: Path, snapshots: Path, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    commit(repository, {"verl/__init__.py": "second = True\n"})
    staged = snapshot(shared_root, source_of(f"git+file://{repository}@{first}", snapshots))
    assert Path(staged.path, "verl", "__init__.py").read_text() == ""
    assert manifest_at(staged.path)["commit"] == first


def test_a_tag_precedes_a_branch_of_the_same_name(shared_root: Path, snapshots: Path, repository: Path) -> None:
    git(repository, "tag", "--annotate", "--message=release", "both")
    tagged = git(repository, "rev-parse", "HEAD")
    git(repository, "branch", "both")
    git(repository, "checkout", "--quiet", "refs/heads/both")
    git(repository, "update-ref", "refs/heads/both", commit(repository, {"verl/__init__.py": "branch = True\n"}))
    staged = snapshot(shared_root, source_of(f"git+file://{repository}@both", snapshots))
    assert manifest_at(staged.path)["commit"] == tagged


@pytest.mark.parametrize("ref", ["v2", "0123456", "ma*n"])
def test_a_ref_that_is_not_there_is_named(snapshots: Path, repository: Path, ref: str) -> None:
    with pytest.raises(SourceError, match=r"team/verl: has no branch and no tag .*with all its 40 digits"):
        source_of(f"git+file://{repository}@{ref}", snapshots)


def test_a_missing_repository_is_reported_with_the_message_of_git(
    shared_root: Path, snapshots: Path, repository: Path
) -> None:
    with pytest.raises(SourceError, match=r"git ls-remote: failed: .*nowhere.*Correct the URL and the ref"):
        source_of(f"git+file://{repository}/nowhere@main", snapshots)
    unknown = source_of(f"git+file://{repository}@{'0123456789' * 4}", snapshots)
    with pytest.raises(SourceError, match=r"git fetch: failed: .*Correct the URL and the ref"):
        snapshot(shared_root, unknown)
    assert not list(snapshots.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "git+https://host/team/verl",
        "git+https://host/team/verl@",
        "git+ssh://git@host/team/verl",
        "git+ftp://host/team/verl@main",
        "git+https://host/team/verl@--upload-pack=touch mine",
    ],
)
def test_a_repository_needs_an_address_and_a_ref(
    text: str, snapshots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No server is asked.
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match=r"is not a repository with a ref\. Give git\+https"):
        source_of(text, snapshots)


def test_a_branch_that_has_moved_is_another_snapshot(shared_root: Path, snapshots: Path, repository: Path) -> None:
    text = f"git+file://{repository}@main"
    first = snapshot(shared_root, source_of(text, snapshots))
    snapshot(shared_root, source_of(text, snapshots), "mine")
    moved = commit(repository, {"verl/__init__.py": "moved = True\n"})
    with pytest.raises(
        SourceError,
        match=r"mine: contains git\+file.*which differs from the present content of git\+file.*choose another name",
    ):
        snapshot(shared_root, source_of(text, snapshots), "mine")
    second = snapshot(shared_root, source_of(text, snapshots))
    assert second.status == Status.STAGED
    assert second.name == f"verl-{moved[:12]}" != first.name


def test_a_branch_that_moves_meanwhile_is_refused(shared_root: Path, snapshots: Path, repository: Path) -> None:
    before = git(repository, "rev-parse", "HEAD")
    source = source_of(f"git+file://{repository}@main", snapshots)
    after = commit(repository, {"verl/__init__.py": "moved = True\n"})
    with pytest.raises(
        SourceError, match=rf"@main: moved from {before} to {after} while it was fetched\. Stage it again"
    ):
        snapshot(shared_root, source)
    assert not list(snapshots.iterdir())


def test_check_mode_resolves_a_ref_and_downloads_nothing(
    shared_root: Path, snapshots: Path, repository: Path, spied_git: Path
) -> None:
    assert (
        snapshot(shared_root, source_of(f"git+file://{repository}@main", snapshots), check=True).status == Status.STAGED
    )
    assert list(shared_root.iterdir()) == []
    assert [line.split()[0] for line in (spied_git / "argv").read_text().splitlines()] == ["ls-remote"]


def test_pip_is_not_looked_for_in_the_working_directory(
    shared_root: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "here", {"pip/__init__.py": "", "pip/__main__.py": "raise SystemExit('not the real one')"})
    monkeypatch.chdir(tmp_path / "here")
    assert snapshot(shared_root, source_of("verl==0.9.1", shared_root)).status == Status.STAGED


def test_a_wheel_writes_nowhere_else(shared_root: Path, index: Path) -> None:
    with zipfile.ZipFile(index / "verl-0.9.1-py3-none-any.whl", "a") as wheel:
        wheel.writestr("verl/../../outside.py", "")
    with pytest.raises(SourceError, match=r"has a file 'verl/../../outside.py' in its wheel"):
        snapshot(shared_root, source_of("verl==0.9.1", shared_root))
