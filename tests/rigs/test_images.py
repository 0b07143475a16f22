"""Images of nodes on two machines with an engine each: built here, loaded, pulled from a registry, and from files.

The images are small: a shell, with a python3 that answers as one with Ray would. No node is started.
"""

from __future__ import annotations

import hashlib
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

SHARE = REPO / ".cache" / "test" / "images"
PLAYBOOK = REPO / "tests" / "rigs" / "providing.yml"
MACHINES = {"ctl": "198.18.83.10", "gpu": "198.18.83.11"}
BUILT, REGISTRY = "argus-verl-mine:1", "127.0.0.1:5000/argus/mine:1"
DOCKERFILE = """FROM argus-verl-rig-small
ARG RAY
COPY python3 /usr/bin/
RUN echo "Python 3.12.3, Ray $RAY" >/versions
COPY file /argus
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    shutil.rmtree(SHARE, ignore_errors=True)
    with machines(Rig("images", MACHINES), "198.18.83.0/24", engine=image("small"), share=SHARE) as rig:
        network = ["--network", f"container:{rig.container('ctl')}"]
        docker("run", "--detach", "--label", "argus.verl.rig=images", *network, image("registry"))
        # Engines accept a registry without TLS on a loopback only. This one's leads to that of a machine.
        tunnel = [*rig.ssh("ctl"), "-N", "-L", "127.0.0.1:5000:127.0.0.1:5000", "-o", "ExitOnForwardFailure=yes"]
        with subprocess.Popen(tunnel) as forwarding:
            yield rig
            forwarding.terminate()
        for name in (BUILT, REGISTRY):
            subprocess.run(["docker", "rmi", "--force", name], capture_output=True, check=False)


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
    extra_vars = {"cluster_images": {"cpu": name}, **variables}
    done = subprocess.run(
        ["ansible-playbook", "-i", str(inventory), str(PLAYBOOK), "-e", json.dumps(extra_vars)],
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


def test_built_once_loaded_and_built_again(rig: Rig, inventory: Path) -> None:
    first = provided(inventory, BUILT, **build())
    assert f"the image {BUILT} is missing" in first and "changed: [ctl -> localhost]" in first
    ctl, gpu = ids(rig, BUILT)
    assert ctl == gpu != ""
    assert left_files(rig) == []

    assert BUILT not in provided(inventory, BUILT, **build())
    # A machine that lacks it gets the same one.
    on(rig, "gpu", "docker", "rmi", BUILT)
    assert "Build images" not in provided(inventory, BUILT, **build())
    assert ids(rig, BUILT) == [ctl, ctl]

    # Other inputs; and an image without tokens is refused before any node starts.
    refused = provided(inventory, BUILT, check=False, **build("2.51.0"))
    assert ids(rig, BUILT)[0] == ids(rig, BUILT)[1] != ctl
    assert "it has Python 3.12.3, Ray 2.51.0, which has no tokens: use an image with Ray 2.57 or later" in refused
    assert left_files(rig) == []


def test_pushed_and_pulled_and_a_machine_that_does_not_reach_the_registry(rig: Rig, inventory: Path) -> None:
    """The registry is on the loopback of one machine: the other one cannot reach it."""
    refused = provided(inventory, REGISTRY, check=False, **build(push=True))
    assert "changed: [ctl] => (item=127.0.0.1:5000/argus/mine:1)" in refused
    assert ids(rig, REGISTRY)[0] != "" and ids(rig, REGISTRY)[1] == ""
    assert f"its machine gpu: the image {REGISTRY}: " in refused and "connection refused" in refused

    # Without the build, and without the machine.
    on(rig, "ctl", "docker", "rmi", REGISTRY)
    provided(inventory, REGISTRY, cluster_min_workers=0)
    assert ids(rig, REGISTRY)[0] != ""


def test_files_of_a_site_without_a_registry(rig: Rig, inventory: Path, tmp_path: Path) -> None:
    archive = tmp_path / "images.tar"
    # The latest build has no tokens.
    docker("tag", REGISTRY, BUILT)
    docker("save", "--output", str(archive), BUILT)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    (SHARE / "images.tar").write_bytes(archive.read_bytes())
    local, remote = {"path": str(archive)}, {"url": "file:///private/images.tar", "sha256": sha256}
    for source in (local, remote):
        remove(rig)
        provided(inventory, BUILT, cluster_image_archive=source)
        assert "" not in ids(rig, BUILT)
        assert left_files(rig) == []

    remove(rig)
    refused = provided(inventory, BUILT, check=False, cluster_image_archive={**remote, "sha256": "0" * 64})
    assert refused.count(f"the image {BUILT}: The checksum for ") == 2
    assert ids(rig, BUILT) == ["", ""] and left_files(rig) == []

    # Without a file, the engine of the controller has it.
    provided(inventory, BUILT)
    assert "" not in ids(rig, BUILT) and left_files(rig) == []


def remove(rig: Rig) -> None:
    for machine in MACHINES:
        on(rig, machine, "sh", "-c", f"docker rmi --force {BUILT} {REGISTRY} 2>/dev/null || true")


def left_files(rig: Rig) -> list[str]:
    """What is left of files with images, on machines and here."""
    names = " ".join(on(rig, machine, "ls", "/var/tmp") for machine in MACHINES).split()
    return [*names, *(path.name for path in Path("/var/tmp").glob("argus-verl-images-*"))]
