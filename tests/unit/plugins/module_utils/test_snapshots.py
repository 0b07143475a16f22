from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.snapshots import (
    DirectorySource,
    PyPISource,
    content_sha256,
    directory_requirements,
    snapshot,
    source_of,
)
from ansible_collections.argus.verl.plugins.module_utils.staging import EXISTS, STAGED, StagingError, manifest_of

SETUP = """
from setuptools import setup
install_requires = ["ray[default]>=2.41.0", "pandas"]
TEST_REQUIRES = ["pytest"]
setup(name="verl", install_requires=install_requires)
"""


@pytest.fixture
def shared_root(tmp_path: Path) -> Path:
    root = tmp_path / "shared"
    root.mkdir()
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of verl, with all that a snapshot must not take."""
    tree = tmp_path / "src"
    for name, text in {
        "verl/__init__.py": "",
        "verl/version/version": "0.10.0.dev0\n",
        "verl/trainer/config/ppo_trainer.yaml": "a: 1\n",
        "verl/__pycache__/__init__.cpython-311.pyc": "compiled",
        "verl/.git": "gitdir: ../.git/modules/verl",
        "recipe/dapo/main.py": "",
        "examples/run.sh": "",
        "verl.egg-info/PKG-INFO": "",
        "tests/test_all.py": "",
        ".git/HEAD": "",
        "setup.py": SETUP,
    }.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return tree


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


def test_a_release_becomes_a_snapshot(shared_root: Path, index: Path) -> None:
    staged = snapshot(shared_root, PyPISource("0.9.1"), None)
    target = shared_root / "common" / "code" / "verl" / "verl-0.9.1"
    assert staged.as_dict() == {"kind": "snapshot", "name": "verl-0.9.1", "path": str(target), "status": STAGED}
    assert files(target) == [
        "manifest.json",
        "mvp_marker.py",
        "verl/__init__.py",
        "verl/trainer/config/ppo_trainer.yaml",
        "verl/version/version",
    ]
    assert (target / "mvp_marker.py").read_text() == 'MARKER = "verl-0.9.1"\n'
    manifest = manifest_of(target)
    assert manifest is not None
    assert manifest["source"] == "verl==0.9.1"
    assert manifest["verl_version"] == "0.9.1"
    assert manifest["requirements"] == ["ray[default]>=2.41.0", "vllm==0.24.0; extra == 'vllm'"]
    assert list(manifest["files"]) == [name for name in files(target) if name != "manifest.json"]
    assert {path.stat().st_mode & 0o222 for path in (target, *target.rglob("*"))} == {0}


def test_a_snapshot_is_what_a_job_imports(shared_root: Path, index: Path) -> None:
    path = snapshot(shared_root, PyPISource("0.9.0"), "mine").path
    code = "import verl, mvp_marker; print(verl.__file__, verl.__version__, mvp_marker.MARKER)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{path}/verl/__init__.py 0.9.0 mine\n"


def test_an_existing_release_is_not_fetched_again(shared_root: Path, index: Path) -> None:
    snapshot(shared_root, PyPISource("0.9.1"), None)
    for wheel in index.iterdir():
        wheel.unlink()
    assert snapshot(shared_root, PyPISource("0.9.1"), None).status == EXISTS


def test_check_mode_fetches_and_writes_nothing(shared_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert snapshot(shared_root, PyPISource("0.9.1"), None, check=True).status == STAGED
    assert list(shared_root.iterdir()) == []


def test_what_pip_said_is_passed_on_with_the_way_out(shared_root: Path, index: Path) -> None:
    with pytest.raises(StagingError, match=r"(?s)verl==7\.7: pip could not .*No matching.*PIP_FIND_LINKS.*directory"):
        snapshot(shared_root, PyPISource("7.7"), None)
    assert not list(shared_root.rglob("*7.7*"))


def test_a_wheel_that_is_not_verl_leaves_nothing(shared_root: Path, index: Path) -> None:
    put_wheel(index, "0.0.1", version_file=False)
    with pytest.raises(StagingError, match="verl/version/version: is missing"):
        snapshot(shared_root, PyPISource("0.0.1"), None)
    assert not list(shared_root.rglob("*0.0.1*"))


def test_a_directory_becomes_a_snapshot_without_what_tools_left_in_it(shared_root: Path, tree: Path) -> None:
    source = source_of(str(tree))
    staged = snapshot(shared_root, source, None)
    assert staged.name == f"verl-0.10.0.dev0-{content_sha256(tree)[:8]}"
    assert files(Path(staged.path)) == [
        "examples/run.sh",
        "manifest.json",
        "mvp_marker.py",
        "recipe/dapo/main.py",
        "verl/__init__.py",
        "verl/trainer/config/ppo_trainer.yaml",
        "verl/version/version",
    ]
    manifest = manifest_of(Path(staged.path))
    assert manifest is not None
    assert manifest["source"] == str(tree)
    assert manifest["requirements"] == ["ray[default]>=2.41.0", "pandas"]


def test_a_changed_directory_is_another_snapshot(shared_root: Path, tree: Path) -> None:
    first = snapshot(shared_root, source_of(str(tree)), None)
    (tree / "tests" / "test_all.py").write_text("of no concern")
    assert snapshot(shared_root, source_of(str(tree)), None).status == EXISTS
    (tree / "verl" / "__init__.py").write_text("changed = True\n")
    second = snapshot(shared_root, source_of(str(tree)), None)
    assert second.status == STAGED
    assert second.name != first.name


@pytest.mark.parametrize("check", [False, True])
def test_one_code_id_never_stands_for_two_contents(shared_root: Path, tree: Path, index: Path, check: bool) -> None:
    snapshot(shared_root, source_of(str(tree)), "mine")
    both = rf"mine: holds {tree} \(verl 0.10.0.dev0\), .*{{}}.*choose another code_id"
    with pytest.raises(StagingError, match=both.format("verl==0.9.1")):
        snapshot(shared_root, PyPISource("0.9.1"), "mine", check=check)
    (tree / "verl" / "new.py").write_text("")
    with pytest.raises(StagingError, match=both.format(str(tree))):
        snapshot(shared_root, source_of(str(tree)), "mine", check=check)


def test_a_moved_directory_is_the_same_source(shared_root: Path, tree: Path) -> None:
    snapshot(shared_root, source_of(str(tree)), "mine")
    moved = tree.rename(tree.with_name("elsewhere"))
    assert snapshot(shared_root, source_of(str(moved)), "mine").status == EXISTS


def test_a_directory_that_changes_meanwhile_is_refused(shared_root: Path, tree: Path) -> None:
    source = source_of(str(tree))
    (tree / "verl" / "__init__.py").write_text("changed = True\n")
    with pytest.raises(StagingError, match="changed while it was copied"):
        snapshot(shared_root, source, None)
    assert not list((shared_root / "common" / "code" / "verl").iterdir())


def test_links_to_files_are_followed_and_others_are_refused(shared_root: Path, tree: Path) -> None:
    (tree / "verl" / "linked.yaml").symlink_to(tree / "setup.py")
    copied = Path(snapshot(shared_root, source_of(str(tree)), None).path, "verl", "linked.yaml")
    assert copied.read_text() == SETUP
    assert not copied.is_symlink()
    (tree / "verl" / "configs").symlink_to(tree / "examples")
    with pytest.raises(StagingError, match=r"verl/configs: is a link to a directory"):
        source_of(str(tree))


@pytest.mark.parametrize("text", ["verl==0.9.1", " verl == 0.9.1 "])
def test_a_pinned_requirement(text: str) -> None:
    assert source_of(text) == PyPISource("0.9.1")


@pytest.mark.parametrize("text", ["verl", "verl>=0.9", "verl==0.9.*", "verl[vllm]==0.9.1", "/nowhere"])
def test_what_is_not_pinned_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StagingError, match="is neither a pinned requirement nor a directory here"):
        source_of(text)


def test_a_directory_has_to_hold_verl(tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StagingError, match="has no verl/ package"):
        source_of(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert source_of("src") == DirectorySource(tree, "0.10.0.dev0", content_sha256(tree))


def test_a_local_version_makes_a_code_id_fit_for_a_path() -> None:
    assert DirectorySource(Path("/src"), "0.10.0+mine", "0123456789").code_id == "verl-0.10.0-mine-01234567"


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


def test_the_module_reports_in_ansibles_way(shared_root: Path, tree: Path) -> None:
    """The module itself, as a process: arguments in, JSON out."""
    module = "ansible_collections.argus.verl.plugins.modules.code_snapshot"
    request = (
        f'{{"ANSIBLE_MODULE_ARGS": {{"shared_root": "{shared_root}", "source": "{tree}", "_ansible_diff": true}}}}'
    )
    done = subprocess.run(
        [sys.executable, "-m", module],
        input=request,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert '"changed": true' in done.stdout
    assert '"status": "staged"' in done.stdout
    assert '"verl_version": "0.10.0.dev0"' in done.stdout
