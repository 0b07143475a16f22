"""Images of rigs: each is built from the files of its directory if they have changed, as the CPU image is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


def _builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("argus_image_build", REPO / "images" / "cpu" / "build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def image(name: str) -> str:
    """The tag of the image of the rig, which exists and has the inputs of its directory."""
    builder = _builder()
    tag = f"argus-verl-rig-{name}"
    digest = builder.inputs_hash(HERE / name)
    if builder.built_hash("docker", tag) != digest:
        builder.build_context("docker", tag, digest, builder.base_image("docker"), HERE / name)
    return tag
