from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import Image
from ansible_collections.argus.verl.plugins.module_utils.preflight.host import (
    RAY_WITH_ROCKSDB,
    RAY_WITH_TOKENS,
    image_findings,
    is_at_least,
    missing_images,
)
from samples import machine

REPO = Path(__file__).resolve().parents[5]
BUILT, PULLED = "argus-verl-cpu:0.1.0", "verlai/verl:vllm024.latest"


def test_images_that_machines_lack() -> None:
    docker = machine(images={BUILT: Image("sha256:1", {}), PULLED: None})
    podman = replace(docker, engine=replace(docker.engine, name="podman"))
    # Only missing images that nodes need count.
    assert missing_images({"a": BUILT}, {"a": docker}) == {}
    assert missing_images({"a": PULLED}, {"a": podman}) == {"a": (PULLED, "podman")}
    # One that was not probed, and one whose engine did not say.
    assert missing_images({"a": BUILT, "b": BUILT}, {"b": machine(images={})}) == {}


@pytest.mark.parametrize(
    ("image", "sources", "remedy"),
    [
        (BUILT, {"builds": [BUILT], "is_archived": True}, "builds it"),
        (PULLED, {"builds": [BUILT], "is_archived": True}, "loads it"),
        # A saved image has no digests: the name would not be found after loading it.
        (f"{PULLED}@sha256:1", {"is_archived": True}, "pulls it"),
        (PULLED, {}, "pulls it"),
        (BUILT, {"on_controller": [BUILT]}, "copies it"),
    ],
)
def test_images_that_cluster_up_provides(image: str, sources: dict[str, Any], remedy: str) -> None:
    (finding,) = image_findings({"a": (image, "docker")}, **sources)
    assert (finding.where, finding.severity) == ("a", WARNING) and f"cluster_up {remedy}" in finding.remedy
    # No registry has it; the command that brings it is that of the engine, and quoted.
    (finding,) = image_findings({"a": (BUILT, "docker")})
    assert (finding.where, finding.key, finding.severity) == ("a", "machine.image", ERROR)
    (finding,) = image_findings({"a": ("x;reboot", "podman")})
    assert "podman save 'x;reboot' | ssh a podman load" in finding.remedy


def test_releases_of_ray_with_tokens() -> None:
    assert [is_at_least(ray, RAY_WITH_TOKENS) for ray in ("2.51.2", "1.99.0", "2.9.3")] == [False] * 3
    assert [is_at_least(ray, RAY_WITH_TOKENS) for ray in ("2.52.0", "2.60.0", "3.0.0.dev0", "unknown")] == [True] * 4
    role = yaml.safe_load((REPO / "roles" / "ray_image" / "vars" / "main.yml").read_text())
    assert role["__ray_image_with_tokens"] == "{}.{}".format(*RAY_WITH_TOKENS)
    assert "{}.{}".format(*RAY_WITH_ROCKSDB) in role["__ray_image_oldest_ray"]
