from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.plugin_utils.preflight import (
    BuildError,
    image_builds,
    inputs_hash,
    needed_images,
)
from samples import machine

IMAGES = {"cpu": "mine:1", "cuda": "registry.example.org/mine:1"}


@pytest.fixture
def context(tmp_path: Path) -> Path:
    root = tmp_path / "context"
    (root / "src").mkdir(parents=True)
    (root / "Dockerfile").write_text("FROM scratch\n")
    (root / "src" / "a.py").write_text("a")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "link").symlink_to("src/a.py")
    return root


def hashed(context: Path, dockerfile: str = "Dockerfile", *values: str) -> str:
    return inputs_hash(context, dockerfile, values)


def test_hash_is_that_of_names_contents_kinds_and_arguments(context: Path) -> None:
    before = hashed(context)
    assert before == hashed(context)
    seen = {before, hashed(context, "Dockerfile", "A=1"), hashed(context, "Dockerfile", "A=2")}
    (context / "other").write_text("FROM scratch\n")
    seen.add(hashed(context, "other"))
    for change in (
        lambda: None,
        lambda: (context / "other").rename(context / "another"),
        lambda: (context / "src" / "a.py").write_text("b"),
        lambda: ((context / "link").unlink(), (context / "link").symlink_to("run.sh")),
        lambda: (context / "run.sh").chmod(0o755),
    ):
        change()
        seen.add(hashed(context))
    assert len(seen) == 9


def test_a_checkout_of_the_same_has_the_same_hash(context: Path) -> None:
    before = hashed(context)
    (context / "src").chmod(0o700)
    (context / "src" / "a.py").chmod(0o600)
    for name in (".git", "src/__pycache__"):
        (context / name).mkdir()
        (context / name / "x").write_text("x")
    assert before == hashed(context)


def test_builds_of_the_inventory(context: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "cpu": {"context": "context", "args": {"N": 1}},
        "cuda": {"context": str(context), "dockerfile": "run.sh", "push": "true"},
    }
    result = image_builds(settings, IMAGES, str(tmp_path))
    cpu, cuda = result["mine:1"], result["registry.example.org/mine:1"]
    assert cpu["arguments"] == ["--file", f"{context}/Dockerfile", "--build-arg", "N=1", str(context)]
    assert cuda["arguments"] == ["--file", f"{context}/run.sh", str(context)]
    assert (cpu["push"], cuda["push"]) == (False, True)
    for images, builds in ((IMAGES, {"cpu": {"context": "gone"}}), ({}, settings)):
        with pytest.raises(BuildError):
            image_builds(builds, images, str(tmp_path))
    assert (cpu["inputs"], cuda["inputs"]) == (hashed(context, "Dockerfile", "N=1"), hashed(context, "run.sh"))


def test_the_machines_with_workers_decide_on_the_images_of_all() -> None:
    groups = {"head": ["head"], "workers": ["gpu-0", "gpu-1"], "ray": ["head", "gpu-0", "gpu-1"]}
    hostvars: dict[str, Any] = {node: {"ansible_host": f"10.0.0.{index}"} for index, node in enumerate(groups["ray"])}

    def needed(images: dict[str, str], **machines: Machine) -> dict[str, str]:
        return needed_images(groups["ray"], hostvars, groups, images, machines)

    assert needed(IMAGES) == needed(IMAGES, head=machine(1)) == dict.fromkeys(groups["ray"], "mine:1")
    with_gpus = {"gpu-1": machine(1)}
    assert needed(IMAGES, **with_gpus) == dict.fromkeys(groups["ray"], "registry.example.org/mine:1")
    # Without an image for the kind, the plan of the node says so.
    assert needed({"cpu": "mine:1"}, **with_gpus) == {}
    hostvars["head"]["ray_node_accelerator"] = "cpu"
    assert needed(IMAGES, **with_gpus)["head"] == "mine:1"
