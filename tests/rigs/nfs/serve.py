#!/usr/bin/env python3
"""Run the commands that come as lines of JSON from a serial line, and answer with lines of JSON."""

import json
import os
import subprocess
import sys
import tty
from pathlib import Path

MARK = "@answer "


def main(device: str) -> None:
    line = os.open(device, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)

    def say(answer: object) -> None:
        with os.fdopen(os.dup(line), "w") as output:
            print(MARK + json.dumps(answer), file=output, end="\n")

    say({"rc": 0, "stdout": "", "stderr": Path("/run/boot.log").read_text()})
    with os.fdopen(os.dup(line), "r") as commands:
        for text in commands:
            request = json.loads(text)
            user = {"user": request["uid"], "group": request["uid"], "extra_groups": []}
            env = {**os.environ, **request["env"]}
            done = subprocess.run(request["argv"], env=env, **user, text=True, capture_output=True, check=False)
            say({"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr})


if __name__ == "__main__":
    main(sys.argv[1])
