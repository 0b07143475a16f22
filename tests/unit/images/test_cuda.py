"""images/cuda cannot be built where its base cannot be pulled: its file is read, and compared with the CPU image."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

IMAGES = Path(__file__).resolve().parents[3] / "images"
CUDA = IMAGES / "cuda"


def pins(file: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[\w+\])?==([\w.+]+)", file.read_text(), re.MULTILINE))


def test_the_image_of_rocm_adds_the_same_with_hashes() -> None:
    rocm = (IMAGES / "rocm" / "requirements.txt").read_text()
    assert (CUDA / "requirements.txt").read_text().startswith(rocm)
    assert set(pins(IMAGES / "rocm" / "requirements.txt")) == {"debugpy", "py-spy"}
    for image in ("cuda", "rocm"):
        (install,) = re.findall(r"pip install (.*?)\n(?! )", (IMAGES / image / "Dockerfile").read_text(), re.DOTALL)
        # No code of a source distribution runs, and the packages of the base stay.
        assert all(option in install for option in ("--require-hashes", "--no-deps", "--only-binary :all:", "-r "))
        assert "==" not in install


@pytest.mark.parametrize("package", ["py-spy", "transferqueue"])
def test_versions_are_those_with_which_the_cpu_image_is_tested(package: str) -> None:
    def hashes(image: str) -> set[str]:
        entry = re.search(rf"^{package}==.*?(?=^\S|\Z)", (IMAGES / image / "requirements.txt").read_text(), re.M | re.S)
        assert entry
        return set(re.findall(r"sha256:[0-9a-f]{64}", entry[0]))

    assert pins(CUDA / "requirements.txt")[package] == pins(IMAGES / "cpu" / "requirements.txt")[package]
    assert hashes("cuda") == hashes("cpu")
