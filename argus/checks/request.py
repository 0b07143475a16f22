# SPDX-License-Identifier: Apache-2.0
"""What the checks of a job share: CheckRequest with the composed configuration, Facts, and helpers that read files.

A check takes request and facts, and returns findings. Checks import packages of the nodes' image only inside functions.
Of datasets and weights, they read only headers, footers and a few rows.
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

OMEGACONF_MISSING = "???"
WORKLOAD_SFT, WORKLOAD_EVAL = "sft", "eval"
MAX_VERSION_FILE_BYTES, MAX_VERSION_CHARS = 4096, 64
# verl's reward managers that score one answer at a time. Others pass other arguments: the function is not tried out.
PER_SAMPLE_REWARD_MANAGERS = ("naive", "dapo", "gdpo", "remote", "rate_limited")
MAX_ERROR_CHARS = 300
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class Configuration:
    """A composed configuration as plain data: nested mappings, lists and values."""

    values: Mapping[str, Any]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key; the default if it is absent, null, OmegaConf's missing value, or unresolved."""
        value: Any = self.values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        unset = value is None or (isinstance(value, str) and (value == OMEGACONF_MISSING or value.startswith("${")))
        return default if unset else value

    def number(self, key: str, default: int = 0) -> int:
        """The value if it is an integer; otherwise the default. gate/numbers.py reports a value of another type."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default


def flatten(node: Any, path: str = "", *, enabled_only: bool = True) -> Iterator[tuple[str, Any]]:
    """All dotted keys of a configuration with their values. enabled_only: skip sections with enable(d): false."""
    if isinstance(node, Mapping) and node:
        is_disabled = node.get("enable") is False or node.get("enabled") is False
        for name, value in () if enabled_only and is_disabled else node.items():
            yield from flatten(value, f"{path}.{name}".lstrip("."), enabled_only=enabled_only)
    elif isinstance(node, list) and node:
        for index, value in enumerate(node):
            yield from flatten(value, f"{path}[{index}]", enabled_only=enabled_only)
    else:
        yield path, node


def as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


@dataclass(frozen=True)
class CheckRequest:
    """A job to be checked on nodes. All paths are absolute."""

    shared_root: str
    workload: str  # ppo, grpo, sft, eval or command
    code_path: str  # the staged source of verl, called snapshot
    model: str  # the directory of the base model
    dataset: str  # the directory with train.parquet and val.parquet
    reward_file: str | None = None  # None: verl's own reward function
    reward_function: str = ""
    reward_module: str = ""  # the dotted name by which the file is imported; empty if it is loaded by its path
    environment: Mapping[str, str] = field(default_factory=dict)  # placeholders replace its secrets
    # The files that every node must see, with their sizes on the head; None stands for any size.
    files: Mapping[str, int | None] = field(default_factory=dict)
    accept: tuple[str, ...] = ()  # names of checks whose errors count as warnings, such as "space"
    debugger: str | None = None  # Ray's debugger that the JobSpec asks for: "post_mortem" or "legacy"
    trial_rows: int = 0  # the number of rows with which the reward function is called
    # The composed configuration of the trainer. None: unknown, and checks that need it are skipped.
    config: Configuration | None = None
    tokenizer_process: ChildProcess | None = None  # the process that measures prompts, if it was started in advance

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
        """An integer of the composed configuration; the default for any other value."""
        return self.config.number(key, default) if self.config else default

    def severity_of(self, check: str) -> str:
        """The severity of errors of a check: "warning" if the user accepts them."""
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
        """Whether hf_processor (verl/utils/tokenizer/tokenizer.py) loads no processor. False for a name on the hub."""
        path = Path(self.tokenizer_path)
        return path.is_absolute() and path.is_dir() and not any(path.glob("*processor_config.json"))

    @property
    def max_sequence_length(self) -> int:
        """The most tokens of a prompt with its answer, or of a conversation for SFT; 0 if not configured."""
        prompt_and_response = self.number("data.max_prompt_length") + self.number("data.max_response_length")
        return self.number("data.max_length") if self.is_sft else prompt_and_response

    @property
    def has_reward_model(self) -> bool:
        # reward_model.enable is verl's key up to 0.8. verl 0.9 still has it, as null.
        return bool(self.setting("reward.reward_model.enable") or self.setting("reward_model.enable"))

    @property
    def registered_reward_manager(self) -> str | None:
        """The name of verl's reward manager that the job uses; None if the job brings one of its own, or is SFT."""
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
        """The column that says where a row comes from. verl 0.9 still has data.reward_fn_key, but does not read it."""
        return "data_source" if self.verl_at_least((0, 9)) else str(self.setting("data.reward_fn_key", "data_source"))

    @property
    def has_critic(self) -> bool:
        # trainer/ppo/utils.py: need_critic
        return not self.is_sft and bool(self.setting("critic.enable", self.workload == "ppo"))

    def is_outside_shared_root(self, path: str) -> bool:
        """Whether a path of the configuration is outside the shared root, which the check of paths reports."""
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
    """What the checks learn about a job, one after the other. None: unknown."""

    train_rows: int | None = None
    val_rows: int | None = None
    data_sources: list[str] | None = None  # the values of data_source in the rows that were read
    model_bytes: int | None = None
    vocab_size: int | None = None
    parameters: int | None = None  # how many the trained model has
    critic_parameters: int | None = None  # how many the critic has
    # The installed versions of the packages that verl requires; None for a package that is missing.
    versions: dict[str, str | None] | None = None
    workers: list[str] | None = None  # the names of the workers that are alive; the gate sets them
    free_bytes: int | None = None  # of the shared root
    steps: int | None = None  # of the whole job
    checkpoint_bytes: int | None = None  # of one checkpoint
    checkpoints_kept: int | None = None  # how many checkpoints exist at the same time
    checkpoint_space: int | None = None  # the bytes of all of these
    seconds: dict[str, float] = field(default_factory=dict)  # the duration of each check, by its name
    notes: list[str] = field(default_factory=list)  # lines for people that are not problems

    def to_json(self) -> dict[str, Any]:
        """The facts that are known."""
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None and value != {} and (value or name != "notes")
        }


def read_verl_version(code_path: str | Path) -> str | None:
    """The version of verl that a snapshot declares; None if it cannot be read."""
    try:
        return one_line(read_text(Path(code_path, "verl/version/version"), MAX_VERSION_FILE_BYTES), MAX_VERSION_CHARS)
    except (OSError, UnreadableError):
        return None


def error_text(error: BaseException) -> str:
    return one_line(error, MAX_ERROR_CHARS) or type(error).__name__


def is_lfs_pointer(path: Path) -> bool:
    """Whether a file has only the pointer that a clone without Git LFS leaves in its place."""
    with path.open("rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def lfs_pointer_problem(path: Path) -> tuple[str, str]:
    """The problem with a Git LFS pointer in place of a file, and its remedy."""
    remedy = "run `git lfs pull` in the clone and stage it again, or download the file again"
    return f"{path} is a Git LFS pointer, not the file", remedy
