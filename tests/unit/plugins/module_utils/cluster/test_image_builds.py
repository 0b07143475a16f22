from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.image_builds import (
    BuildError,
    Ignored,
    ImageBuild,
    build_findings,
    entries,
    inputs_hash,
    write_context,
)

PUSHES = "cluster_image_builds.cpu pushes mine:1, which names no registry"
IMAGES = {"cpu": "mine:1", "cuda": "registry.example.org/mine:1"}


@pytest.fixture
def context(tmp_path: Path) -> Path:
    root = tmp_path / "context"
    (root / "src" / "empty").mkdir(parents=True)
    (root / "Dockerfile").write_text("FROM scratch\n")
    (root / "src" / "a.py").write_text("a")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "link").symlink_to("src/a.py")
    return root


def build(context: Path, **changes: Any) -> ImageBuild:
    return ImageBuild(**{"context": str(context), **changes})


def names(context: Path) -> list[str]:
    return [entry.name for entry in entries(build(context))]


def test_hash_is_that_of_names_contents_kinds_and_arguments(context: Path) -> None:
    before = inputs_hash(build(context))
    assert before == inputs_hash(build(context)) and len(before) == 32
    seen = {before, inputs_hash(build(context, args={"A": "1"})), inputs_hash(build(context, args={"A": "2"}))}
    (context / "other").write_text("FROM scratch\n")
    seen.add(inputs_hash(build(context)))
    seen.add(inputs_hash(build(context, dockerfile="other")))
    (context / "other").rename(context / "another")
    seen.add(inputs_hash(build(context)))
    (context / "src" / "a.py").write_text("b")
    seen.add(inputs_hash(build(context)))
    (context / "link").unlink()
    (context / "link").symlink_to("run.sh")
    seen.add(inputs_hash(build(context)))
    (context / "run.sh").chmod(0o755)
    seen.add(inputs_hash(build(context)))
    (context / "src" / "empty").rmdir()
    seen.add(inputs_hash(build(context)))
    assert len(seen) == 10


def test_umask_and_time_are_no_inputs(context: Path) -> None:
    before = inputs_hash(build(context))
    (context / "src" / "a.py").chmod(0o600)
    (context / "src").chmod(0o700)
    os.utime(context / "run.sh", (1, 1))
    assert inputs_hash(build(context)) == before
    # Pushing an image does not make it another one.
    assert inputs_hash(build(context, push=True)) == before


def test_context_has_the_same_bytes_wherever_it_is(context: Path, tmp_path: Path) -> None:
    (context / "run.sh").chmod(0o700)
    first, second = io.BytesIO(), io.BytesIO()
    write_context(build(context), first)
    context = context.rename(tmp_path / "moved")
    os.utime(context / "run.sh", (1, 1))
    write_context(build(context), second)
    assert first.getvalue() == second.getvalue()
    with tarfile.open(fileobj=io.BytesIO(first.getvalue())) as tar:
        there = {member.name: member for member in tar.getmembers()}
        assert list(there) == ["Dockerfile", "link", "run.sh", "src", "src/a.py", "src/empty"]
        assert (there["run.sh"].mode, there["src"].mode, there["Dockerfile"].mode) == (0o755, 0o755, 0o644)
        # A link is not followed: it may lead out of the context.
        assert (there["link"].issym(), there["link"].linkname) == (True, "src/a.py")
        assert {(member.uid, member.gid) for member in there.values()} == {(0, 0)}
        file = tar.extractfile("src/a.py")
        assert file and file.read() == b"a"


@pytest.mark.parametrize(
    ("patterns", "ignored", "kept"),
    [
        ("*.pyc", ["a.pyc"], ["src/a.pyc", "a.py"]),
        ("**/*.pyc", ["a.pyc", "src/deep/a.pyc"], ["a.py"]),
        ("src", ["src", "src/a.py", "src/deep/b"], ["srcs", "other/src"]),
        ("/src/", ["src", "src/a.py"], ["other/src"]),
        ("./src/../lib", ["lib/x"], ["src/x"]),
        ("src/**", ["src/a.py", "src/deep/b"], ["src"]),
        ("src/*/b", ["src/deep/b"], ["src/b", "src/deep/er/b"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("[ab].py", ["a.py", "b.py"], ["c.py"]),
        ("a.c", ["a.c"], ["abc"]),
        ("*\n!keep\nkeep.me", ["x", "keep.me"], ["keep", "keep/inside"]),
        ("src\n!src/a.py", ["src/b.py"], ["src/a.py"]),
        ("!src\nsrc", ["src"], []),
        ("# x\n\n  \n#src", [], ["src", "# x"]),
        ("\\!x", ["!x"], ["x"]),
    ],
)
def test_patterns_of_dockerignore(patterns: str, ignored: list[str], kept: list[str]) -> None:
    found = Ignored.of(patterns)
    assert [name for name in [*ignored, *kept] if found.has(name)] == ignored


def test_ignored_files_are_no_inputs(context: Path) -> None:
    (context / ".dockerignore").write_text("src\n!src/a.py\nDockerfile\n")
    # The engine reads the Dockerfile and its list of ignored files, whatever the list says.
    assert names(context) == [".dockerignore", "Dockerfile", "link", "run.sh", "src/a.py"]
    # With BuildKit, a Dockerfile may have a list of its own.
    (context / "Dockerfile.dockerignore").write_text("*\n")
    assert names(context) == [".dockerignore", "Dockerfile"]


def test_a_directory_that_is_left_out_is_not_read(context: Path) -> None:
    (context / ".dockerignore").write_text("src\n")
    os.mkfifo(context / "src" / "pipe")
    assert names(context) == [".dockerignore", "Dockerfile", "link", "run.sh"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: os.mkfifo(root / "pipe"), "pipe is no file, directory or link"),
        (lambda root: (root / "Dockerfile").unlink(), "Dockerfile does not exist"),
        (lambda root: (root / "a\nb").touch(), "a name that cannot be printed"),
        (lambda root: root.rename(root.parent / "gone"), "is not a directory on this controller"),
        (lambda root: (root / ".dockerignore").write_bytes(b"\xff"), "cannot be read"),
    ],
)
def test_contexts_that_cannot_be_used(context: Path, change: Any, message: str) -> None:
    change(context)
    with pytest.raises(BuildError, match=message):
        inputs_hash(build(context))


def test_build_of_the_inventory(tmp_path: Path) -> None:
    assert ImageBuild.of({"context": "images/mine", "args": {"N": 1}}, "/inventory") == ImageBuild(
        "/inventory/images/mine", "Dockerfile", {"N": "1"}
    )
    assert ImageBuild.of({"context": "/x", "dockerfile": "d", "push": True}, "/y") == ImageBuild("/x", "d", {}, True)


def findings(tmp_path: Path, **variables: Any) -> list[str]:
    hostvars = {host: {"inventory_dir": str(tmp_path), **variables} for host in ("a", "b")}
    return [f"{found.where} {found.what}" for found in build_findings(["a", "b"], hostvars, IMAGES)]


def test_variables_that_are_fine(context: Path, tmp_path: Path) -> None:
    archive = {"path": "/mnt/images.tar", "sha256": "0" * 64}
    assert findings(tmp_path) == []
    assert findings(tmp_path, cluster_image_builds={"cpu": {"context": "context"}}, cluster_image_archive=archive) == []
    builds = {"cuda": {"context": str(context), "push": True, "args": {"BASE": "x"}, "dockerfile": "run.sh"}}
    assert findings(tmp_path, cluster_image_builds=builds) == []


@pytest.mark.parametrize(
    ("builds", "wrong"),
    [
        ([{"context": "context"}], "cluster_image_builds is [{'context': 'context'}]"),
        ({"rocm": {"context": "context"}}, "cluster_image_builds.rocm is no kind of cluster_images"),
        ({"cpu": {"args": {}}}, "cluster_image_builds.cpu has no context"),
        ({"cpu": "context"}, "cluster_image_builds.cpu has no context"),
        ({"cpu": {"context": "context", "tag": "x"}}, "cluster_image_builds.cpu has the unknown key tag"),
        ({"cpu": {"context": "context", "args": ["A=1"]}}, "cluster_image_builds.cpu has args ['A=1']"),
        (
            {"cpu": {"context": "context", "push": True}},
            "cluster_image_builds.cpu pushes mine:1, which names no registry",
        ),
        ({"cpu": {"context": "gone"}}, "cluster_image_builds.cpu {root}/gone does not exist on this controller"),
        (
            {"cpu": {"context": "context", "dockerfile": "gone"}},
            "cluster_image_builds.cpu {root}/context/gone does not exist on this controller",
        ),
    ],
)
def test_builds_that_are_wrong(context: Path, tmp_path: Path, builds: Any, wrong: str) -> None:
    assert findings(tmp_path, cluster_image_builds=builds) == [wrong.replace("{root}", str(tmp_path))]


def test_missing_context_does_not_keep_anyone_from_removing_the_cluster(context: Path, tmp_path: Path) -> None:
    def severity(where: str) -> str:
        hostvars = {"a": {"cluster_image_builds": {"cpu": {"context": where}}, "inventory_dir": str(tmp_path)}}
        return build_findings(["a"], hostvars, {})[-1].severity

    assert severity("gone") == "warning"
    # Also without an image of that kind, which is an error.
    assert severity("context") == "error"


def test_image_with_a_digest_is_not_built(context: Path, tmp_path: Path) -> None:
    images = {"cpu": "mine@sha256:1"}
    (found,) = findings(tmp_path, cluster_images=images, cluster_image_builds={"cpu": {"context": "context"}})
    assert found == "cluster_image_builds.cpu builds mine@sha256:1, which names a digest"


@pytest.mark.parametrize(
    "archive",
    [
        "/mnt/images.tar",
        {"path": "/mnt/images.tar"},
        {"path": "images.tar", "sha256": "0" * 64},
        {"path": "/mnt/images.tar", "sha256": "0" * 63},
        {"path": "/mnt/images.tar", "sha256": "A" * 64},
        {"path": "/mnt/images.tar", "sha256": "0" * 64, "image": "x"},
    ],
)
def test_archives_that_are_wrong(tmp_path: Path, archive: Any) -> None:
    (found,) = findings(tmp_path, cluster_image_archive=archive)
    assert found.startswith("cluster_image_archive ")
