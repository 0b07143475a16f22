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
CHUNK = 1 << 16
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
chance = random.Random(1)  # noqa: S311
PLAIN = (
    "step:%d - actor/entropy:0.4213 - critic/rewards/mean:0.5 - timing_s/gen:12.3 - perf/throughput:3.1\n"
    "Training Progress:  12%%|#####     | 5/40 [00:11<00:33,  3.7s/it]\n"
)
COLOURED = "\x1b[36m(TaskRunner pid=1234)\x1b[0m " + PLAIN


def value(length: int) -> str:
    return "".join(chance.choices(LETTERS, k=length))


def repeated(line: str, mib: float) -> bytes:
    return "".join(line % number for number in range(int(mib * MIB) // len(line))).encode()


def speed(secrets: list[str], log: bytes) -> float:
    redactor = Redactor(secrets)
    start = time.process_time()
    for position in range(0, len(log), CHUNK):
        redactor.feed(log[position : position + CHUNK])
    return len(log) / MIB / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, default=4, help="the size of each log")
    args = parser.parse_args()
    pem = "\n".join(["-----BEGIN PRIVATE KEY-----", *(value(64) for _line in range(26)), "-----END PRIVATE KEY-----"])
    one, ten = [f"hf_{value(34)}"], [*(value(chance.randint(20, 50)) for _number in range(9)), pem]
    lines = {
        "plain log": PLAIN,
        "coloured log": COLOURED,
        "near-misses": f"token {ten[0][:15]}%d {one[0][:20]} {pem[40:70]} -----BEGIN PRIVATE\n",
        "a secret in each line": f"step %d of {one[0]} and {ten[0]}\n",
        "lines of JSON": '{"step": %d, "text": "one\\\\ntwo \\"three\\" \\u00e9"}\n',
    }
    for name, line in lines.items():
        log = repeated(line, args.mib)
        print(f"{name:24} {speed(one, log):8.0f} MiB/s with one secret {speed(ten, log):8.0f} MiB/s with ten and a PEM")


if __name__ == "__main__":
    main()
