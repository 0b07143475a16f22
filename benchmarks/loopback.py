"""Makes this machine a host of SSH, by an sshd of this user on the loopback, which accepts one new key."""

from __future__ import annotations

import getpass
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

PORT = 2229
# The directory that sshd needs if it runs as root (privilege separation). Debian creates it when the service starts.
PRIVSEP_DIRECTORY = Path("/run/sshd")


@contextmanager
def localhost_over_ssh() -> Iterator[Path]:
    """An inventory with which Ansible reaches localhost over SSH, to be passed after another inventory."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)], check=True)
        PRIVSEP_DIRECTORY.mkdir(mode=0o755, exist_ok=True)
        settings = [f"HostKey={directory}/host", f"AuthorizedKeysFile={directory}/user.pub", "StrictModes=no"]
        settings += [f"Port={PORT}", "ListenAddress=127.0.0.1", "PasswordAuthentication=no", "PidFile=none"]
        options = [word for setting in settings for word in ("-o", setting)]
        unknown_host = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        server = subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", "/dev/null", *options])
        try:
            while socket.socket().connect_ex(("127.0.0.1", PORT)):
                time.sleep(0.1)
            host = {
                "ansible_connection": "ssh",
                "ansible_host": "127.0.0.1",
                "ansible_port": PORT,
                "ansible_user": getpass.getuser(),
                "ansible_ssh_private_key_file": str(directory / "user"),
                "ansible_ssh_common_args": " ".join(unknown_host),
            }
            overlay = directory / "ssh.yml"
            overlay.write_text(yaml.safe_dump({"all": {"hosts": {"localhost": host}}}))
            yield overlay
        finally:
            server.terminate()
            server.wait()
