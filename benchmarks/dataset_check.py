#!/usr/bin/env python3
"""Compare checking every row of a dataset with reading it by pyarrow, for a million rows like GSM8K's.

read     all columns of train.parquet and val.parquet, batch after batch, with the defaults of pyarrow
check    the same with every check, including equal rows and rows that are in both splits
stage    a dataset from the same files: read, check, write, manifest, on disk
columns  the same from JSON lines with questions and answers, converted to verl's schema

Each runs in its own process, whose peak memory is shown; pyarrow uses as many threads as the machine has CPUs.

Run it after `make setup-dev`, on an idle machine: `.venv/bin/python benchmarks/dataset_check.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from argus.checks.dataset import RL, SPLITS
from argus.staging.dataset.checks import RowChecker, schema_problem
from argus.staging.dataset.row_converter import RowConverter
from argus.staging.dataset.rows import BATCH_ROWS, Rows, RowWriter
from argus.staging.dataset.stage import build_request
from argus.staging.items import Dataset
from argus.staging.lock import Progress
from argus.staging.options import StageOptions
from argus.staging.store import stage

VAL_ROWS = 10_000
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
# Like GSM8K, whose questions have 45 words on average, and its answers 50.
QUESTION_WORDS, ANSWER_WORDS = 45, 50
CONVERTED = {
    "columns": {"prompt": "question", "ground_truth": "answer", "extra": ["answer"]},
    "data_source": "openai/gsm8k",
    "instruction": INSTRUCTION,
    "ground_truth_pattern": r"#### (\S+)",
}


def vocabulary() -> list[str]:
    chance = random.Random(0)  # noqa: S311 - it must be repeatable
    return ["".join(chance.choices("etaoinshrdlucmfwypvbgk", k=chance.randint(2, 9))) for _ in range(5000)]


def problems(start: int, count: int, words: list[str]) -> list[dict[str, str]]:
    chance = random.Random(start)  # noqa: S311 - it must be repeatable
    generated = []
    for number in range(start, start + count):
        question = f"{' '.join(chance.choices(words, k=QUESTION_WORDS))} of {number}?"
        answer = f"{' '.join(chance.choices(words, k=ANSWER_WORDS))}\n#### {number % 977}"
        generated.append({"question": question, "answer": answer})
    return generated


def make(directory: Path, rows: int) -> None:
    """Write the files: in verl's schema as parquet, and with other columns as JSON lines."""
    converter = RowConverter(Dataset.model_validate({"name": "sums", **CONVERTED}))
    checker, words = RowChecker(RL), vocabulary()
    for split, first, count in (("train", 0, rows), ("val", rows, VAL_ROWS)):
        with (
            contextlib.closing(RowWriter(directory / f"{split}.parquet")) as writer,
            (directory / f"{split}.jsonl").open("w") as file,
        ):
            for start in range(first, first + count, BATCH_ROWS):
                some = problems(start, min(BATCH_ROWS, first + count - start), words)
                file.writelines(json.dumps(row) + "\n" for row in some)
                batch = pyarrow.RecordBatch.from_pylist(some)
                writer.write(converter.convert(batch, split, range(len(some)), writer.row_count, checker))


def read(directory: Path) -> None:
    for split in SPLITS:
        with parquet.ParquetFile(directory / f"{split}.parquet") as file:
            for _batch in file.iter_batches(BATCH_ROWS):
                pass


def check(directory: Path) -> None:
    if schema_problem(parquet.read_schema(directory / "train.parquet"), RL):
        raise SystemExit("the rows of the benchmark do not have verl's schema")
    checker = RowChecker(RL)
    for split in SPLITS:
        first = 0
        for batch in Rows([directory / f"{split}.parquet"], Progress()).batches():
            checker.check(split, batch, range(first, first + len(batch)))
            first += len(batch)
    checker.compare_splits()
    if checker.errors() or checker.warnings():
        raise SystemExit("\n".join([*checker.errors(), *checker.warnings()]))


def staged(directory: Path, ending: str, **form: Any) -> None:
    files = {split: [str(directory / f"{split}.{ending}")] for split in SPLITS}
    dataset = Dataset.model_validate({"name": "sums", "files": files, **form})
    with tempfile.TemporaryDirectory(dir=directory) as root:
        stage(build_request(Path(root), dataset, StageOptions()))


WAYS = {
    "read": read,
    "check": check,
    "stage": lambda directory: staged(directory, "parquet"),
    "columns": lambda directory: staged(directory, "jsonl", **CONVERTED),
}


def measured(way: str, directory: Path, rounds: int) -> dict[str, Any]:
    """Seconds and peak memory of one way, the best of several rounds; the time excludes imports."""
    command = [sys.executable, __file__, "--directory", str(directory), "--way", way]
    results: list[dict[str, Any]] = []
    for _round in range(rounds):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        results.append(json.loads(done.stdout))
    return min(results, key=lambda result: result["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="how many rows train.parquet has")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="the directory for the files; temporary by default")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        start = time.perf_counter()
        WAYS[args.way](args.directory)
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
        return
    with tempfile.TemporaryDirectory(dir=args.directory) as temporary:
        directory = Path(temporary)
        make(directory, args.rows)
        sizes = {
            ending: sum((directory / f"{split}.{ending}").stat().st_size for split in SPLITS) / 2**20
            for ending in ("parquet", "jsonl")
        }
        rows = args.rows + VAL_ROWS
        print(f"{rows} rows: {sizes['parquet']:.0f} MiB as parquet, {sizes['jsonl']:.0f} MiB as JSON lines;")
        print(f"best of {args.rounds}\n")
        raw = 0.0
        for way in WAYS:
            result = measured(way, directory, args.rounds)
            raw = raw or result["seconds"]
            print(
                f"{way:8} {result['seconds']:7.2f} s {rows / result['seconds']:12,.0f} rows/s "
                f"{result['peak'] / 2**20:7.0f} MiB peak {result['seconds'] / raw:6.2f} x read"
            )


if __name__ == "__main__":
    main()
