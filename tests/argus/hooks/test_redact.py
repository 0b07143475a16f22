"""Secrets: where they are stored, and that they appear nowhere else."""

from __future__ import annotations

import itertools
import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from argus.hooks import redact, worker_secrets
from argus.hooks.redact import Redactor


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "jobs" / "sft-1"
    path.mkdir(parents=True)
    return path


def test_only_the_nodes_user_can_read_them(archive: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        worker_secrets.store(archive, {"HF_TOKEN": "hf_größe"})
    finally:
        os.umask(before)
    file = tmp_path / "jobs" / ".secrets" / "sft-1.json"
    assert worker_secrets.secrets_path(archive) == file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert worker_secrets.load(archive) == {"HF_TOKEN": "hf_größe"}
    worker_secrets.store(archive.with_name("sft-2"), {"HF_TOKEN": "hf_other"})
    worker_secrets.forget(archive)
    assert worker_secrets.load(archive) == {}
    assert [path.name for path in file.parent.iterdir()] == ["sft-2.json"]


@pytest.mark.parametrize("kind", ["hard link", "link", "fifo"])
def test_what_a_job_left_in_place_of_the_file_is_replaced(archive: Path, tmp_path: Path, kind: str) -> None:
    file, elsewhere = worker_secrets.secrets_path(archive), tmp_path / "elsewhere"
    file.parent.mkdir(mode=0o700)
    elsewhere.write_text("{}")
    if kind == "fifo":
        os.mkfifo(file)
    else:
        (os.link if kind == "hard link" else os.symlink)(elsewhere, file)
    worker_secrets.store(archive, {"HF_TOKEN": "hf_secret"})
    state = file.lstat()
    assert (stat.S_ISREG(state.st_mode), stat.S_IMODE(state.st_mode), state.st_nlink) == (True, 0o600, 1)
    assert worker_secrets.load(archive) == {"HF_TOKEN": "hf_secret"}
    assert elsewhere.read_text() == "{}"


def test_short_values_are_too_common_to_be_secret() -> None:
    redactor = Redactor(["abc", "", "1"])
    assert (redactor.mask_text("abc 1"), redactor.feed(b"abc 1"), redactor.finish()) == ("abc 1", b"abc 1", b"")


def test_any_stream_in_any_pieces() -> None:
    chance = random.Random(17)  # noqa: S311
    for _round in range(1000):
        secrets = ["".join(chance.choices("ab", k=chance.randint(4, 12))) for _number in range(chance.randint(1, 4))]
        data = "".join(chance.choices("abc\n", weights=(5, 5, 1, 1), k=chance.randint(0, 30))).encode()
        cuts = sorted(chance.choices(range(len(data) + 1), k=chance.randint(0, 8)))
        redactor = Redactor(secrets)
        shown = b"".join(redactor.feed(data[start:end]) for start, end in itertools.pairwise([0, *cuts, len(data)]))
        shown += redactor.finish()
        assert shown == Redactor(secrets).mask_text(data.decode()).encode(), (secrets, data, cuts)
        for secret in secrets:
            assert secret.encode() not in shown


def test_an_environment_without_secrets() -> None:
    variables = {
        "PATH": "/bin",
        "HF_TOKEN": "hf_abc",
        "WANDB_API_KEY": "0123",
        "RAY_AUTH_TOKEN": "x",
        "RAY_AUTH_TOKEN_PATH": "/run/token",
        "TOKENIZERS_PARALLELISM": "true",
        "NOTE": "it is hf_secret",
    }
    kept = redact.masked_environment(variables, Redactor(["hf_secret"]))
    masked = dict.fromkeys(("HF_TOKEN", "WANDB_API_KEY", "RAY_AUTH_TOKEN"), redact.MASK)
    assert kept == {**variables, **masked, "NOTE": "it is [secret]"}


KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg+q/hkiG9w\nAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----\n"
EVERY_WAY = """
import os, sys
from argus.io.reading import UnreadableError
from argus.hooks.worker_secrets import provide_secrets
provide_secrets()
key = os.environ["KEY"]
print(key[:4], key[4:], sep="")
print(repr(dict(os.environ)))
sys.stdout.buffer.write(b"buffer " + key.encode() + b"\\n")
sys.stdout.buffer.raw.write(b"raw " + key.encode() + b"\\n")
sys.__stdout__.write("dunder " + key + "\\n")
sys.stdout.writelines(["lines ", key[:10], key[10:], "\\n"])
sys.stdout.write("prompt -----"); sys.stdout.flush()
sys.stdout.write("\\nend " + key[:12])
"""


def test_a_worker_masks_every_way_to_write(archive: Path) -> None:
    worker_secrets.store(archive, {"KEY": KEY})
    done = subprocess.run(
        [sys.executable, "-c", EVERY_WAY],
        env={**os.environ, worker_secrets.ARCHIVE_VARIABLE: str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    for part in ("PRIVATE", "MIIEvQ", "hkiG9w", "AQEFAAS"):
        assert part not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "[secret]"
    for word in ("buffer", "raw", "dunder", "lines"):
        assert f"{word} [secret]" in lines
    # The order stays, and nothing is lost, not even text that was held back at the end.
    assert lines[-2:] == ["prompt -----", "end [secret]"]
