"""What docker 20 to 29 and podman 4 print, as seen or as in their sources."""

from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.node_command import ContainerLocation, engine_error

LOCATION = ContainerLocation("ray-head", "gpu-0", "docker")
CONTAINER = "3f" * 32
REFUSALS = {
    "there is no container": [
        "Warning: Permanently added 'x'.\nError: No such container: ray-head\n",
        'Error: no container with name or ID "ray-head" found: no such container',
    ],
    "is not running": [
        f"Error response from daemon: Container {CONTAINER} is not running",
        "Error: can only create exec sessions on running containers: container state improper",
    ],
    "docker unpause ray-head": [
        "Error response from daemon: Container ray-head is paused, unpause the container first"
    ],
    "is restarting": [f"Error response from daemon: Container {CONTAINER} is restarting, wait until it is running"],
    "may not use docker": [
        "Got permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
    ],
    "does not answer": [
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    ],
}


@pytest.mark.parametrize("words", REFUSALS)
def test_refusals_of_engines(words: str) -> None:
    for stderr in REFUSALS[words]:
        assert words in engine_error(LOCATION, 1, "", stderr)
        # Of a command that ran in the container.
        assert engine_error(LOCATION, 0, "", stderr) == engine_error(LOCATION, 1, '{"failed": true}', stderr) == ""


@pytest.mark.parametrize(
    ("stderr", "is_missing"),
    [
        *(("/bin/sh: 1: docker: not found", True), ("bash: line 1: docker: command not found", True)),
        ("timeout: failed to run command \u2018docker\u2019: No such file or directory", True),
        ("timeout: can't execute 'docker': No such file or directory", True),
        # Of commands.
        ("Traceback (most recent call last):\n  …\nRuntimeError: No such container: ray-head", False),
        ("ls: cannot access 'is not running': No such file or directory", False),
        *(("/bin/sh: 1: python3: not found", False), ("/bin/sh: 1: my-docker: not found", False), ("", False)),
    ],
)
def test_a_machine_without_an_engine(stderr: str, is_missing: bool) -> None:
    error = engine_error(LOCATION, 127, "", stderr)
    assert ("no command docker" in error) == is_missing == bool(error)
    assert engine_error(LOCATION, 1, "", stderr) == ""
