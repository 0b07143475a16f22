# SPDX-License-Identifier: Apache-2.0
"""Types shared by all checks: the request that describes a job with its composed configuration, and facts about it.

Checks import packages of the image only inside functions. They read only footers, headers and a few rows of
datasets and weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING
from ..common.shared_root import is_under_root
from ..common.text import one_line
from ..io.reading import UnreadableError, read_text
from .child import ChildProcess

WORKLOAD_SFT, WORKLOAD_EVAL = "sft", "eval"
OMEGACONF_MISSING = "???"
# verl's reward managers that score one answer at a time. Others, and those of users, call the function differently.
PER_SAMPLE_REWARD_MANAGERS = ("naive", "dapo", "gdpo", "remote", "rate_limited")
DTYPE_BYTES = {"F64": 8, "F32": 4, "float32": 4, "fp32": 4, "F16": 2, "BF16": 2, "fp16": 2, "bf16": 2}
MAX_ERROR_CHARS = 300


@dataclass(frozen=True)
class Configuration:
    """A composed configuration, as plain data."""

    values: Mapping[str, Any]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key; the default if it is absent, null, OmegaConf's missing value, or unresolved."""
        value: Any = self.values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        unset = value is None or (isinstance(value, str) and (value == OMEGACONF_MISSING or value.startswith("${")))
        return default if unset else value

    def number(self, key: str, default: int = 0) -> int:
        """An integer. The default for any other value, so that rules do not apply to it."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default


def flatten(node: Any, path: str = "", *, enabled_only: bool = True) -> Iterator[tuple[str, Any]]:
    """The dotted keys and the values of a configuration. enabled_only: skip sections with enable(d): false."""
    if isinstance(node, Mapping) and node:
        is_disabled = node.get("enable") is False or node.get("enabled") is False
        for name, value in () if enabled_only and is_disabled else node.items():
            yield from flatten(value, f"{path}.{name}".lstrip("."), enabled_only=enabled_only)
    elif isinstance(node, list) and node:
        for index, value in enumerate(node):
            yield from flatten(value, f"{path}[{index}]", enabled_only=enabled_only)
    else:
        yield path, node


@dataclass(frozen=True)
class CheckRequest:
    """A job to be checked on nodes. All paths are absolute; code_path is the staged verl source, called snapshot.

    environment: the environment variables of the job, with placeholders for secrets.
    files: the files that every node must see, with their sizes on the head; None stands for any size.
    accept: the checks whose errors the user takes as warnings: "requirements", "space".
    trial_rows: the rows with which the reward function is called; 0 for none. debugger: Ray's, of the JobSpec.
    config: the composed configuration. None: unknown, and checks that need it are skipped.
    tokenizer_process: the process that measures prompts; None to start it when it is needed.
    """

    shared_root: str
    workload: str
    code_path: str
    model: str
    dataset: str
    reward_file: str | None = None
    reward_function: str = ""
    # The module name for importing the file; empty if it is loaded by its path.
    reward_module: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, int | None] = field(default_factory=dict)
    accept: tuple[str, ...] = ()
    debugger: str | None = None
    trial_rows: int = 0
    config: Configuration | None = None
    tokenizer_process: ChildProcess | None = None

    @property
    def is_sft(self) -> bool:
        return self.workload == WORKLOAD_SFT

    @property
    def splits(self) -> tuple[str, ...]:
        """The parts of the dataset that the job uses."""
        return ("val",) if self.workload == WORKLOAD_EVAL else ("train", "val")

    def setting(self, key: str, default: Any = None) -> Any:
        """A value of the composed configuration."""
        return self.config.get(key, default) if self.config else default

    def number(self, key: str, default: int = 0) -> int:
        """An integer of the composed configuration; the default for any other value, which another check reports."""
        return self.config.number(key, default) if self.config else default

    def severity_of(self, check: str) -> str:
        """The severity of a check's errors."""
        return WARNING if check in self.accept else ERROR

    @property
    def model_section(self) -> str:
        """The key of the section with the trained model."""
        return "model" if self.is_sft else "actor_rollout_ref.model"

    @property
    def model_path(self) -> str:
        """The directory of the trained model, or its name on the hub."""
        return str(self.setting(f"{self.model_section}.path", self.model))

    @property
    def tokenizer_path(self) -> str:
        """The directory or name of the trained model's tokenizer and processor."""
        return str(self.setting(f"{self.model_section}.tokenizer_path", self.model_path))

    @property
    def is_text_only(self) -> bool:
        """Whether the model is known to have no image processor: verl/utils/tokenizer/tokenizer.py: hf_processor."""
        path = Path(self.tokenizer_path)
        return path.is_absolute() and path.is_dir() and not any(path.glob("*processor_config.json"))

    @property
    def max_sequence_length(self) -> int:
        rl = self.number("data.max_prompt_length") + self.number("data.max_response_length")
        return self.number("data.max_length") if self.is_sft else rl

    @property
    def has_reward_model(self) -> bool:
        # reward_model.enable is verl's key up to 0.8. verl 0.9 still has it, as null.
        return bool(self.setting("reward.reward_model.enable") or self.setting("reward_model.enable"))

    @property
    def registered_reward_manager(self) -> str | None:
        """The name of the reward manager among those of the snapshot; None for a file of the job, and for sft."""
        if self.is_sft or self.setting("reward.reward_manager.source", "register") != "register":
            return None
        # reward_model.reward_manager is verl's key up to 0.8. verl 0.9 still has it, as null.
        return str(self.setting("reward_model.reward_manager") or self.setting("reward.reward_manager.name", "naive"))

    @property
    def per_sample_reward_manager(self) -> str | None:
        """The name of the reward manager if it scores one answer at a time; otherwise None."""
        return self.registered_reward_manager if self.registered_reward_manager in PER_SAMPLE_REWARD_MANAGERS else None

    @property
    def data_source_key(self) -> str:
        """The column with the data source. verl 0.9 still has data.reward_fn_key, but nothing reads it."""
        return "data_source" if self.verl_at_least((0, 9)) else str(self.setting("data.reward_fn_key", "data_source"))

    @property
    def has_critic(self) -> bool:
        # trainer/ppo/utils.py: need_critic
        return not self.is_sft and bool(self.setting("critic.enable", self.workload == "ppo"))

    def is_outside_shared_root(self, path: str) -> bool:
        """Whether an override names a path outside the shared root; the check of paths reports it."""
        return self.config is not None and not is_under_root(path, self.shared_root)

    def verl_at_least(self, release: tuple[int, int]) -> bool:
        """Whether the snapshot is this release of verl or a later one. An unknown version counts as the latest."""
        try:
            major, minor = (read_verl_version(self.code_path) or "").split(".")[:2]
            return (int(major), int(minor)) >= release
        except ValueError:
            return True


@dataclass
class Facts:
    """Numbers that the checks of a job fill in, one after the other. None: unknown.

    data_sources: the values in the rows that were read.
    versions: of the packages that verl requires; None for a package that is not installed.
    checkpoint_bytes: the size of one checkpoint.
    checkpoints_kept, checkpoint_space: the checkpoints that exist at the same time, and their size.
    seconds: the duration of each check.
    workers: the names of those that are alive.
    notes: lines for people that are not problems.
    """

    train_rows: int | None = None
    val_rows: int | None = None
    data_sources: list[str] | None = None
    model_bytes: int | None = None
    vocab_size: int | None = None
    parameters: int | None = None
    critic_parameters: int | None = None
    versions: dict[str, str | None] | None = None
    workers: list[str] | None = None
    free_bytes: int | None = None
    steps: int | None = None
    checkpoint_bytes: int | None = None
    checkpoints_kept: int | None = None
    checkpoint_space: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """All facts that are known."""
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None and value != {} and (value or name != "notes")
        }


VERSION_FILE_BYTES, MAX_VERSION_CHARS = 4096, 64


def read_verl_version(code_path: str | Path) -> str | None:
    """The version of verl that a snapshot declares; None if it cannot be read."""
    try:
        return one_line(read_text(Path(code_path, "verl/version/version"), VERSION_FILE_BYTES), MAX_VERSION_CHARS)
    except (OSError, UnreadableError):
        return None


def error_text(error: BaseException) -> str:
    return one_line(error, MAX_ERROR_CHARS) or type(error).__name__


def as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def is_lfs_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def lfs_pointer_problem(path: Path) -> tuple[str, str]:
    """The problem with a Git LFS pointer in place of a file, and its remedy."""
    remedy = "run `git lfs pull` in the clone and stage it again, or download the file again"
    return f"{path} is a Git LFS pointer, not the file", remedy
