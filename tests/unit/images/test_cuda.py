"""images/cuda cannot be built where its base cannot be pulled: its file is read, and compared with the CPU image."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

IMAGES = Path(__file__).resolve().parents[3] / "images"
CUDA = IMAGES / "cuda"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each on one line."""
    text = re.sub(r"^#.*\n", "", (CUDA / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def pins(file: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[\w+\])?==([\w.+]+)", file.read_text(), re.MULTILINE))


def test_layers() -> None:
    found = instructions()
    assert [name for name, _text in found] == ["ARG", "FROM", "RUN", "COPY", "RUN", "ENV"]
    assert found[0][1].startswith("BASE=verlai/verl:") and found[1] == ("FROM", "${BASE}")
    assert "purge" in found[2][1] and "openssh-server" in found[2][1]
    # Packages come with hashes, and leave those of the base as they are.
    install = found[4][1]
    assert "--require-hashes" in install and "--no-deps" in install and "--only-binary :all:" in install
    target = found[3][1].split()[-1]
    assert f"-r {target}" in install


def test_context_has_what_is_copied() -> None:
    sources = [text.split()[0] for name, text in instructions() if name == "COPY"]
    assert sources == ["requirements.txt"] and (CUDA / sources[0]).is_file()


def test_lock_has_what_is_asked_for() -> None:
    assert pins(CUDA / "requirements.in") == pins(CUDA / "requirements.txt")
    assert set(pins(CUDA / "requirements.txt")) == {"debugpy", "py-spy", "transferqueue"}


def test_the_image_of_rocm_adds_the_same_with_hashes() -> None:
    own = (IMAGES / "rocm" / "requirements.txt").read_text()
    assert (CUDA / "requirements.txt").read_text().startswith(own)
    assert set(pins(IMAGES / "rocm" / "requirements.txt")) == {"debugpy", "py-spy"}
    (install,) = re.findall(r"pip install (.*?)\n(?! )", (IMAGES / "rocm" / "Dockerfile").read_text(), re.DOTALL)
    assert "--require-hashes" in install and "--no-deps" in install and "==" not in install


@pytest.mark.parametrize("package", ["py-spy", "transferqueue"])
def test_versions_are_those_with_which_the_cpu_image_is_tested(package: str) -> None:
    def hashes(image: str) -> set[str]:
        found = re.search(rf"^{package}==.*?(?=^\S|\Z)", (IMAGES / image / "requirements.txt").read_text(), re.M | re.S)
        assert found
        return set(re.findall(r"sha256:[0-9a-f]{64}", found[0]))

    assert pins(CUDA / "requirements.txt")[package] == pins(IMAGES / "cpu" / "requirements.txt")[package]
    assert hashes("cuda") == hashes("cpu")


def test_debugger_is_recent_enough_for_ray() -> None:
    assert tuple(map(int, pins(CUDA / "requirements.txt")["debugpy"].split("."))) >= (1, 8)
