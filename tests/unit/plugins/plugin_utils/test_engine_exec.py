"""What docker 20 to 29 and podman 4 print, as seen or as in their sources."""

from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Place, refusal

PLACE = Place("ray-head", "gpu-0", "docker")
CONTAINER = "3f" * 32


ABSENT = "there is no container ray-head on gpu-0. cluster_up.yml starts it"
STOPPED = "container ray-head is not running on gpu-0. cluster_up.yml starts it"
DENIED = (
    'ray-head: the user on gpu-0 may not use docker. Add the user to the group "docker" there, '
    "or set ansible_become: true for gpu-0"
)
SILENT = "ray-head: docker does not answer on gpu-0. Start its daemon there"


@pytest.mark.parametrize(
    ("stderr", "sentence"),
    [
        ("Error: No such container: ray-head", ABSENT),
        ("Error response from daemon: No such container: ray-head", ABSENT),
        ('Error: no container with name or ID "ray-head" found: no such container', ABSENT),
        (f"Error response from daemon: Container {CONTAINER} is not running", STOPPED),
        (f"Error response from daemon: container {CONTAINER} is not running", STOPPED),
        ("Error: can only create exec sessions on running containers: container state improper", STOPPED),
        ("OCI runtime exec failed: exec failed: cannot exec in a stopped container: unknown", STOPPED),
        (
            "Error response from daemon: Container ray-head is paused, unpause the container before exec",
            "container ray-head is paused on gpu-0. Run there: docker unpause ray-head",
        ),
        (
            f"Error response from daemon: Container {CONTAINER} is restarting, wait until the container is running",
            "container ray-head is restarting on gpu-0. Its log tells why",
        ),
        (
            "Got permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
            DENIED,
        ),
        ("permission denied while trying to connect to the docker API at unix:///var/run/docker.sock", DENIED),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", SILENT),
        ("error during connect: Cannot connect to the Docker daemon at tcp://x", SILENT),
        ("Warning: Permanently added 'x'.\nError: No such container: ray-head\n", ABSENT),
    ],
)
def test_refusals_of_engines(stderr: str, sentence: str) -> None:
    assert refusal(PLACE, 1, "", stderr) == sentence
    # Of a command that ran in the container.
    assert refusal(PLACE, 0, "", stderr) == ""
    assert refusal(PLACE, 1, '{"failed": true}', stderr) == ""


@pytest.mark.parametrize(
    "stderr",
    [
        "",
        "Traceback (most recent call last):\n  …\nRuntimeError: No such container: ray-head",
        "ls: cannot access 'is not running': No such file or directory",
        "/bin/sh: 1: python3: not found",
        "/bin/sh: 1: my-docker: not found",
    ],
)
def test_failures_of_commands_are_not_those_of_engines(stderr: str) -> None:
    assert refusal(PLACE, 127, "", stderr) == ""


@pytest.mark.parametrize(
    "stderr",
    [
        *("/bin/sh: 1: docker: not found", "bash: line 1: docker: command not found", "docker: not found"),
        "timeout: failed to run command 'docker': No such file or directory",
        "timeout: failed to run command \u2018docker\u2019: No such file or directory",
        "timeout: can't execute 'docker': No such file or directory",
    ],
)
def test_a_machine_without_an_engine(stderr: str) -> None:
    assert refusal(PLACE, 127, "", stderr) == ("ray-head: gpu-0 has no command docker, or not on the PATH of its user")
    assert refusal(PLACE, 1, "", stderr) == ""
