"""Print a bill of materials (CycloneDX 1.6, JSON) of this environment: its Python packages and its Debian packages.

The build of an image runs it, and stores its output in the image. The same packages give the same text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

DEBIAN_FIELDS = ("binary:Package", "Version", "Architecture", "source:Package", "db:Status-Status")
PACKAGE_FILE = re.compile(r"(?P<name>.+?)-\d[^-]*(-.+\.whl|\.tar\.gz)")


def normalized_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def stated_licences(package: metadata.PackageMetadata) -> list[dict[str, Any]]:
    """The licences that a package states: its SPDX expression, or its classifiers, or the first line of its licence."""
    if "License-Expression" in package:
        return [{"expression": package["License-Expression"]}]
    classifiers = [line.split(" :: ") for line in package.get_all("Classifier") or () if line.startswith("License :: ")]
    names = sorted({parts[-1] for parts in classifiers if parts[-1] != "OSI Approved"})
    if not names and "License" in package:
        names = package["License"].strip().splitlines()[:1]
    return [{"license": {"name": name}} for name in names if name]


def file_hashes(directory: Path | None) -> dict[str, str]:
    """The SHA-256 of each wheel or source archive in a directory, by the name of its package."""
    digests: dict[str, str] = {}
    for path in sorted(directory.iterdir()) if directory else ():
        if match := PACKAGE_FILE.fullmatch(path.name):
            with path.open("rb") as file:
                digests[normalized_name(match["name"])] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def base_hashes(bill: Path) -> dict[str, str]:
    """The SHA-256 of each Python package in the bill of materials of the image on which this one is built."""
    return {
        part["name"]: part["hashes"][0]["content"]
        for part in json.loads(bill.read_text())["components"]
        if "hashes" in part
    }


def python_packages(digests: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for package in metadata.distributions():
        name = normalized_name(package.name)
        component: dict[str, Any] = {"type": "library", "name": name, "version": package.version}
        # A package of this project is in no index, where the same name might be somebody else's.
        if not package.read_text("direct_url.json"):
            component["purl"] = f"pkg:pypi/{name}@{quote(package.version)}"
        if stated := stated_licences(package.metadata):
            component["licenses"] = stated
        if name in digests:
            component["hashes"] = [{"alg": "SHA-256", "content": digests[name]}]
        yield component


def debian_packages(system: dict[str, str]) -> Iterator[dict[str, Any]]:
    if not shutil.which("dpkg-query"):
        return
    form = "\t".join(f"${{{field}}}" for field in DEBIAN_FIELDS) + "\n"
    argv = ["dpkg-query", "--show", f"--showformat={form}"]
    listed = subprocess.run(argv, text=True, capture_output=True, check=True)
    for line in listed.stdout.splitlines():
        name, version, architecture, source, status = line.split("\t")
        if status != "installed":
            continue
        name = name.partition(":")[0]
        qualifiers = f"arch={architecture}&distro={system['ID']}-{quote(system.get('VERSION_ID', ''))}"
        # Advisories of Debian name the source package.
        qualifiers += f"&upstream={quote(source)}" if source != name else ""
        purl = f"pkg:deb/{system['ID']}/{quote(name)}@{quote(version, safe=':')}?{qualifiers}"
        yield {"type": "library", "name": name, "version": version, "purl": purl}


def bill_of_materials(name: str, digests: Mapping[str, str]) -> dict[str, Any]:
    """The bill as CycloneDX defines it. name: of the image. digests: the SHA-256 of Python packages by name."""
    system = platform.freedesktop_os_release()
    base = {"type": "operating-system", "name": system["ID"], "version": system.get("VERSION_ID", "")}
    components = [base, *python_packages(digests), *debian_packages(system)]
    by_reference = {part.get("purl") or f"{part['name']}@{part['version']}": part for part in components}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": name, "name": name}},
        "components": [{"bom-ref": reference, **part} for reference, part in sorted(by_reference.items())],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="what the bill is about, for example argus-verl-cpu")
    parser.add_argument("--wheels", type=Path, help="where installed packages came from, for their hashes")
    parser.add_argument("--base", type=Path, help="the bill of the image below, for the hashes of its packages")
    args = parser.parse_args()
    digests = (base_hashes(args.base) if args.base else {}) | file_hashes(args.wheels)
    print(json.dumps(bill_of_materials(args.name, digests), indent=1, sort_keys=True, ensure_ascii=False))


if __name__ == "__main__":
    main()
