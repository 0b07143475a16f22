#!/usr/bin/env python3
"""Machines of a cluster: containers with sshd, and with `--engine` an engine of their own, in one network.

    machines.py [--subnet SUBNET] [--engine IMAGE] [--share DIRECTORY] up RIG NAME=ADDRESS...
    machines.py down RIG

The files of a rig, the key of its user and known_hosts, are in .cache/rigs/RIG.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests"))

from rigs.image import image

PORT = 2222
USER = "ml"
UID = 1000
LABEL = "argus.verl.rig"
# What an engine needs of the kernel. Engines that are containers themselves may lack SYS_RESOURCE, and do not need it.
# fmt: off
CAPABILITIES = [
    "AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH",
    "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE", "MKNOD", "NET_ADMIN",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_ADMIN",
    "SYS_BOOT", "SYS_CHROOT", "SYS_NICE", "SYS_PTRACE", "SYS_TIME", "SYS_TTY_CONFIG", "SYSLOG",
]
# fmt: on
START_SECONDS = 300


def docker(*arguments: str, **options: object) -> str:
    """The output of a command of the engine, which has to succeed."""
    done = subprocess.run(["docker", *arguments], text=True, stdout=subprocess.PIPE, check=True, **options)  # type: ignore[call-overload]
    return str(done.stdout).strip()


def answers(address: str) -> bool:
    """Whether an SSH server answers at the address."""
    try:
        with socket.create_connection((address, PORT), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


@dataclass(frozen=True)
class Rig:
    """Machines by name, each with its address."""

    name: str
    machines: Mapping[str, str]

    @property
    def directory(self) -> Path:
        return REPO / ".cache" / "rigs" / self.name

    @property
    def key(self) -> Path:
        return self.directory / "key"

    def container(self, machine: str) -> str:
        return f"{self.name}-{machine}"

    def ssh(self, machine: str) -> list[str]:
        """The command line of a plain SSH client."""
        option = f"UserKnownHostsFile={self.directory / 'known_hosts'}"
        return ["ssh", "-i", str(self.key), "-p", str(PORT), "-o", option, f"{USER}@{self.machines[machine]}"]

    def up(self, subnet: str, engine: str = "", share: Path | None = None, options: Iterable[str] = ()) -> None:
        """Start the machines. With an engine, each has this image; all have the shared directory as /private."""
        self.down()
        tag = image("machine")
        self._write_keys()
        docker("network", "create", "--label", f"{LABEL}={self.name}", "--subnet", subnet, self.name)
        stores = self._stores(tag, engine) if engine else {}
        run = ["run", "--detach", "--init", "--network", self.name, "--label", f"{LABEL}={self.name}", *options]
        run += ["--volume", f"{self.directory}:/rig:ro"]
        if share:
            share.mkdir(parents=True, exist_ok=True)
            shutil.chown(share, UID, UID)
            run += ["--volume", f"{share}:/private"]
        if engine:
            run += [*_rights(), "--tmpfs", "/run"]
        for machine, address in self.machines.items():
            which = ["--name", self.container(machine), "--hostname", machine, "--ip", address]
            roots = [f"/graph/{machine}"] if engine else []
            docker(*run, *which, *stores.get(machine, []), tag, *roots)
        self._wait(bool(engine))

    def _write_keys(self) -> None:
        self.directory.mkdir(parents=True)
        for name in ("key", "host_key"):
            file = ["-C", self.name, "-f", str(self.directory / name)]
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", *file], check=True)
        public = (self.directory / "host_key.pub").read_text()
        lines = (f"[{address}]:{PORT} {public}" for address in self.machines.values())
        (self.directory / "known_hosts").write_text("".join(lines))

    def _stores(self, tag: str, engine: str) -> dict[str, list[str]]:
        """Make a store with the image for each machine, and return the mounts that each machine needs.

        The layers of this machine's engine are mounted read-only where they are directories, which takes a second.
        Other stores, as that of containerd, get the image from one tar.
        """
        docker("volume", "create", "--label", f"{LABEL}={self.name}", self.name)
        stores = [f"/graph/{machine}" for machine in self.machines]
        run = ["run", "--rm", "--interactive", "--network", "none", "--label", f"{LABEL}={self.name}"]
        run += ["--volume", f"{self.name}:/graph", "--tmpfs", "/run"]
        driver, root = docker("info", "--format", "{{ .Driver }} {{ .DockerRootDir }}").split()
        if driver == "overlay2":
            theirs = ["--volume", f"{root}/image/overlay2:/image:ro", "--volume", f"{root}/overlay2:/layers:ro"]
            identifier = docker("image", "inspect", "--format", "{{ .Id }}", engine)
            layers = docker(*run, *theirs, "--entrypoint", "share.py", tag, identifier, engine, *stores).split()
        else:
            layers = []
            with subprocess.Popen(["docker", "save", engine], stdout=subprocess.PIPE) as saved:
                docker(*run, *_rights(), "--entrypoint", "load.sh", tag, *stores, stdin=saved.stdout)
            if saved.returncode:
                raise subprocess.CalledProcessError(saved.returncode, saved.args)
        mounts = {}
        for machine in self.machines:
            mounts[machine] = ["--volume", f"{self.name}:/graph"]
            for layer in layers:
                files = f"overlay2/{layer}/diff"
                mounts[machine] += ["--volume", f"{root}/{files}:/graph/{machine}/{files}:ro"]
        return mounts

    def _wait(self, engine: bool) -> None:
        deadline = time.monotonic() + START_SECONDS
        for machine, address in self.machines.items():
            command = ["exec", "--user", USER, self.container(machine), "docker", "info"]
            while not answers(address) or (
                engine and subprocess.run(["docker", *command], capture_output=True, check=False).returncode
            ):
                if time.monotonic() > deadline:
                    sys.exit(f"{self.container(machine)} did not start within {START_SECONDS} s")
                time.sleep(0.1)

    def sessions(self) -> dict[str, tuple[int, int]]:
        """How many connections and sessions the SSH server of each machine has accepted since its start."""
        counted = {}
        for machine in self.machines:
            log = docker("logs", self.container(machine), stderr=subprocess.STDOUT)
            connections = len(re.findall(r"^Accepted publickey ", log, re.MULTILINE))
            counted[machine] = (connections, len(re.findall(r"^Starting session: ", log, re.MULTILINE)))
        return counted

    def down(self) -> None:
        """Remove everything with the label of the rig, and its files."""
        chosen = ["--quiet", "--filter", f"label={LABEL}={self.name}"]
        if containers := docker("ps", "--all", *chosen).split():
            docker("rm", "--force", "--volumes", *containers)
        for kind in ("network", "volume"):
            for identifier in docker(kind, "ls", *chosen).split():
                docker(kind, "rm", identifier)
        shutil.rmtree(self.directory, ignore_errors=True)


def _rights() -> list[str]:
    added = [argument for capability in CAPABILITIES for argument in ("--cap-add", capability)]
    return [*added, "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]


@contextlib.contextmanager
def machines(rig: Rig, subnet: str, **options: object) -> Iterator[Rig]:
    try:
        rig.up(subnet, **options)  # type: ignore[arg-type]
        yield rig
    finally:
        rig.down()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("rig")
    parser.add_argument("machines", nargs="*", metavar="NAME=ADDRESS")
    parser.add_argument("--subnet", default="198.18.77.0/24", help="the network of the machines (default: %(default)s)")
    parser.add_argument("--engine", default="", metavar="IMAGE", help="an engine for each machine, with this image")
    parser.add_argument("--share", type=Path, metavar="DIRECTORY", help="/private of all machines")
    args = parser.parse_args()
    rig = Rig(args.rig, dict(machine.split("=", 1) for machine in args.machines))
    if args.action == "down":
        rig.down()
    else:
        rig.up(args.subnet, args.engine, args.share)


if __name__ == "__main__":
    main()
