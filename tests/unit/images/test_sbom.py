"""The bill of materials of the image, made here from the packages of this environment and of this machine."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

REPO = Path(__file__).resolve().parents[3]
SCRIPT = REPO / "images" / "cpu" / "sbom.py"
LICENCES = REPO / "tools" / "licences.py"


def bill(*arguments: str | Path) -> str:
    argv = [sys.executable, SCRIPT, "argus-verl-cpu", *arguments]
    return subprocess.run(argv, text=True, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def text() -> str:
    return bill()


def by_name(text: str, kind: str) -> dict[str, dict[str, Any]]:
    components = json.loads(text)["components"]
    return {part["name"]: part for part in components if part.get("purl", "").startswith(f"pkg:{kind}/")}


def test_it_fits_the_schema_of_cyclonedx(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_it_has_every_python_package(text: str) -> None:
    packages = by_name(text, "pypi")
    for distribution in metadata.distributions():
        name = distribution.name.lower().replace("_", "-").replace(".", "-")
        assert packages[name]["version"] == distribution.version
    assert packages["pytest"]["licenses"] == [{"expression": "MIT"}]
    assert packages["pyyaml"]["licenses"] == [{"license": {"name": "MIT License"}}]


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="this machine has no Debian packages")
def test_it_has_debians_packages_with_their_sources(text: str) -> None:
    libc = by_name(text, "deb")["libc6"]
    purl = PackageURL.from_string(libc["purl"])
    assert purl.version == libc["version"]
    assert isinstance(purl.qualifiers, dict)
    assert purl.qualifiers["upstream"] == "glibc"
    assert purl.qualifiers["distro"].startswith(f"{purl.namespace}-")


def test_urls_of_packages_are_written_as_their_specification_says(text: str) -> None:
    for part in json.loads(text)["components"]:
        if "purl" in part:
            assert PackageURL.from_string(part["purl"]).to_string() == part["purl"]


def test_it_is_the_same_every_time_and_names_nothing_of_the_machine(text: str) -> None:
    assert bill() == text
    assert str(REPO) not in text


def test_packages_have_the_hashes_of_what_was_installed(tmp_path: Path) -> None:
    (tmp_path / "PyYAML-6.0.3-cp311-cp311-manylinux_2_28_x86_64.whl").write_bytes(b"wheel")
    (tmp_path / "antlr4-python3-runtime-4.9.3.tar.gz").write_bytes(b"source")
    packages = by_name(bill("--wheels", tmp_path), "pypi")
    for name, content in (("pyyaml", b"wheel"), ("antlr4-python3-runtime", b"source")):
        assert packages[name]["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]
    assert "hashes" not in packages["pytest"]


def test_a_package_of_this_project_has_no_url_of_an_index(tmp_path: Path) -> None:
    info = tmp_path / "verl_cpu-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verl_cpu\nVersion: 0.1.0\n")
    (info / "direct_url.json").write_text('{"url": "file:///src/verl_cpu", "dir_info": {}}')
    found = subprocess.run(
        [sys.executable, SCRIPT, "x"], text=True, capture_output=True, check=True, env={"PYTHONPATH": str(tmp_path)}
    )
    own = {"bom-ref": "verl-cpu@0.1.0", "name": "verl-cpu", "version": "0.1.0", "type": "library"}
    assert own in json.loads(found.stdout)["components"]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(found.stdout) is None


def check(*packages: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    listed = [{"purl": f"pkg:pypi/{package['name']}@1", **package} for package in packages]
    argv = [sys.executable, LICENCES, "--list"]
    given = json.dumps({"components": listed})
    return subprocess.run(argv, input=given, text=True, capture_output=True, check=False)


@pytest.mark.parametrize(
    "licenses",
    [
        [{"expression": "MIT"}],
        [{"expression": "MPL-2.0 AND (AGPL-3.0-only OR MIT)"}],
        [{"license": {"name": "Apache Software License"}}, {"license": {"name": "BSD License"}}],
    ],
)
def test_known_licences_pass(licenses: list[dict[str, Any]]) -> None:
    assert check({"name": "a", "licenses": licenses}).returncode == 0


@pytest.mark.parametrize(
    ("licenses", "stated"),
    [
        ([], "unknown"),
        ([{"expression": "MIT AND AGPL-3.0-only"}], "MIT AND AGPL-3.0-only"),
        ([{"expression": "(AGPL-3.0-only OR SSPL-1.0)"}], "(AGPL-3.0-only OR SSPL-1.0)"),
        ([{"license": {"name": "NVIDIA Proprietary Software"}}], "NVIDIA Proprietary Software"),
        ([{"license": {"name": "MIT License"}}, {"license": {"name": "Proprietary"}}], "MIT AND Proprietary"),
    ],
)
def test_other_licences_are_named_with_their_package(licenses: list[dict[str, Any]], stated: str) -> None:
    found = check({"name": "fine", "licenses": [{"expression": "MIT"}]}, {"name": "odd", "licenses": licenses})
    assert found.returncode == 1
    assert found.stderr.startswith(f"odd: the licence {stated} is not in tools/licences.py")
    assert f"{stated}: odd\n" in found.stdout


def test_a_reviewed_package_is_reported_when_its_licence_changes() -> None:
    assert check({"name": "regex", "licenses": [{"expression": "Apache-2.0 AND CNRI-Python"}]}).returncode == 0
    assert check({"name": "regex", "licenses": [{"expression": "CNRI-Python"}]}).returncode == 1
    assert check({"name": "other", "licenses": [{"expression": "Apache-2.0 AND CNRI-Python"}]}).returncode == 1


def test_an_empty_bill_is_no_success() -> None:
    found = check()
    assert found.returncode == 1
    assert found.stderr == "tools/licences.py: the bill of materials on standard input has no Python packages\n"
