"""A shared root with a model on a hub, for the tests of models."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hub import Hub, model
from staging_store import stage

from argus.staging import models
from argus.staging.items import Model
from argus.staging.manifest import StageResult
from argus.staging.models import build_request
from argus.staging.options import StageOptions, StagingError

NAME = "org/Name-1.5B"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
# The library's block size; 10 MiB are too much for a test.
STEP = 64 * 1024
# A process that stages the model, as the module does.
CHILD = f"""
import sys
from pathlib import Path
import huggingface_hub.constants
from argus.staging.items import Model
from argus.staging.models import build_request, parse_source
from argus.staging.options import StageOptions
from argus.staging.store import stage

huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = {STEP}
root, name, url = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
print(stage(build_request(root, name, parse_source(Model(source="{NAME}"), root, StageOptions(endpoint=url)))).status)
"""


def source_of(
    text: str, root: Path, endpoint: str | None = None, token: str | None = None, **options: Any
) -> models.ModelSource:
    return models.parse_source(Model(source=text, **options), root, StageOptions(endpoint=endpoint, token=token))


class Place(NamedTuple):
    """A shared root, and a hub with one model."""

    hub: Hub
    root: Path
    commit: str

    @property
    def target(self) -> Path:
        return self.root / "common/models/name"

    @property
    def cache(self) -> Path:
        return self.root / "hf/hub/models--org--Name-1.5B"

    def source(self, **options: Any) -> models.ModelSource:
        return source_of(NAME, self.root, **{"endpoint": self.hub.url, **options})

    def stage(self, name: str = "name", how: Mapping[str, bool] | None = None, **options: Any) -> StageResult:
        return stage(build_request(self.root, name, self.source(**options)), **(how or {}))

    def refused(self, **options: Any) -> str:
        with pytest.raises(StagingError) as error:
            self.stage(**options)
        return str(error.value)

    def blob(self, name: str) -> Path:
        return (self.target / name).resolve()

    def forget(self) -> None:
        """Forgets all requests."""
        self.hub.requests.clear()


def files(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir())


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def damage(path: Path) -> None:
    """Change a file as a failing disk does: its modification time changes too."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def child(place: Place, name: str = "name") -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHILD, place.root, name, place.hub.url], text=True, stdout=-1)


def without(*names: str) -> dict[str, bytes]:
    return {name: content for name, content in model().items() if name not in names}


def stage_copy(root: Path, source: Path, exclude: list[str] | None = None, **how: bool) -> StageResult:
    return stage(build_request(root, "mine", source_of(str(source), root, exclude=exclude)), **how)
