#!/usr/bin/env python3
"""Compare checking every row of a dataset with only reading it by pyarrow, for a million rows like GSM8K's.

read     read all columns of train.parquet and val.parquet, batch by batch, with the defaults of pyarrow
check    read them and make every check, including those for equal rows and for rows that are in both splits
stage    stage a dataset from them on disk: read, check, write, manifest
columns  stage it from JSON lines with questions and answers, which are converted to verl's schema

Each of these runs in its own process, whose peak memory is shown; pyarrow uses as many threads as there are CPUs.

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
CONVERSION = {
    "columns": {"prompt": "question", "ground_truth": "answer", "extra": ["answer"]},
    "data_source": "openai/gsm8k",
    "instruction": INSTRUCTION,
    "ground_truth_pattern": r"#### (\S+)",
}


def random_words() -> list[str]:
    chance = random.Random(0)  # noqa: S311 - it must be repeatable
    return ["".join(chance.choices("etaoinshrdlucmfwypvbgk", k=chance.randint(2, 9))) for _ in range(5000)]


def generate_rows(start: int, count: int, words: list[str]) -> list[dict[str, str]]:
    """Rows with a question and an answer. start: the number of the first one, which makes its text unique."""
    chance = random.Random(start)  # noqa: S311 - it must be repeatable
    rows = []
    for number in range(start, start + count):
        question = f"{' '.join(chance.choices(words, k=QUESTION_WORDS))} of {number}?"
        answer = f"{' '.join(chance.choices(words, k=ANSWER_WORDS))}\n#### {number % 977}"
        rows.append({"question": question, "answer": answer})
    return rows


def write_files(directory: Path, rows: int) -> None:
    """Write both splits twice: in verl's schema as parquet, and with questions and answers as JSON lines."""
    converter = RowConverter(Dataset.model_validate({"name": "sums", **CONVERSION}))
    checker, words = RowChecker(RL), random_words()
    for split, first, count in (("train", 0, rows), ("val", rows, VAL_ROWS)):
        with (
            contextlib.closing(RowWriter(directory / f"{split}.parquet")) as writer,
            (directory / f"{split}.jsonl").open("w") as file,
        ):
            for start in range(first, first + count, BATCH_ROWS):
                batch_rows = generate_rows(start, min(BATCH_ROWS, first + count - start), words)
                file.writelines(json.dumps(row) + "\n" for row in batch_rows)
                batch = pyarrow.RecordBatch.from_pylist(batch_rows)
                writer.write(converter.convert(batch, split, range(len(batch_rows)), writer.row_count, checker))


def read_files(directory: Path) -> None:
    for split in SPLITS:
        with parquet.ParquetFile(directory / f"{split}.parquet") as file:
            for _batch in file.iter_batches(BATCH_ROWS):
                pass


def check_files(directory: Path) -> None:
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


def stage_files(directory: Path, ending: str, **form: Any) -> None:
    files = {split: [str(directory / f"{split}.{ending}")] for split in SPLITS}
    dataset = Dataset.model_validate({"name": "sums", "files": files, **form})
    with tempfile.TemporaryDirectory(dir=directory) as root:
        stage(build_request(Path(root), dataset, StageOptions()))


WAYS = {
    "read": read_files,
    "check": check_files,
    "stage": lambda directory: stage_files(directory, "parquet"),
    "columns": lambda directory: stage_files(directory, "jsonl", **CONVERSION),
}


def measure(way: str, directory: Path, rounds: int) -> dict[str, Any]:
    """The seconds, without imports, and the peak memory in bytes of the fastest of several rounds."""
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
        write_files(directory, args.rows)
        sizes = {
            ending: sum((directory / f"{split}.{ending}").stat().st_size for split in SPLITS) / 2**20
            for ending in ("parquet", "jsonl")
        }
        rows = args.rows + VAL_ROWS
        print(f"{rows} rows: {sizes['parquet']:.0f} MiB as parquet, {sizes['jsonl']:.0f} MiB as JSON lines;")
        print(f"best of {args.rounds}\n")
        read_seconds = 0.0
        for way in WAYS:
            result = measure(way, directory, args.rounds)
            read_seconds = read_seconds or result["seconds"]
            print(
                f"{way:8} {result['seconds']:7.2f} s {rows / result['seconds']:12,.0f} rows/s "
                f"{result['peak'] / 2**20:7.0f} MiB peak {result['seconds'] / read_seconds:6.2f} x read"
            )


if __name__ == "__main__":
    main()
