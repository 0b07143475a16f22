from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.shared_root import SNAPSHOTS
from ansible_collections.argus.verl.plugins.module_utils.staging import tree as tree_module
from ansible_collections.argus.verl.plugins.module_utils.staging.errors import StagingError
from ansible_collections.argus.verl.plugins.module_utils.staging.git import Git
from ansible_collections.argus.verl.plugins.module_utils.staging.result import Status
from ansible_collections.argus.verl.plugins.module_utils.staging.snapshots import Overlay
from ansible_collections.argus.verl.plugins.module_utils.staging.sources import (
    DirectorySource,
    GitSource,
    PyPISource,
    SnapshotSource,
    Source,
    directory_requirements,
    source_of,
)
from ansible_collections.argus.verl.plugins.module_utils.staging.store import remove
from ansible_collections.argus.verl.plugins.module_utils.staging.tree import FileSnapshot, content_sha256, read_packages
from staging_tools import manifest_json, problems, snapshot

SETUP = """
from setuptools import setup
install_requires = ["ray[default]>=2.41.0", "pandas"]
TEST_REQUIRES = ["pytest"]
setup(name="verl", install_requires=install_requires)
"""
# What a snapshot takes of a checkout, and what it does not.
TAKEN = {
    "verl/__init__.py": "",
    "verl/version/version": "0.10.0.dev0\n",
    "verl/trainer/config/ppo_trainer.yaml": "a: 1\n",
    "recipe/dapo/main.py": "dapo = True\n",
    "examples/run.sh": "run\n",
}
LEFT = {"tests/test_all.py": "", "setup.py": SETUP}
LITTER = {
    "verl/__pycache__/__init__.cpython-311.pyc": "compiled",
    "verl/.git": "gitdir: ../.git/modules/verl",
    "verl.egg-info/PKG-INFO": "",
    ".git/HEAD": "",
}
TOKEN = "t0ken-that-nobody-may-see"


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that is configured as it is on no machine in particular."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ann@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def shared_root(tmp_path: Path) -> Path:
    root = tmp_path / "shared"
    root.mkdir()
    return root


@pytest.fixture
def snapshots(shared_root: Path) -> Path:
    """Where the snapshots of the shared root lie."""
    return shared_root / SNAPSHOTS


def put(directory: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree of verl, with all that a snapshot must not take."""
    return put(tmp_path / "src", {**TAKEN, **LEFT, **LITTER})


def git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(repository: Path, texts: Mapping[str, str]) -> str:
    put(repository, texts)
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=change")
    return git(repository, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository of verl, with one commit on main."""
    repository = tmp_path / "team" / "verl"
    repository.mkdir(parents=True)
    git(repository, "init", "--quiet", "--initial-branch=main")
    commit(repository, {**TAKEN, **LEFT})
    return repository


@pytest.fixture
def spied_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git before the real one, which keeps what it was called with: the files `argv` and `environment`."""
    spied = tmp_path / "spied"
    real = subprocess.run(["which", "git"], check=True, capture_output=True, text=True).stdout.strip()
    script = f'#!/bin/sh\necho "$@" >> {spied}/argv\nenv >> {spied}/environment\nexec {real} "$@"\n'
    put(spied, {"bin/git": script})
    (spied / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{spied}/bin{os.pathsep}{os.environ['PATH']}")
    return spied


class SmartHttp(BaseHTTPRequestHandler):
    """Repositories below `root`, by git's own server, for who brings the token."""

    root: Path

    def do_GET(self) -> None:
        secret = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {secret}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=True)
        headers, _, content = done.stdout.partition(b"\r\n\r\n")
        self.send_response(200)
        for line in headers.decode().splitlines():
            self.send_header(*line.split(": ", 1))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def private_host(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a host that shows the repository to nobody without the token."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    handler = type("Handler", (SmartHttp,), {"root": repository.parents[1]})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def put_wheel(directory: Path, version: str, version_file: bool = True) -> None:
    with zipfile.ZipFile(directory / f"verl-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("verl/__init__.py", f"__version__ = {version!r}\n")
        wheel.writestr("verl/trainer/config/ppo_trainer.yaml", "a: 1\n")
        if version_file:
            wheel.writestr("verl/version/version", f"{version}\n")
        wheel.writestr("tests/test_all.py", "")
        wheel.writestr("../outside.py", "")
        wheel.writestr(
            f"verl-{version}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: verl\nVersion: {version}\n"
            # As the real one: the Python here must not matter.
            "Requires-Python: >=4\n"
            "Requires-Dist: ray[default]>=2.41.0\nRequires-Dist: vllm==0.24.0; extra == 'vllm'\n\nverl\n",
        )
        wheel.writestr(
            f"verl-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"verl-{version}.dist-info/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that is a directory."""
    index = tmp_path / "index"
    index.mkdir()
    put_wheel(index, "0.9.1")
    put_wheel(index, "0.9.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return index


def files(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def manifest_at(path: str | Path) -> dict[str, Any]:
    manifest = manifest_json(Path(path))
    assert manifest is not None
    return manifest


def inode(*parts: str | Path) -> int:
    return Path(*parts).stat().st_ino


def edit(file: Path, text: str) -> None:
    """As somebody does who may not, but can."""
    file.chmod(0o644)
    file.write_text(text)


# --- Releases --------------------------------------------------------------------------------------------------------


def test_a_release_becomes_a_snapshot(shared_root: Path, index: Path) -> None:
    staged = snapshot(shared_root, PyPISource("0.9.1"))
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


def test_nobody_can_change_a_snapshot_by_accident(shared_root: Path, tree: Path) -> None:
    target = Path(snapshot(shared_root, source_of(str(tree), shared_root)).path)
    found = [target, *target.rglob("*")]
    assert {oct(path.stat().st_mode & 0o777) for path in found if path.is_file()} == {"0o444"}
    assert {oct(path.stat().st_mode & 0o777) for path in found if path.is_dir()} == {"0o555"}


def test_a_snapshot_is_what_a_job_imports(shared_root: Path, index: Path) -> None:
    path = snapshot(shared_root, PyPISource("0.9.0"), "mine").path
    code = "import verl, mvp_marker; print(verl.__file__, verl.__version__, mvp_marker.MARKER)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{path}/verl/__init__.py 0.9.0 mine\n"


def test_an_existing_release_is_not_fetched_again(shared_root: Path, index: Path) -> None:
    snapshot(shared_root, PyPISource("0.9.1"))
    for wheel in index.iterdir():
        wheel.unlink()
    assert snapshot(shared_root, PyPISource("0.9.1")).status == Status.EXISTS


def test_check_mode_fetches_and_writes_nothing(shared_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert snapshot(shared_root, PyPISource("0.9.1"), check=True).status == Status.STAGED
    assert list(shared_root.iterdir()) == []


def test_what_pip_said_is_passed_on_with_the_way_out(shared_root: Path, index: Path) -> None:
    with pytest.raises(StagingError, match=r"(?s)verl==7\.7: pip could not .*No matching.*PIP_FIND_LINKS.*directory"):
        snapshot(shared_root, PyPISource("7.7"))
    assert not list(shared_root.rglob("*7.7*"))


def test_a_wheel_that_is_not_verl_leaves_nothing(shared_root: Path, index: Path) -> None:
    put_wheel(index, "0.0.1", version_file=False)
    with pytest.raises(StagingError, match="verl/version/version: is missing"):
        snapshot(shared_root, PyPISource("0.0.1"))
    assert not list(shared_root.rglob("*0.0.1*"))


@pytest.mark.parametrize("text", ["verl==0.9.1", " verl == 0.9.1 "])
def test_a_pinned_requirement(text: str, snapshots: Path) -> None:
    assert source_of(text, snapshots) == PyPISource("0.9.1")


@pytest.mark.parametrize(
    "text", ["", "verl", "verl>=0.9", "verl==0.9.*", "verl[vllm]==0.9.1", "no-snapshot", "../verl", "src"]
)
def test_what_is_none_of_the_four_is_refused(
    text: str, tree: Path, snapshots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where an empty text, as a path, would be a source tree.
    monkeypatch.chdir(tree)
    with pytest.raises(StagingError, match=r"is neither a release|does not exist.*Give verl==<version>, git\+https"):
        source_of(text, snapshots)


# --- Directories -----------------------------------------------------------------------------------------------------


def test_a_directory_becomes_a_snapshot_without_what_tools_left_in_it(
    shared_root: Path, snapshots: Path, tree: Path
) -> None:
    staged = snapshot(shared_root, source_of(str(tree), snapshots))
    assert staged.name == f"verl-0.10.0.dev0-{content_sha256(read_packages(tree))[:8]}"
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


@pytest.mark.parametrize("check", [False, True])
def test_one_code_id_never_stands_for_two_contents(
    shared_root: Path, snapshots: Path, tree: Path, index: Path, check: bool
) -> None:
    snapshot(shared_root, source_of(str(tree), snapshots), "mine")
    both = rf"mine: contains {tree} \(verl 0.10.0.dev0\), .*{{}}.*choose another name"
    with pytest.raises(StagingError, match=both.format("verl==0.9.1")):
        snapshot(shared_root, PyPISource("0.9.1"), "mine", check=check)
    (tree / "verl" / "new.py").write_text("")
    with pytest.raises(StagingError, match=both.format(str(tree))):
        snapshot(shared_root, source_of(str(tree), snapshots), "mine", check=check)


def test_a_moved_directory_is_the_same_source(shared_root: Path, snapshots: Path, tree: Path) -> None:
    snapshot(shared_root, source_of(str(tree), snapshots), "mine")
    moved = tree.rename(tree.with_name("elsewhere"))
    assert snapshot(shared_root, source_of(str(moved), snapshots), "mine").status == Status.EXISTS


def test_what_is_staged_is_what_was_read_also_of_a_directory_that_changes_meanwhile(
    shared_root: Path, snapshots: Path, tree: Path
) -> None:
    source = source_of(str(tree), snapshots)
    (tree / "verl" / "__init__.py").write_text("changed = True\n")
    staged = snapshot(shared_root, source)
    assert (Path(staged.path) / "verl" / "__init__.py").read_text() == TAKEN["verl/__init__.py"]
    assert problems(Path(staged.path), full=True) == {}


def test_a_file_that_comes_meanwhile_is_noticed(shared_root: Path, snapshots: Path, tree: Path) -> None:
    source = source_of(str(tree), snapshots)
    (tree / "verl" / "more.py").touch()
    with pytest.raises(StagingError, match="changed while it was copied"):
        snapshot(shared_root, source)
    assert not list(snapshots.iterdir())


def test_a_large_file_that_changes_meanwhile_is_refused(
    shared_root: Path, snapshots: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "LARGE_BYTES", 3)
    source = source_of(str(tree), snapshots)
    (tree / "setup.py").write_text("")
    (tree / "verl" / "trainer" / "config" / "ppo_trainer.yaml").write_text("changed: true\n")
    with pytest.raises(StagingError, match=r"ppo_trainer\.yaml: changed while it was copied"):
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


def test_a_directory_has_to_hold_verl(
    tmp_path: Path, snapshots: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StagingError, match="has no verl/ package"):
        source_of(str(tmp_path), snapshots)
    with pytest.raises(StagingError, match="does not exist on this machine"):
        source_of("/nowhere", snapshots)
    expected = DirectorySource(tree, "0.10.0.dev0", read_packages(tree))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in ("./src", "~/src", f"{tree}/../src"):
        assert source_of(text, snapshots) == expected


def test_a_local_version_makes_a_code_id_fit_for_a_path() -> None:
    files = {"verl/__init__.py": FileSnapshot(0, 0, "abc")}
    code_id = DirectorySource(Path("/src"), "0.10.0+mine", files).code_id
    assert code_id == f"verl-0.10.0-mine-{content_sha256(files)[:8]}"


@pytest.mark.parametrize("code_id", ["../escape", "a/b", ".hidden"])
def test_a_bad_code_id_is_refused(shared_root: Path, code_id: str) -> None:
    with pytest.raises(StagingError, match="code_id: the name"):
        snapshot(shared_root, PyPISource("0.9.1"), code_id)


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


# --- Checkouts -------------------------------------------------------------------------------------------------------


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


def test_what_is_not_committed_is_kept_as_a_patch(
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


# --- Repositories ----------------------------------------------------------------------------------------------------


def test_a_branch_a_tag_and_a_commit_of_a_repository(shared_root: Path, snapshots: Path, repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "light")
    git(repository, "tag", "--annotate", "--message=release", "v1")
    git(repository, "branch", "team/mine")
    sources: dict[str, Source] = {}
    for ref in ("main", "team/mine", "light", "v1", "HEAD", "refs/tags/v1", head):
        source = source_of(f"git+file://{repository}@{ref}", snapshots)
        assert isinstance(source, GitSource)
        assert (source.commit, source.code_id) == (head, f"verl-{head[:12]}")
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


def test_a_branch_and_a_tag_of_one_name_are_what_git_takes(
    shared_root: Path, snapshots: Path, repository: Path
) -> None:
    git(repository, "tag", "--annotate", "--message=release", "both")
    tagged = git(repository, "rev-parse", "HEAD")
    git(repository, "branch", "both")
    git(repository, "checkout", "--quiet", "refs/heads/both")
    git(repository, "update-ref", "refs/heads/both", commit(repository, {"verl/__init__.py": "branch = True\n"}))
    staged = snapshot(shared_root, source_of(f"git+file://{repository}@both", snapshots))
    assert manifest_at(staged.path)["commit"] == tagged


@pytest.mark.parametrize("ref", ["v2", "0123456", "ma*n"])
def test_a_ref_that_is_not_there_is_named(snapshots: Path, repository: Path, ref: str) -> None:
    with pytest.raises(StagingError, match=r"team/verl: has no branch and no tag .*with all its 40 digits"):
        source_of(f"git+file://{repository}@{ref}", snapshots)


def test_a_repository_that_is_not_there_is_said_by_git(shared_root: Path, snapshots: Path, repository: Path) -> None:
    with pytest.raises(StagingError, match=r"git ls-remote: failed: .*nowhere.*Correct the URL and the ref"):
        source_of(f"git+file://{repository}/nowhere@main", snapshots)
    unknown = source_of(f"git+file://{repository}@{'0123456789' * 4}", snapshots)
    with pytest.raises(StagingError, match=r"git fetch: failed: .*Correct the URL and the ref"):
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
    # Nobody is asked.
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StagingError, match=r"is not a repository with a ref\. Give git\+https"):
        source_of(text, snapshots)


def test_without_git_only_a_commit_can_be_resolved(
    snapshots: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    source = source_of(f"git+file://{repository}@{'0123456789' * 4}", snapshots)
    assert source.code_id == "verl-012345678901"
    with pytest.raises(StagingError, match=r"git: is not installed on this machine\. Install it"):
        source_of(f"git+file://{repository}@main", snapshots)


def test_a_branch_that_has_moved_is_another_snapshot(shared_root: Path, snapshots: Path, repository: Path) -> None:
    text = f"git+file://{repository}@main"
    first = snapshot(shared_root, source_of(text, snapshots))
    snapshot(shared_root, source_of(text, snapshots), "mine")
    moved = commit(repository, {"verl/__init__.py": "moved = True\n"})
    with pytest.raises(
        StagingError,
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
        StagingError, match=rf"@main: moved from {before} to {after} while it was fetched\. Stage it again"
    ):
        snapshot(shared_root, source)
    assert not list(snapshots.iterdir())


def test_check_mode_asks_a_repository_and_fetches_nothing(
    shared_root: Path, snapshots: Path, repository: Path, spied_git: Path
) -> None:
    assert (
        snapshot(shared_root, source_of(f"git+file://{repository}@main", snapshots), check=True).status == Status.STAGED
    )
    assert list(shared_root.iterdir()) == []
    assert [line.split()[0] for line in (spied_git / "argv").read_text().splitlines()] == ["ls-remote"]


def test_in_a_hook_of_git_nothing_is_done_to_its_repository(
    shared_root: Path, snapshots: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=mine", "other")
    own = commit(tmp_path / "other", {"a": ""})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    head = snapshot(shared_root, source_of(f"git+file://{repository}@main", snapshots)).name
    checkout = snapshot(shared_root, source_of(str(repository), snapshots))
    monkeypatch.undo()
    assert manifest_at(checkout.path)["commit"][:12] == head.removeprefix("verl-")
    assert git(tmp_path / "other", "rev-parse", "refs/heads/mine") == own
    assert (tmp_path / "other" / ".git" / "HEAD").read_text() == "ref: refs/heads/mine\n"


@pytest.mark.parametrize(
    "text",
    [
        "git+https://ann:SECRET@host/team/verl@main",
        "git+https://SECRET@host/team/verl@main",
        "git+ssh://git:SECRET@host/team/verl@main",
        # Without a ref, or with one that is none, the password must not be taken for a host, nor be printed.
        "git+https://ann:SECRET@host/team/verl",
        "git+https://SECRET@host/team/verl",
        "git+https://ann:SEC/RET@host/team/verl@main",
        "git+https://ann:SECRET@host/team/verl@",
        "git+ftp://ann:SECRET@host/team/verl@main",
        "https://ann:SECRET@host/team/verl",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_printed(
    text: str, snapshots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody is asked.
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StagingError) as raised:
        source_of(text, snapshots)
    assert "SEC" not in str(raised.value)
    assert "RET" not in str(raised.value)
    assert "is not installed" not in str(raised.value)


def test_a_token_does_not_travel_in_clear(snapshots: Path) -> None:
    with pytest.raises(StagingError, match=r"would get the token unencrypted\. Use https"):
        source_of("git+http://git.example.com/team/verl@main", snapshots, Git(TOKEN))


def test_a_repository_does_not_bring_files_of_this_machine(
    shared_root: Path, snapshots: Path, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "id_ed25519").write_text("private")
    (repository / "verl" / "key.py").symlink_to(tmp_path / "id_ed25519")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "a gift")
    with pytest.raises(StagingError, match=r"verl/key\.py points out of the repository"):
        snapshot(shared_root, source_of(f"git+file://{repository}@main", snapshots))
    assert not list(snapshots.iterdir())


def test_what_to_do_about_a_password_in_an_address(snapshots: Path) -> None:
    with pytest.raises(StagingError, match=r"has a password or a token in it\. Remove it, and set staging_git_token"):
        source_of("git+https://ann:SECRET@host/team/verl@main", snapshots)


def test_a_private_repository_opens_for_a_token(
    shared_root: Path, snapshots: Path, repository: Path, private_host: str, spied_git: Path
) -> None:
    text = f"git+{private_host}/team/verl@main"
    with pytest.raises(StagingError, match=r"git ls-remote: failed: .*a private repository needs a token"):
        source_of(text, snapshots)
    with pytest.raises(StagingError, match="git ls-remote: failed") as raised:
        source_of(text, snapshots, Git("another-token"))
    assert "another-token" not in str(raised.value)
    staged = snapshot(shared_root, source_of(text, snapshots, Git(TOKEN)))
    assert staged.status == Status.STAGED
    assert manifest_at(staged.path)["commit"] == git(repository, "rev-parse", "HEAD")
    assert "fetch" in (spied_git / "argv").read_text()


def test_a_token_is_in_the_environment_of_git_and_nowhere_else(
    shared_root: Path,
    snapshots: Path,
    repository: Path,
    private_host: str,
    spied_git: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What the user has there stays.
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.name")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "ann")
    secret = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    source = source_of(f"git+{private_host}/team/verl@main", snapshots, Git(TOKEN))
    staged = snapshot(shared_root, source)
    argv = (spied_git / "argv").read_text()
    assert {"ls-remote", "fetch"} <= set(argv.split())
    environment = (spied_git / "environment").read_text().splitlines()
    assert {line for line in environment if line.startswith("GIT_CONFIG_") and line[-1] != "1"} >= {
        "GIT_CONFIG_COUNT=2",
        "GIT_CONFIG_VALUE_0=ann",
        f"GIT_CONFIG_KEY_1=http.{private_host}/.extraHeader",
        f"GIT_CONFIG_VALUE_1=Authorization: Basic {secret}",
    }
    for text in (argv, repr(source), *(path.read_text() for path in Path(staged.path).rglob("*") if path.is_file())):
        assert TOKEN not in text
        assert secret not in text
    assert not any(TOKEN in line for line in environment)


def test_git_never_asks_and_takes_the_key_that_it_is_given(repository: Path, spied_git: Path, tmp_path: Path) -> None:
    Git().commit_of(f"file://{repository}", "main")
    environment = (spied_git / "environment").read_text().splitlines()
    assert "GIT_TERMINAL_PROMPT=0" in environment
    assert "GIT_SSH_COMMAND=ssh -o BatchMode=yes" in environment
    assert not any(line.startswith("GIT_CONFIG_COUNT") for line in environment)
    # An ssh that says how it is called, and fails.
    put(spied_git, {"bin/ssh": f'#!/bin/sh\necho "$@" >> {spied_git}/ssh\nexit 255\n'})
    (spied_git / "bin" / "ssh").chmod(0o755)
    with pytest.raises(StagingError, match="git ls-remote: failed"):
        Git(ssh_key=str(tmp_path / "my key")).commit_of("ssh://git@host/team/verl", "main")
    assert f"-o BatchMode=yes -o IdentitiesOnly=yes -i {tmp_path}/my key" in (spied_git / "ssh").read_text()


# --- Overlays --------------------------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """What a user puts over verl."""
    return put(tmp_path / "mine", {"main.py": "mine = True\n", "deep/er.py": "", "__pycache__/main.pyc": ""})


def test_an_overlay_is_put_beside_or_over_what_is_there(
    shared_root: Path, snapshots: Path, tree: Path, mine: Path
) -> None:
    base = source_of(str(tree), snapshots)
    overlays = [Overlay.of(str(mine), "my_package"), Overlay.of(str(mine), "./recipe/dapo/")]
    staged = snapshot(shared_root, base, None, overlays)
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
    assert snapshot(shared_root, base, None, overlays).status == Status.EXISTS


def test_a_changed_overlay_is_another_snapshot(shared_root: Path, snapshots: Path, tree: Path, mine: Path) -> None:
    base = source_of(str(tree), snapshots)

    def again(to: str = "my_package", code_id: str | None = None) -> str:
        return snapshot(shared_root, base, code_id, [Overlay.of(str(mine), to)]).name

    names = [snapshot(shared_root, base).name, again(), again("elsewhere")]
    again(code_id="mine")
    (mine / "main.py").write_text("changed = True\n")
    names.append(again())
    assert len(set(names)) == 4
    with pytest.raises(StagingError, match=r"mine: contains .*which differs from the present content of"):
        again(code_id="mine")


def test_an_overlay_is_staged_as_it_was_read(shared_root: Path, snapshots: Path, tree: Path, mine: Path) -> None:
    before = (mine / "main.py").read_text()
    overlay = Overlay.of(str(mine), "my_package")
    (mine / "main.py").write_text("changed = True\n")
    staged = snapshot(shared_root, source_of(str(tree), snapshots), None, [overlay])
    assert Path(staged.path, "my_package", "main.py").read_text() == before


@pytest.mark.parametrize(
    "to",
    [
        *("", ".", "/", "/verl", "..", "../mine", "verl/../../mine"),
        *("manifest.json", "./manifest.json", "mvp_marker.py/", "manifest.json/mine", "uncommitted.patch"),
    ],
)
def test_an_overlay_stays_below_the_snapshot_and_beside_what_is_its_own(mine: Path, to: str) -> None:
    with pytest.raises(StagingError, match=r'overlay ".*/mine": cannot be put at ".*"\. Give a relative path'):
        Overlay.of(str(mine), to)


def test_an_overlay_is_a_directory_with_files(mine: Path) -> None:
    for path in (mine / "nowhere", mine / "main.py"):
        with pytest.raises(StagingError, match=r"is not a directory on this machine\. Correct its path"):
            Overlay.of(str(path), "my_package")
    (mine / "link").symlink_to(mine / "deep")
    with pytest.raises(StagingError, match="link: is a link to a directory"):
        Overlay.of(str(mine), "my_package")


def test_a_snapshot_with_an_overlay_is_a_further_snapshot(
    shared_root: Path, snapshots: Path, repository: Path, mine: Path
) -> None:
    # What its commit does not have is said of the further one as well.
    put(repository, {"verl/__init__.py": "not_committed = True\n"})
    base = snapshot(shared_root, source_of(str(repository), snapshots), "Base")
    source = source_of("Base", snapshots)
    assert isinstance(source, SnapshotSource)
    further = snapshot(shared_root, source, None, [Overlay.of(str(mine), "recipe/mine")])
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
    last = snapshot(shared_root, source_of(further.name, snapshots), "last", [Overlay.of(str(mine), "recipe/more")])
    assert {"recipe/mine/main.py", "recipe/more/main.py"} <= set(files(Path(last.path)))


def test_a_snapshot_alone_is_there_already(shared_root: Path, snapshots: Path, tree: Path) -> None:
    snapshot(shared_root, source_of(str(tree), snapshots), "base")
    with pytest.raises(StagingError, match=r'source "base": is a snapshot already\. Add overlays'):
        snapshot(shared_root, source_of("base", snapshots), "other")


def test_a_snapshot_that_was_changed_by_hand_is_no_source(
    shared_root: Path, snapshots: Path, tree: Path, mine: Path
) -> None:
    base = snapshot(shared_root, source_of(str(tree), snapshots), "base")
    edit(Path(base.path, "examples", "run.sh"), "ran\n")
    with pytest.raises(StagingError, match=r"base: no longer fits its manifest"):
        snapshot(shared_root, source_of("base", snapshots), "other", [Overlay.of(str(mine), "my_package")])
    assert [path.name for path in snapshots.iterdir()] == ["base"]


# --- Files that several have -----------------------------------------------------------------------------------------


def test_unchanged_files_are_not_stored_twice(shared_root: Path, snapshots: Path, tree: Path, mine: Path) -> None:
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    (tree / "recipe" / "dapo" / "main.py").write_text("changed = True\n")
    second = snapshot(shared_root, source_of(str(tree), snapshots), "second")
    third = snapshot(shared_root, source_of("second", snapshots), "third", [Overlay.of(str(mine), "examples")])
    for name in TAKEN:
        shared = name != "recipe/dapo/main.py"
        assert (inode(first.path, name) == inode(second.path, name)) == shared
        assert inode(second.path, name) == inode(third.path, name)
    assert inode(first.path, "mvp_marker.py") != inode(second.path, "mvp_marker.py")
    for staged in (first, second, third):
        assert problems(Path(staged.path)) == {}
        assert problems(Path(staged.path), full=True) == {}
    # Whoever is removed takes nothing from the others.
    for name in ("first", "second"):
        remove("snapshot", name, snapshots / name, list)
    assert problems(Path(third.path), full=True) == {}


def test_an_overlay_does_not_reach_through_to_a_neighbour(
    shared_root: Path, snapshots: Path, tree: Path, tmp_path: Path
) -> None:
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    mine = put(tmp_path / "mine", {"run.sh": "mine\n"})
    second = snapshot(shared_root, source_of("first", snapshots), "second", [Overlay.of(str(mine), "examples")])
    assert Path(second.path, "examples", "run.sh").read_text() == "mine\n"
    assert Path(first.path, "examples", "run.sh").read_text() == "run\n"
    for staged in (first, second):
        assert problems(Path(staged.path), full=True) == {}


def test_a_neighbours_file_that_was_changed_by_hand_does_not_spread(
    shared_root: Path, snapshots: Path, tree: Path
) -> None:
    first = snapshot(shared_root, source_of(str(tree), snapshots), "first")
    edit(Path(first.path, "examples", "run.sh"), "ran\n")
    second = snapshot(shared_root, source_of(str(tree), snapshots), "second")
    assert inode(first.path, "examples", "run.sh") != inode(second.path, "examples", "run.sh")
    assert inode(first.path, "recipe", "dapo", "main.py") == inode(second.path, "recipe", "dapo", "main.py")
    assert Path(second.path, "examples", "run.sh").read_text() == "run\n"
    assert problems(Path(second.path), full=True) == {}


def test_a_broken_neighbour_is_no_obstacle(shared_root: Path, snapshots: Path, tree: Path) -> None:
    put(snapshots, {"broken/manifest.json": "{", "foreign/verl/__init__.py": "", ".hidden/manifest.json": "{}"})
    assert snapshot(shared_root, source_of(str(tree), snapshots)).status == Status.STAGED


def test_a_repair_puts_back_what_was_changed_and_leaves_neighbours_alone(
    shared_root: Path, snapshots: Path, tree: Path
) -> None:
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


def test_a_repair_does_not_take_the_broken_file_for_a_good_one(shared_root: Path, snapshots: Path, tree: Path) -> None:
    """One that looks unchanged is just what a further snapshot would link to."""
    target = Path(snapshot(shared_root, source_of(str(tree), snapshots), "mine").path)
    file = target / "examples" / "run.sh"
    stat = file.stat()
    edit(file, "ran\n")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    source = source_of(str(tree), snapshots)
    assert snapshot(shared_root, source, "mine").status == Status.EXISTS
    assert snapshot(shared_root, source, "mine", full=True, repair=True).status == Status.REPAIRED
    assert file.read_text() == "run\n"
    assert snapshot(shared_root, source, "mine", full=True).status == Status.EXISTS


# --- The module ------------------------------------------------------------------------------------------------------


def run_module(**arguments: object) -> dict[str, Any]:
    """The module itself, as a process: arguments in, JSON out."""
    done = subprocess.run(
        [sys.executable, "-m", "ansible_collections.argus.verl.plugins.modules.code_snapshot"],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_module_reports_in_ansibles_way(shared_root: Path, snapshots: Path, tree: Path, mine: Path) -> None:
    answer = run_module(
        shared_root=str(shared_root),
        source=str(tree),
        code_id="mine",
        overlays=[{"path": str(mine), "to": "my_package"}],
        git_token=TOKEN,
        _ansible_diff=True,
    )
    assert TOKEN not in json.dumps(answer)
    expected = {
        "changed": True,
        "code_id": "mine",
        "path": str(snapshots / "mine"),
        "status": "staged",
        "notes": [],
        "verl_version": "0.10.0.dev0",
        "diff": {"before": "", "after": f"snapshot {snapshots}/mine\n"},
    }
    assert {name: answer[name] for name in expected} == expected
    refused = run_module(shared_root=str(shared_root), source=str(tree), code_id="mine")
    assert refused["failed"]
    assert "mine: contains" in refused["msg"]
    assert refused["finding"]["where"] == str(snapshots / "mine")


def test_the_module_removes_a_snapshot_that_no_job_uses_any_more(
    shared_root: Path, snapshots: Path, tree: Path
) -> None:
    snapshot(shared_root, source_of(str(tree), snapshots), "mine")
    job = put(shared_root / "jobs" / "grpo-1", {"config/job_spec.json": '{"code_path": "mine"}'})
    absent = {"shared_root": str(shared_root), "code_id": "mine", "state": "absent"}

    put(job, {"status.json": '{"state": "RUNNING"}'})
    for check in (False, True):
        refused = run_module(**absent, _ansible_check_mode=check)
        assert refused["failed"]
        assert "mine: is used by grpo-1. Wait until these jobs have ended" in refused["msg"]
    assert (snapshots / "mine" / "verl" / "__init__.py").exists()

    put(job, {"status.json": '{"state": "SUCCEEDED"}'})
    would = run_module(**absent, _ansible_check_mode=True)
    assert (would["changed"], would["status"]) == (True, "removed")
    assert (snapshots / "mine" / "verl" / "__init__.py").exists()
    removed = run_module(**absent)
    assert (removed["changed"], removed["status"]) == (True, "removed")
    assert list(snapshots.iterdir()) == []
    again = run_module(**absent)
    assert (again["changed"], again["status"]) == (False, "absent")
