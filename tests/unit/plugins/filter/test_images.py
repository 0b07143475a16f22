from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import Image
from ansible_collections.argus.verl.plugins.module_utils.cluster.images import INPUTS_LABEL
from ansible_collections.argus.verl.plugins.plugin_utils.filters.images import (
    image_builds,
    image_copies,
    image_loads,
    image_problems,
    image_supply,
)
from samples import HEALTHY, container, planned

IMAGE, PULLED = "argus-verl-mine:1", "registry.example.org/mine:1"
PLACED = {"ctl": ["ctl"], "gpu-0": ["gpu-0"], "gpu-1": ["gpu-1"]}
BUILDS = {IMAGE: {"context": "/x", "dockerfile": "Dockerfile", "args": {}, "push": False, "inputs": "new"}}
PUSHED = {PULLED: {**BUILDS[IMAGE], "push": True}}
NEW = Image("sha256:2", {INPUTS_LABEL: "new"})
OLD = Image("sha256:1", {INPUTS_LABEL: "old"})
FITS = '{"python": "3.12.3", "ray": "2.60.0"}'


def scene(
    images: dict[str, dict[str, Image | None]],
    image: str = IMAGE,
    kept: tuple[str, ...] = (),
    builds: dict[str, Any] | None = None,
) -> dict[str, dict[str, Any]]:
    """The variables of hosts; images are those of each machine, and image is that of all nodes."""
    hostvars: dict[str, dict[str, Any]] = {}
    for host in PLACED:
        there = images.get(host, {image: None})
        machine = replace(HEALTHY, images=there, containers={"ctl": container(image_id="sha256:head")})
        hostvars[host] = {
            "__preflight": {"machine": json.loads(json.dumps(machine.to_json()))},
            "__preflight_image_builds": builds or {},
        }
        found = there.get(image)
        missing = found is None or bool(builds and found.labels.get(INPUTS_LABEL) != "new")
        plan = planned("keep" if host in kept else "create", image=image, image_missing=missing)
        hostvars[host]["__ray_node_plan"] = plan.to_json()
    return hostvars


def supply(hostvars: dict[str, Any], archive: dict[str, str] | None = None) -> dict[str, Any]:
    return image_supply(PLACED, hostvars, "ctl", archive or {})


def loop(*items: Any, **result: Any) -> dict[str, Any]:
    return {"results": [{"item": item, **result} for item in items]}


def test_builds_of_the_inventory(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (build,) = image_builds({"cpu": {"context": tmp_path.name}}, {"cpu": IMAGE}, str(tmp_path.parent)).values()
    assert (build["context"], build["push"], len(build["inputs"])) == (str(tmp_path), False, 32)
    with pytest.raises(AnsibleFilterError, match="/gone is not a directory on this controller"):
        image_builds({"cpu": {"context": "/gone"}}, {"cpu": IMAGE}, None)
    with pytest.raises(AnsibleFilterError, match=r"run validate\.yml"):
        image_builds({"rocm": {"context": "/gone"}}, {"cpu": IMAGE}, None)


def test_healthy_cluster_needs_nothing() -> None:
    nothing = {"needs": {}, "asked": {}, "build": [], "pull": {}, "archive": {}, "machine_of_head": ""}
    assert supply(scene({}, kept=("ctl", "gpu-0", "gpu-1"))) == nothing


def test_new_cluster_builds_on_the_machine_of_the_head_and_copies() -> None:
    hostvars = scene({}, builds=BUILDS)
    found = supply(hostvars)
    assert found["needs"] == {"ctl": [IMAGE], "gpu-0": [IMAGE], "gpu-1": [IMAGE]} == found["asked"]
    assert (found["build"], found["pull"]) == ([IMAGE], {})
    for own in hostvars.values():
        own["__ray_image_built"] = loop(IMAGE, id="sha256:2")
    assert image_copies(found, hostvars) == [{"image": IMAGE, "source": "ctl", "targets": ["gpu-0", "gpu-1"]}]


def test_image_that_a_worker_has_is_copied_from_there() -> None:
    hostvars = scene({"ctl": {IMAGE: OLD}, "gpu-1": {IMAGE: NEW}}, kept=("gpu-1",), builds=BUILDS)
    found = supply(hostvars)
    assert (found["needs"], found["build"]) == ({"ctl": [IMAGE], "gpu-0": [IMAGE]}, [])
    assert image_copies(found, hostvars) == [{"image": IMAGE, "source": "gpu-1", "targets": ["ctl", "gpu-0"]}]


def test_head_that_runs_is_asked_by_the_id_of_its_image() -> None:
    hostvars = scene({"ctl": {IMAGE: NEW}, "gpu-0": {IMAGE: NEW}}, kept=("ctl", "gpu-0"))
    assert supply(hostvars)["asked"] == {"ctl": ["sha256:head"], "gpu-1": [IMAGE]}
    # Not one that is replaced.
    hostvars = scene({"ctl": {IMAGE: NEW}, "gpu-0": {IMAGE: NEW}}, kept=("gpu-0",))
    assert supply(hostvars)["asked"] == {"ctl": [IMAGE], "gpu-1": [IMAGE]}


def test_machine_that_could_not_pull_gets_a_copy() -> None:
    hostvars = scene({}, image=PULLED)
    hostvars["ctl"]["__ray_image_pulled"] = loop(PULLED, failed=True, msg="no route")
    hostvars["gpu-0"]["__ray_image_pulled"] = loop(PULLED, image={"Config": {"Labels": None}})
    hostvars["gpu-1"]["__ray_image_pulled"] = {"unreachable": True, "msg": "gone"}
    found = supply(hostvars)
    assert found["pull"] == {"ctl": [PULLED], "gpu-0": [PULLED], "gpu-1": [PULLED]}
    assert image_copies(found, hostvars) == [{"image": PULLED, "source": "gpu-0", "targets": ["ctl", "gpu-1"]}]


def test_what_a_registry_has_from_other_inputs_is_not_used() -> None:
    hostvars = scene({}, image=PULLED, builds=PUSHED)
    for host, inputs in (("gpu-0", "old"), ("gpu-1", "new")):
        hostvars[host]["__ray_image_pulled"] = loop(PULLED, labels={INPUTS_LABEL: inputs})
    for own in hostvars.values():
        own["__ray_image_built"] = loop(PULLED, id="sha256:2")
    found = supply(hostvars)
    assert (found["build"], found["pull"]) == ([PULLED], {"gpu-0": [PULLED], "gpu-1": [PULLED]})
    assert image_copies(found, hostvars) == [{"image": PULLED, "source": "ctl", "targets": ["gpu-0"]}]


def test_files_that_a_machine_loads() -> None:
    copy = {"image": IMAGE, "source": "ctl", "targets": ["gpu-0", "gpu-1"]}
    saved = loop(copy, path="/private/images/x.tar", sha256="1", id="sha256:2", bytes=5, seconds=1)
    nothing: dict[str, Any] = {"archive": {}}
    file = {"image": IMAGE, "path": "/private/images/x.tar", "sha256": "1", "id": "sha256:2", "below": True}
    assert image_loads("gpu-1", nothing, saved, {}, "/private") == [{**file, "number": 2, "count": 2}]
    assert image_loads("ctl", nothing, saved, {}, "/private") == []
    assert image_loads("gpu-1", nothing, loop(copy, failed=True, msg="no space"), {}, "/private") == []


@pytest.mark.parametrize(("path", "below"), [("/mnt/images.tar", False), ("/private/images.tar", True)])
def test_archive_of_the_inventory(path: str, below: bool) -> None:
    archive = {"path": path, "sha256": "1"}
    hostvars = scene({"ctl": {IMAGE: NEW}})
    found = supply(hostvars, archive)
    assert found["archive"] == {"gpu-0": [IMAGE], "gpu-1": [IMAGE]}
    assert image_copies(found, hostvars) == []
    assert image_loads("gpu-0", found, {"results": []}, archive, "/private") == [
        {"image": IMAGE, **archive, "id": "", "below": below, "number": 1, "count": 2}
    ]


def problems(hostvars: dict[str, Any], saved: dict[str, Any] | None = None) -> dict[str, str]:
    return image_problems(supply(hostvars), hostvars, saved or {})


def test_reasons_why_an_image_is_missing() -> None:
    copy = {"image": IMAGE, "source": "ctl", "targets": ["gpu-0", "gpu-1"]}
    hostvars = scene({"ctl": {IMAGE: NEW}})
    for host in PLACED:
        hostvars[host]["__ray_image_answered"] = loop(IMAGE, rc=0, stdout=FITS)
    what = f"the image {IMAGE} is missing"
    hostvars["gpu-0"]["__ray_image_loaded"] = loop({"image": IMAGE}, id="sha256:2")
    hostvars["gpu-1"]["__ray_image_loaded"] = loop({"image": IMAGE}, failed=True, msg="not what it should be")
    assert problems(hostvars) == {"gpu-1": f"{what}: not what it should be"}
    for host in ("gpu-0", "gpu-1"):
        hostvars[host]["__ray_image_loaded"] = {"skipped": True}
    reason = f"{what}: no space"
    assert problems(hostvars, loop(copy, failed=True, msg="no space")) == {"gpu-0": reason, "gpu-1": reason}
    hostvars["gpu-0"]["__ray_image_pulled"] = loop(IMAGE, failed=True, msg="no such host")
    hostvars["gpu-1"]["__ray_image_pulled"] = {"unreachable": True, "msg": "gone"}
    assert problems(hostvars) == {"gpu-0": f"{what}: no such host", "gpu-1": f"{what}: does not answer: gone"}
    del hostvars["gpu-0"]["__ray_image_pulled"], hostvars["gpu-1"]["__ray_image_pulled"]
    assert problems(hostvars)["gpu-0"] == f"{what}: no machine of this run has it"


def test_images_that_do_not_fit() -> None:
    hostvars = scene({host: {IMAGE: NEW} for host in PLACED})
    for host in PLACED:
        hostvars[host]["__ray_image_answered"] = loop(IMAGE, rc=0, stdout=FITS, stderr="")
    assert problems(hostvars) == {}
    hostvars["gpu-0"]["__ray_image_answered"] = loop(IMAGE, rc=0, stdout='{"python": "3.12.3", "ray": "2.61.0"}')
    hostvars["gpu-1"]["__ray_image_answered"] = loop(IMAGE, failed=False, msg="docker: not found")
    found = problems(hostvars)
    assert found["gpu-0"].startswith(f"the image {IMAGE}: it has Ray 2.61.0, and the head's image on ctl 2.60.0")
    assert found["gpu-1"] == f"the image {IMAGE}: its python3 does not run: docker: not found"
    # A machine that did not answer has a problem of its own.
    hostvars["gpu-0"]["__ray_image_answered"] = {"unreachable": True, "msg": "gone"}
    assert list(problems(hostvars)) == ["gpu-1"]
