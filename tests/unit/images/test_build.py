"""images/cpu/build.py: only packages with the locked hashes get into the image. With the real pip and a directory."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from script_module import script_module

REPO = Path(__file__).resolve().parents[3]
PACKAGE = "harmless"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """build.py, with a lock of its own and pip that knows one directory only."""
    module = script_module(REPO / "images" / "cpu" / "build.py")
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    (tmp_path / "wheels").mkdir()
    yield module


def wheel(directory: Path, content: str = "", name: str = PACKAGE) -> str:
    """Write a wheel and return its SHA-256."""
    path = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", content)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lock(directory: Path, *lines: str) -> None:
    (directory / "requirements.txt").write_text("\n".join(lines) + "\n")


def test_only_a_package_with_the_locked_hash_is_collected(
    build: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def collect() -> None:
        build.collect_wheels(tmp_path / "requirements.txt", tmp_path / "wheels")

    lock(tmp_path, f"{PACKAGE}==1.0 --hash=sha256:{wheel(tmp_path / 'index', 'import os')}")
    wheel(tmp_path / "index")
    with pytest.raises(SystemExit, match="differs from its hash"):
        collect()
    lock(tmp_path, f"{PACKAGE}==1.0")
    with pytest.raises(build.subprocess.CalledProcessError):
        collect()
    assert "harmless==1.0" in capsys.readouterr().err and list((tmp_path / "wheels").iterdir()) == []
    lock(tmp_path, f"{PACKAGE}==1.0 --hash=sha256:{wheel(tmp_path / 'index')}")
    collect()
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == ["harmless-1.0-py3-none-any.whl"]


def test_without_the_cpu_build_of_torch_the_message_says_how_to_configure_pip(
    build: ModuleType, tmp_path: Path
) -> None:
    # The default index has the build for CUDA, without a local version.
    lock(tmp_path, f"torch==1.0+cpu --hash=sha256:{wheel(tmp_path / 'index', name='torch')}")
    with pytest.raises(SystemExit, match=r"torch==1\.0\+cpu"):
        build.collect_wheels(tmp_path / "requirements.txt", tmp_path / "wheels")
