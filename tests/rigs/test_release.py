"""The files of a release, without the checkout: each trains from an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
REPO = Path(__file__).resolve().parents[2]
BY_HAND = {"ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_INVENTORY", "PYTHONPATH", "VIRTUAL_ENV"}


class Release:
    """An empty directory with an environment of Python, and the files of a release."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        environment = {name: value for name, value in os.environ.items() if name not in BY_HAND}
        # Of the tests' own environment, nothing is on the path.
        path = [part for part in environment["PATH"].split(":") if not Path(part, "ansible-playbook").exists()]
        self.environment = environment | {"PATH": ":".join([str(directory / "venv/bin"), *path])}

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def file(self, pattern: str) -> str:
        [path] = (REPO / ".cache").glob(pattern)
        return str(path)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    subprocess.run(["make", "release"], cwd=REPO, check=True, capture_output=True)
    release = Release(tmp_path_factory.mktemp("release"))
    release.run(sys.executable, "-m", "venv", "venv")
    release.run("pip", "install", "--quiet", release.file("argus_verl-*.whl"))
    yield release
    release.run("ansible-playbook", "-i", "mine/hosts.yml", "argus.verl.cluster_down", "-e", "allow_disruption=true")


def submitted(output: str) -> str:
    [submission_id] = set(re.findall(r"^Job (\S+): SUCCEEDED", output, re.M))
    return submission_id


def test_the_wheel_trains(release: Release) -> None:
    release.run("argus", "init", "mine", "--kind", "dev")
    # Beside the cluster of the demo.
    for file, port in (("hosts.yml", ""), ("group_vars/all/cluster.yml", "cluster_dashboard_port: 8291\n")):
        path = release.directory / "mine" / file
        path.write_text(path.read_text().replace("mvp", "release") + port)
    release.run("argus", "-i", "mine", "up")
    release.run("argus", "-i", "mine", "stage")
    job = submitted(release.run("argus", "-i", "mine", "submit", "grpo.yaml", "--wait"))
    release.run("argus", "-i", "mine", "fetch", job)
    assert (release.directory / "artifacts" / job / "report.html").is_file()


def test_the_tarball_trains_on_the_same_cluster(release: Release) -> None:
    """With Ansible of the user, and no command argus."""
    release.run("pip", "uninstall", "--quiet", "--yes", "argus-verl")
    [settings] = re.findall(r"```ini\n(.*?)```", (REPO / "docs/install.md").read_text(), re.DOTALL)
    (release.directory / "ansible.cfg").write_text(settings)
    release.run("ansible-galaxy", "collection", "install", "--no-deps", release.file("argus-verl-*.tar.gz"))
    playbook = ("ansible-playbook", "-i", "mine/hosts.yml")
    assert "changed=0" in release.run(*playbook, "argus.verl.cluster_up")
    release.run(*playbook, "argus.verl.stage")
    job = ("-e", "jobspec=sft.yaml", "-e", "job_wait=true")
    output = release.run(*playbook, "argus.verl.submit", "argus.verl.fetch", *job)
    assert (release.directory / "artifacts" / submitted(output) / "report.html").is_file()
    release.run(*playbook, "argus.verl.cluster_down")
