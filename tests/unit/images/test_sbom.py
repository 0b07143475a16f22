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


def test_it_fits_the_schema_and_has_every_python_package(text: str) -> None:
    # Their import takes seconds, which each process that collects tests would wait for.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
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
    assert isinstance(purl.qualifiers, dict)
    assert (purl.version, purl.qualifiers["upstream"]) == (libc["version"], "glibc")
    # URLs of packages are written as their specification says, and nothing names the machine.
    purls = [part["purl"] for part in json.loads(text)["components"] if "purl" in part]
    assert [PackageURL.from_string(purl).to_string() for purl in purls] == purls
    assert str(REPO) not in text


def test_packages_have_the_hashes_of_what_was_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "PyYAML-6.0.3-cp311-cp311-manylinux_2_28_x86_64.whl").write_bytes(b"wheel")
    (tmp_path / "antlr4-python3-runtime-4.9.3.tar.gz").write_bytes(b"source")
    # A package of this project has no URL of an index.
    info = tmp_path / "verl_cpu-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verl_cpu\nVersion: 0.1.0\n")
    (info / "direct_url.json").write_text('{"url": "file:///src/verl_cpu", "dir_info": {}}')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    text = bill("--wheels", tmp_path)
    assert text == bill("--wheels", tmp_path)
    component = {"bom-ref": "verl-cpu@0.1.0", "name": "verl-cpu", "version": "0.1.0", "type": "library"}
    assert component in json.loads(text)["components"]
    packages = by_name(text, "pypi")
    for name, content in (("pyyaml", b"wheel"), ("antlr4-python3-runtime", b"source")):
        assert packages[name]["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]
    assert "hashes" not in packages["pytest"]


def check(*packages: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    listed = [{"purl": f"pkg:pypi/{package['name']}@1", **package} for package in packages]
    argv = [sys.executable, LICENCES, "--list"]
    document = json.dumps({"components": listed})
    return subprocess.run(argv, input=document, text=True, capture_output=True, check=False)


AGPL, APACHE = "AGPL-3.0-only OR SSPL-1.0", "Apache-2.0 AND CNRI-Python"
GOOD: dict[str, list[dict[str, Any]]] = {
    "mit": [{"expression": "MIT"}],
    "either": [{"expression": "MPL-2.0 AND (AGPL-3.0-only OR MIT)"}],
    "names": [{"license": {"name": "Apache Software License"}}, {"license": {"name": "BSD License"}}],
    # Reviewed with this licence.
    "regex": [{"expression": APACHE}],
}
ODD: dict[str, tuple[list[dict[str, Any]], str]] = {
    "none": ([], "unknown"),
    "or": ([{"expression": f"({AGPL})"}], f"({AGPL})"),
    "named": ([{"license": {"name": "MIT License"}}, {"license": {"name": "Proprietary"}}], "MIT AND Proprietary"),
    "regex": ([{"expression": "CNRI-Python"}], "CNRI-Python"),
    "other": ([{"expression": APACHE}], APACHE),
}


def test_licences() -> None:
    good = [{"name": name, "licenses": licences} for name, licences in GOOD.items()]
    assert check(*good).returncode == 0
    result = check(good[0], *({"name": name, "licenses": licences} for name, (licences, _stated) in ODD.items()))
    assert result.returncode == 1
    for name, (_licences, stated) in ODD.items():
        assert f"{name}: the licence {stated} is not in tools/licences.py" in result.stderr
    # An empty bill is no success.
    assert check().returncode == 1
