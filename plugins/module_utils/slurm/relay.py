# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets the main step of a Slurm job (step.py) on the same host run a command: `relay.py JOB COMMAND...`.

The command gets the input and output of this program, which ends with the command's exit code. This program is a single
file that needs only the standard library of Python 3.9, because each command of Ansible's connection contains its text.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time

SOCKET_NAME = "\0argus-verl-{uid}-{job}"
# The main step starts a moment after its job.
CONNECT_SECONDS = 30.0


def connect_to_step(job: str, seconds: float = CONNECT_SECONDS) -> socket.socket:
    deadline = time.monotonic() + seconds
    while True:
        step = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            step.connect(SOCKET_NAME.format(uid=os.geteuid(), job=job))
            break
        except OSError as error:
            step.close()
            if time.monotonic() >= deadline:
                raise SystemExit(
                    f"argus.verl: the step of job {job} does not answer here ({error.strerror})"
                ) from error
            time.sleep(0.1)
    credentials = step.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.geteuid():
        raise SystemExit(f"argus.verl: the step of job {job} is a process of another user")
    return step


def main(job: str, argv: list[str]) -> int:
    with connect_to_step(job) as step:
        request = json.dumps(argv).encode()
        sent = socket.send_fds(step, [request[:65536]], [0, 1, 2])
        step.sendall(request[sent:])
        step.shutdown(socket.SHUT_WR)
        answer = step.recv(struct.calcsize("i"))
    if not answer:
        raise SystemExit(f"argus.verl: the step of job {job} has ended")
    return int(struct.unpack("i", answer)[0])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
