"""The locks: every pinned package has hashes, the locks fit their sources, and none says where packages come from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).resolve().parents[2]
IMAGES = [f"images/{image}/requirements.txt" for image in ("cpu", "cpu/vllm", "cuda")]
LOCKS = ["requirements.txt", "requirements-dev.txt", *IMAGES]
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Pin(NamedTuple):
    requirement: Requirement
    hashes: tuple[str, ...]


def entries(path: str) -> list[str]:
    """The logical lines of a requirements file, without comments."""
    text = re.sub(r"(^|\s)#.*", "", (REPO / path).read_text())
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def pins(path: str) -> dict[str, list[Pin]]:
    packages: dict[str, list[Pin]] = {}
    for line in entries(path):
        requirement = Requirement(line.partition(" --hash")[0])
        packages.setdefault(canonicalize_name(requirement.name), []).append(Pin(requirement, tuple(HASH.findall(line))))
    return packages


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_fits_its_source_and_every_package_has_one_version_and_hashes(lock: str) -> None:
    for line in entries(lock):
        assert re.fullmatch(r"[\w.-]+==\S+( ; .*?)?( +--hash=sha256:[0-9a-f]{64})+", line), line
    # A package is listed twice only where markers choose between the two.
    for name, candidates in pins(lock).items():
        assert len(candidates) == 1 or all(pin.requirement.marker for pin in candidates), name
    # It fits its source.
    locked = pins(lock)
    lines = entries(str(Path(lock).with_suffix(".in")))
    for requirement in (Requirement(line) for line in lines if not line.startswith("-")):
        versions = {str(pin.requirement.specifier) for pin in locked[canonicalize_name(requirement.name)]}
        assert str(requirement.specifier) in versions, f"{requirement.name}: run `make lock`"


def test_the_image_with_vllm_changes_no_package_of_the_one_below() -> None:
    assert not pins("images/cpu/requirements.txt").keys() & pins("images/cpu/vllm/requirements.txt").keys()


def test_the_lock_of_the_tests_contains_that_of_the_controller() -> None:
    tests = pins("requirements-dev.txt")
    for name, candidates in pins("requirements.txt").items():
        assert {(str(pin.requirement.specifier), pin.hashes) for pin in candidates} <= {
            (str(pin.requirement.specifier), pin.hashes) for pin in tests[name]
        }, name


@pytest.mark.parametrize(("version", "ansible"), [("3.11", "12.3.0"), ("3.12", "14.5.0"), ("3.13", "14.5.0")])
def test_each_python_gets_its_release_of_ansible(version: str, ansible: str) -> None:
    environment = {"python_version": version, "python_full_version": f"{version}.1"}
    versions = [
        str(pin.requirement.specifier)
        for pin in pins("requirements.txt")["ansible"]
        if pin.requirement.marker and pin.requirement.marker.evaluate(environment)
    ]
    assert versions == [f"=={ansible}"]


def test_the_image_has_the_cpu_build_of_torch_and_nothing_for_gpus() -> None:
    locked = pins("images/cpu/requirements.txt")
    torch = locked["torch"][0]
    assert str(torch.requirement.specifier).endswith("+cpu")
    assert len(torch.hashes) >= 2, "x86_64 and aarch64"
    assert not [name for name in locked if name.startswith(("nvidia-", "cuda-", "triton", "vllm"))]


@pytest.mark.parametrize("lock", [*LOCKS, *(str(Path(lock).with_suffix(".in")) for lock in LOCKS)])
def test_no_file_says_where_packages_come_from(lock: str) -> None:
    text = (REPO / lock).read_text()
    assert not re.search(r"://|index-url|find-links|trusted-host", text)
