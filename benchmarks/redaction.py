#!/usr/bin/env python3
"""Measure how fast a driver's log is redacted, in MiB/s.

Run it on an otherwise idle machine: `.venv/bin/python benchmarks/redaction.py`.
"""

from __future__ import annotations

import argparse
import random
import time

from argus.hooks.redact import Redactor

MIB = 1 << 20
CHUNK_BYTES = 1 << 16
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
chance = random.Random(1)  # noqa: S311
PLAIN = (
    "step:%d - actor/entropy:0.4213 - critic/rewards/mean:0.5 - timing_s/gen:12.3 - perf/throughput:3.1\n"
    "Training Progress:  12%%|#####     | 5/40 [00:11<00:33,  3.7s/it]\n"
)
COLOURED = "\x1b[36m(TaskRunner pid=1234)\x1b[0m " + PLAIN


def random_secret(length: int) -> str:
    return "".join(chance.choices(LETTERS, k=length))


def repeat_line(line: str, mib: float) -> bytes:
    return "".join(line % number for number in range(int(mib * MIB) // len(line))).encode()


def redaction_speed(secrets: list[str], log: bytes) -> float:
    """The MiB of a log that are redacted per CPU second."""
    redactor = Redactor(secrets)
    start = time.process_time()
    for position in range(0, len(log), CHUNK_BYTES):
        redactor.feed(log[position : position + CHUNK_BYTES])
    return len(log) / MIB / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, default=4, help="the size of each log")
    args = parser.parse_args()
    key = [random_secret(64) for _line in range(26)]
    pem = "\n".join(["-----BEGIN PRIVATE KEY-----", *key, "-----END PRIVATE KEY-----"])
    one, ten = [f"hf_{random_secret(34)}"], [*(random_secret(chance.randint(20, 50)) for _number in range(9)), pem]
    lines = {
        "plain log": PLAIN,
        "coloured log": COLOURED,
        "near-misses": f"token {ten[0][:15]}%d {one[0][:20]} {pem[40:70]} -----BEGIN PRIVATE\n",
        "a secret in each line": f"step %d of {one[0]} and {ten[0]}\n",
        "lines of JSON": '{"step": %d, "text": "one\\\\ntwo \\"three\\" \\u00e9"}\n',
    }
    for name, line in lines.items():
        log = repeat_line(line, args.mib)
        with_one, with_ten = redaction_speed(one, log), redaction_speed(ten, log)
        print(f"{name:24} {with_one:8.0f} MiB/s with one secret {with_ten:8.0f} MiB/s with ten and a PEM")


if __name__ == "__main__":
    main()
