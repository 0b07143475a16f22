# SPDX-License-Identifier: Apache-2.0
"""Stages models under the shared root: from the hub, a directory, a job's checkpoint, or a tiny random one.

A model from the hub is a link to a commit in the cache of huggingface_hub, which jobs use, too: its files are on disk
only once, and huggingface_hub manages them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..checks import model as model_checks
from ..common.findings import errors
from ..common.shared_root import HUB_CACHE_DIR, MODELS_DIR
from . import tiny
from .checkpoint import CHECKPOINT_PATTERN, CHECKPOINT_PREFIX, CheckpointSource
from .files import copy_files, file_sha256, parallel_map
from .git import COMMIT
from .hub import (
    REPO_ID,
    RepoRevision,
    download_verified,
    expand_directory_pattern,
    missing_bytes,
    name_matches,
    resolve_endpoint,
)
from .items import Model
from .lock import Progress
from .manifest import MANIFEST, Manifest, StageResult, problem_lines, read_manifest
from .options import NAME_WITH_CAPITALS, StageOptions, StagingError, check_name, check_shared_root
from .source_tree import tree_files
from .store import BuildRequest, BuildResult, remove_downloaded

KIND = "model"
TINY = "tiny"
# With one of these files, weights in other formats are left out.
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
# Weights in formats that jobs do not read; repositories often have several formats.
OTHER_WEIGHT_FORMATS = (
    *("*.bin", "*.pth", "*.pt", "*.h5", "*.msgpack", "*.ot", "*.gguf", "consolidated*.safetensors"),
    *("onnx/*", "original/*", "openvino/*", "coreml/*"),
)


def exclusion_patterns(exclude: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """The patterns of excluded files. exclude: the user's; None for those that suit a model with these files."""
    if exclude is None:
        exclude = OTHER_WEIGHT_FORMATS if any(name in SAFETENSORS for name in names) else ()
    return [*map(expand_directory_pattern, exclude)]


def exclusion_filter(exclude: Sequence[str] | None) -> Callable[[Sequence[str]], set[str]]:
    """A function that returns those of all names that are not excluded."""

    def select(names: Sequence[str]) -> set[str]:
        patterns = exclusion_patterns(exclude, names)
        return {name for name in names if not name_matches(name, patterns)}

    return select


@dataclass(frozen=True)
class HubSource:
    """A repository of the hub."""

    repository: RepoRevision
    exclude: Sequence[str] | None = None  # the user's patterns; None for the default exclusions

    def size(self) -> int:
        return missing_bytes(self.repository)

    def mismatch(self, manifest: Manifest) -> str:
        name, revision = self.repository.repo_id, self.repository.revision
        if manifest.source != name:
            return f"contains {manifest.source}, not {name}."
        # The model keeps the commit that its branch had when it was staged.
        if revision != (manifest.commit if COMMIT.fullmatch(revision) else manifest.revision):
            return f"contains revision {manifest.revision} ({manifest.commit}) of {name}, not {revision}."
        exclusions = manifest.texts("excluded")
        if self.exclude is not None and exclusion_patterns(self.exclude, ()) != exclusions:
            return f"contains {name} without {', '.join(exclusions) or 'exclusions'}, which exclude does not match."
        return ""

    def write_to(self, directory: Path, progress: Progress, manifest: Manifest | None) -> BuildResult:
        repository, exclude = self.repository, self.exclude
        if manifest and manifest.commit:
            # A branch may have moved since, and the default exclusions may have changed.
            exclude = manifest.texts("excluded")
            repository = replace(repository, revision=manifest.commit, select=exclusion_filter(exclude))
        hashes = download_verified(repository, progress)
        directory.rmdir()
        # Relative: the nodes may see the shared root at another path.
        directory.symlink_to(os.path.relpath(repository.snapshot_dir.resolve(), directory.parent.resolve()))
        facts = {
            "source": repository.repo_id,
            "revision": self.repository.revision,
            "commit": repository.commit,
            "endpoint": repository.endpoint,
            "excluded": exclusion_patterns(exclude, repository.all_names),
        }
        return BuildResult(facts, hashes)


@dataclass(frozen=True)
class DirectorySource:
    """A directory that the node sees."""

    path: Path
    exclude: Sequence[str] | None = None

    def size(self) -> int:
        return sum(self._files().values())

    def mismatch(self, manifest: Manifest) -> str:
        if not self.path.is_dir():
            # The copy does not need its source any more.
            if manifest.source == str(self.path):
                return ""
            return f"contains {manifest.source}, not {self.path}, which does not exist."
        sizes, staged = self._files(), {name: entry.size for name, entry in manifest.files.items()}
        changes = {
            name: "is new" if name not in staged else "is missing" if name not in sizes else "has another size"
            for name in sorted({*sizes, *staged})
            if sizes.get(name) != staged.get(name)
        }
        if not changes:
            return ""
        return f"does not contain the files of {self.path} (by name and size): {', '.join(problem_lines(changes))}."

    def write_to(self, directory: Path, progress: Progress, manifest: Manifest | None) -> BuildResult:
        files = self._files()
        progress.begin(f"copying {self.path}", sum(files.values()))
        copy_files(self.path, directory, files, progress)
        progress.begin(f"reading the copy of {self.path}", sum(files.values()))
        hashes = parallel_map(lambda name: file_sha256(directory / name, progress.add), list(files))
        return BuildResult({"source": str(self.path)}, dict(zip(files, hashes, strict=True)))

    def _files(self) -> dict[str, int]:
        """The sizes of the files to copy, by their relative paths."""
        if not self.path.is_dir():
            remedy = "Give a directory that this node sees, or a repository of the hub (org/name)."
            raise StagingError(self.path, "is not a directory here.", remedy)
        # .cache has the download metadata of huggingface_hub, which is not part of the model.
        names = sorted(tree_files(self.path, without=".cache"))
        # The source may be a staged copy, which has a manifest of its own.
        patterns = [MANIFEST, *exclusion_patterns(self.exclude, names)]
        return {name: (self.path / name).stat().st_size for name in names if not name_matches(name, patterns)}


@dataclass(frozen=True)
class TinySource:
    """A generated model: two layers of random numbers, and a tokenizer."""

    def size(self) -> int:
        return 0

    def mismatch(self, manifest: Manifest) -> str:
        return "" if manifest.source == TINY else f"contains {manifest.source}, not the tiny model."

    def write_to(self, directory: Path, progress: Progress, manifest: Manifest | None) -> BuildResult:
        progress.begin("generating a tiny model")
        tiny.build_model(directory)
        return BuildResult({"source": TINY})


# The sources of a model. `size` and `mismatch` are those of a BuildRequest. `write_to` is its `build`, which also gets
# the manifest of the model that is being repaired, or None.
ModelSource = HubSource | DirectorySource | TinySource | CheckpointSource


def parse_source(model: Model, shared_root: Path, stage_options: StageOptions) -> ModelSource:
    """The source that the option `source` of a model names. Raises StagingError if it names none."""
    text = model.source
    if text is None:
        raise StagingError("source", "is not set.", "Set it to a repository of the hub, a directory or a job.")
    if text == TINY:
        return TinySource()
    if text.startswith(CHECKPOINT_PREFIX):
        match = CHECKPOINT_PATTERN.fullmatch(text)
        if not match:
            remedy = "Give job:<submission_id>, or job:<submission_id>@<step>; status.yml lists the latest jobs."
            raise StagingError("source", f'"{text}" names no job.', remedy)
        return CheckpointSource(shared_root, match["job"], int(match["step"] or 0) or None)
    if text.startswith("/"):
        path = Path(os.path.normpath(text))
        commits = model_checks.hub_snapshots(path)
        if len(commits) > 1:
            remedy = f"Give one of them: {', '.join(map(str, commits))}"
            raise StagingError(path, f"is a cache of the hub with {len(commits)} commits.", remedy)
        return DirectorySource(commits[0] if commits else path, model.exclude)
    if not REPO_ID.fullmatch(text):
        remedy = (
            "Give a repository of the hub (org/name), the absolute path of a directory, job:<submission_id>, or tiny."
        )
        raise StagingError("source", f'"{text}" is not a source of models.', remedy)
    address = resolve_endpoint(stage_options.endpoint, stage_options.token)
    cache, select = shared_root / HUB_CACHE_DIR, exclusion_filter(model.exclude)
    repository = RepoRevision(text, model.revision, cache, address, stage_options.token or None, select=select)
    return HubSource(repository, model.exclude)


def build_request(shared_root: Path, name: str | None, source: ModelSource) -> BuildRequest:
    """A model under the shared root. name: None only for a checkpoint, which has a default name."""
    if name is None:
        if not isinstance(source, CheckpointSource):
            raise StagingError("name", "is not set.", "Set it to the name by which JobSpecs use the model.")
        source = source.with_fixed_step()
        name = source.default_name
    directory = check_shared_root(shared_root) / MODELS_DIR
    target = directory / check_name("name", name, NAME_WITH_CAPITALS)

    def build(directory: Path, progress: Progress) -> BuildResult:
        result = source.write_to(directory, progress, read_manifest(target))
        check_complete(target, directory)
        return result

    return BuildRequest(KIND, name, target, build, source.mismatch, size=source.size)


def check_complete(target: Path, directory: Path) -> None:
    """Raises StagingError if a directory lacks what jobs read from a model. target: its later path, for the message."""
    source = model_checks.ModelRef(directory, KIND, KIND)
    findings = [
        *model_checks.read_config(source)[1],
        *model_checks.tokenizer_findings(source, directory, "", has_template=False),
        *model_checks.check_weights(source).findings,
    ]
    faults = [finding.problem for finding in errors(findings)]
    if faults:
        problem = "; ".join(faults).replace(f"{directory}/", "").replace(str(directory), "it")  # its path is temporary
        remedy = "Nothing was staged. Use another source or revision, or exclude fewer files."
        raise StagingError(target, f"would not be a complete model: {problem}.", remedy)


def remove_model(shared_root: Path, name: str, *, check: bool = False) -> StageResult:
    """Removes a model, and its commit from the cache of the hub unless another model needs that."""
    models = check_shared_root(shared_root) / MODELS_DIR
    target = models / check_name("name", name, NAME_WITH_CAPITALS)
    return remove_downloaded(shared_root, KIND, name, target, check=check)
