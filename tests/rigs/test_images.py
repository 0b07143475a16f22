"""Images of nodes on two machines with an engine each: built once, copied, pulled from a registry, and from an archive.

The images are small: Debian, with a python3 that answers as one with Ray would. No node is started.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rigs.image import image
from rigs.machines import Rig, docker, machines
from system import ENVIRONMENT, REPO, said

PLAYBOOK = REPO / "tests" / "rigs" / "providing.yml"
BASE = "argus-verl-base:bookworm"
MACHINES = {"ctl": "198.18.83.10", "gpu": "198.18.83.11"}
BUILT, REGISTRY = "argus-verl-mine:1", "127.0.0.1:5000/argus/mine:1"
DOCKERFILE = f"""FROM {BASE}
ARG RAY
COPY python3 /usr/bin/
RUN echo "{{\\"python\\": \\"3.12.3\\", \\"ray\\": \\"$RAY\\"}}" >/versions
COPY file /argus
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    if subprocess.run(["docker", "image", "inspect", BASE], capture_output=True, check=False).returncode:
        pytest.skip(f"{BASE} is not here: this machine uses Debian's image from its registry")
    share = REPO / ".cache" / "test" / "images"
    shutil.rmtree(share, ignore_errors=True)
    with machines(Rig("images", MACHINES), "198.18.83.0/24", engine=BASE, share=share) as rig:
        network = ["--network", f"container:{rig.container('ctl')}"]
        docker("run", "--detach", "--label", "argus.verl.rig=images", *network, image("registry"))
        yield rig


@pytest.fixture(scope="module")
def inventory(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes = {name: {"ansible_host": address} for name, address in MACHINES.items()}
    groups = {
        "ray": {
            "children": {
                "head": {"hosts": {"ctl": nodes["ctl"]}},
                "workers": {"hosts": {"gpu": nodes["gpu"]}},
            },
        },
    }
    ssh = {
        "ansible_user": "ml",
        "ansible_port": 2222,
        "ansible_ssh_private_key_file": str(rig.key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={rig.directory}/known_hosts",
    }
    variables = {"cluster_name": "images", "cluster_network": "host", "ray_node_accelerator": "cpu", **ssh}
    directory = tmp_path_factory.mktemp("inventory")
    context = directory / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(DOCKERFILE)
    (context / "file").write_text("1")
    (context / "python3").write_text("#!/bin/sh\ncat /versions\n")
    (context / "python3").chmod(0o755)
    hosts = directory / "hosts.json"
    hosts.write_text(json.dumps({"all": {"children": groups, "vars": variables}}))
    return hosts


def provided(inventory: Path, name: str, check: bool = True, **variables: Any) -> str:
    """Run the playbook for an image of this name, and return what it said."""
    given = {"cluster_images": {"cpu": name}, **variables}
    done = subprocess.run(
        ["ansible-playbook", "-i", str(inventory), str(PLAYBOOK), "-e", json.dumps(given)],
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode == 0) is check, done.stdout + done.stderr
    return said(done.stdout)


def build(ray: str = "2.60.0", **more: Any) -> dict[str, Any]:
    return {"cluster_image_builds": {"cpu": {"context": "context", "args": {"RAY": ray}, **more}}}


def on(rig: Rig, machine: str, *command: str) -> str:
    return docker("exec", "--user", "ml", rig.container(machine), *command)


def ids(rig: Rig, name: str) -> list[str]:
    """The id of the image on each machine; "" on one that lacks it."""
    return [on(rig, machine, "docker", "images", "--quiet", "--no-trunc", name) for machine in MACHINES]


def test_built_once_copied_and_built_again(rig: Rig, inventory: Path) -> None:
    first = provided(inventory, BUILT, **build())
    assert f"{BUILT}: building, on ctl" in first and f"{BUILT}: saved on ctl: " in first
    assert f"{BUILT}: loaded on gpu, machine 1 of 1: " in first
    ctl, gpu = ids(rig, BUILT)
    assert ctl == gpu != ""
    # The file on the shared root is gone.
    assert on(rig, "ctl", "ls", "/private") == ""

    assert BUILT not in provided(inventory, BUILT, **build())

    # Other inputs; and an image without tokens is refused before any node starts.
    refused = provided(inventory, BUILT, check=False, **build("2.51.0"))
    assert f"{BUILT}: loaded on gpu" in refused
    assert ids(rig, BUILT)[0] == ids(rig, BUILT)[1] != ctl
    assert "it has Ray 2.51.0, which has no tokens: use an image with Ray 2.52 or later" in refused


def test_pushed_pulled_and_copied_where_the_registry_is_out_of_reach(rig: Rig, inventory: Path) -> None:
    """The registry is on the loopback of one machine: the other one cannot reach it."""
    said = provided(inventory, REGISTRY, **build(push=True))
    assert f"{REGISTRY}: building, on ctl" in said and f"{REGISTRY}: loaded on gpu" in said
    before = ids(rig, REGISTRY)
    assert before[0] == before[1] != ""

    for machine in MACHINES:
        on(rig, machine, "docker", "rmi", REGISTRY)
    # Without the build: a registry has it, and nobody else.
    said = provided(inventory, REGISTRY)
    assert "building" not in said and f"{REGISTRY}: loaded on gpu" in said
    assert ids(rig, REGISTRY) == before


def test_archive_of_a_site_without_a_registry(rig: Rig, inventory: Path) -> None:
    on(rig, "ctl", "docker", "tag", REGISTRY, BUILT)
    save = f"docker save {BUILT} | tee /private/images.tar | sha256sum"
    sha256 = on(rig, "ctl", "sh", "-c", save).split()[0]
    for machine in MACHINES:
        on(rig, machine, "sh", "-c", f"docker rmi --force {BUILT} {REGISTRY} 2>/dev/null || true")
    said = provided(inventory, BUILT, cluster_image_archive={"path": "/private/images.tar", "sha256": sha256})
    assert f"{BUILT}: loaded on gpu, machine 2 of 2" in said
    assert "" not in ids(rig, BUILT)
