# SPDX-License-Identifier: Apache-2.0
"""The keys of a JobSpec with their types, defaults and descriptions, and values derived from them.

The documentation of the keys and the JSON schema are generated from this file.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from keyword import iskeyword
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from ..archive.archive import SUBMISSION_ID
from ..common.shared_root import CODE_DIR, DATASETS_DIR, DEFAULT_SHARED_ROOT, MODELS_DIR, USER_CODE_DIR, full_path
from ..ray.api import parse_address
from .value_types import (
    Command,
    Commands,
    Duration,
    Names,
    Number,
    Overrides,
    Resources,
    Size,
    Values,
    Whole,
    check_amount,
    parse_mapping,
    require,
    require_between,
    split_commas,
)

MAX_TRIAL_ROWS = 64
# The GPU pools beside that of the trainer, each with the section of its settings in verl's configuration.
POOLS = {"rollout": "actor_rollout_ref.rollout", "reward": "reward.reward_model", "teacher": "distillation"}


def new_submission_id(workload: str) -> str:
    """``<workload>-<UTC time>-<random>``; the random part distinguishes jobs of the same second."""
    return f"{workload}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def plain_root(path: str) -> str:
    """A shared root without repeated and trailing slashes, which would appear in every path that is built from it."""
    return re.sub("/+", "/", path).removesuffix("/") or "/"


def is_dotted_name(module: str) -> bool:
    return all(part.isidentifier() and not iskeyword(part) for part in module.split("."))


def is_module_entry(reward_fn_path: str) -> bool:
    """Whether a reward_fn_path has the form ``package.module:function``; ``file.py:function`` is a file."""
    module, colon, function = reward_fn_path.partition(":")
    return bool(colon) and function.isidentifier() and not module.endswith(".py") and is_dotted_name(module)


@dataclass(frozen=True)
class RewardFunction:
    """Where the reward function of a job is."""

    file: str  # an absolute path
    name: str  # of the function in the file
    module: str = ""  # the dotted name by which it is imported from user/code; empty if the file is loaded by its path

    @property
    def path(self) -> str:
        """The value of verl's setting for the path of the reward function."""
        # utils/import_utils.py:load_module
        return f"pkg://{self.module}" if self.module else self.file


@dataclass(frozen=True)
class Inputs:
    """The inputs of a job, as absolute paths."""

    code_path: str  # the snapshot of verl; "" for a command without one
    model: str
    dataset: str
    reward: RewardFunction | None  # None: verl's own


def key(description: str, default: Any = ..., at: str = "") -> Any:
    """A key of a JobSpec. at: its dotted name in the JobSpec, if it is not the name of the field."""
    alias = AliasPath(*at.split(".")) if at else None
    return Field(default, description=description, validation_alias=alias, validate_default=True)


class JobSpec(BaseModel):
    """A JobSpec with its defaults, by the paths of its keys. Durations are in seconds; None means no limit."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    submission_id: Annotated[
        str | None,
        AfterValidator(lambda value: value or None),
        require(
            SUBMISSION_ID.fullmatch,
            "{} is malformed",
            "use at most 63 lower-case letters, digits, '.', '_' and '-', and begin with a letter or a digit; or leave "
            "it out",
        ),
    ] = key(
        "The id of the job, which matches `[a-z0-9][a-z0-9._-]{0,62}`, and the name of its archive. By default "
        "`<workload>-<UTC time>-<random>`.",
        None,
    )
    workload: Literal["ppo", "grpo", "sft", "eval", "command"] = key(
        "`ppo` trains with a critic, `grpo` without one (verl's `main_ppo`), `sft` with verl's SFT trainer. "
        "`eval` validates the model, or the checkpoint of `resume_from`, once. `command` runs any program."
    )
    command: Command = key(
        "The program of `workload: command` and its arguments, without a shell. It runs on one worker, in "
        "`output/` of the archive.",
        [],
    )
    module: Annotated[
        str | None,
        require(is_dotted_name, "{} is not the name of a module", "write it as in python -m: recipe.dapo.main_dapo"),
    ] = key(
        "A Python module to run in place of verl's trainer, of the snapshot or of `<shared_root>/user/code/`: a "
        "program with `@hydra.main`, whose configuration extends that of verl's trainer.",
        None,
    )
    config_name: str | None = key("Its configuration, if it is not that of its `@hydra.main`.", None)
    shared_root: Annotated[str, AfterValidator(plain_root)] = key(
        "The directory that all nodes share, at the same path: that of the inventory, or not set.", DEFAULT_SHARED_ROOT
    )
    code_path: str = key(
        "The snapshot of verl, as a name in `<shared_root>/common/code/verl/` or an absolute path. Not required "
        "for `command`."
    )
    reward_fn_path: str | None = key(
        "The reward function, as `FILE.py` (its function `compute_score`), `FILE.py:FUNCTION` or "
        "`PACKAGE.MODULE:FUNCTION`, relative to `<shared_root>/user/code/`; a file may have an absolute path. By "
        "default, verl chooses its own by the `data_source` of each row.",
        None,
    )
    model: str = key(
        "The base model, as a name in `<shared_root>/common/models/` or an absolute path. Not for `command`."
    )
    dataset: str = key(
        "A directory with `train.parquet` and `val.parquet`, as a name in `<shared_root>/datasets/` or an "
        "absolute path. `sft` needs no `val.parquet`, `eval` nothing else. Not for `command`."
    )
    address: Annotated[
        str,
        require(
            parse_address, "{} is not an address", "give scheme, host and port only, such as http://127.0.0.1:8265"
        ),
    ] = key(
        "The address of Ray's Jobs API as seen from the head: on the head itself, or that of the inventory.",
        "http://127.0.0.1:8265",
        "ray.address",
    )
    runtime_env: Values = key(
        "The parts of Ray's runtime environment that a job may decide: `env_vars`, `config` with "
        "`setup_timeout_seconds` and `eager_install`, `nsight`, `rocprof_sys`.",
        {},
        "ray.runtime_env",
    )
    entrypoint_resources: Resources = key(
        "Custom resources of the driver. One of them has to exist on workers only, to keep it off the head.",
        {"worker_node": 1},
        "ray.resources.entrypoint_resources",
    )
    entrypoint_num_cpus: Annotated[Number, AfterValidator(check_amount)] = key(
        "The CPUs of the driver.", 1, "ray.resources.entrypoint_num_cpus"
    )
    nnodes: Size = key("The number of workers. By default, all of them.", None, "resources.nnodes")
    gpus_per_node: Size = key(
        "The GPUs on each worker. By default, those of the worker with the fewest.", None, "resources.gpus_per_node"
    )
    gpus: Annotated[Number, AfterValidator(check_amount)] = key(
        "The GPUs of a `command` that uses those of one worker. A program that uses Ray sets `nnodes` and "
        "`gpus_per_node`.",
        0,
        "resources.gpus",
    )
    rollout_nnodes: Size = key(
        "The workers for the rollouts of `trainer.v1.trainer_mode=separate_async`.",
        None,
        "resources.pools.rollout.nnodes",
    )
    rollout_gpus_per_node: Size = key(
        "The GPUs on each of them. By default, as many as for the trainer.",
        None,
        "resources.pools.rollout.gpus_per_node",
    )
    reward_nnodes: Size = key(
        "The workers for the reward model, with `reward.reward_model.enable=True`.",
        None,
        "resources.pools.reward.nnodes",
    )
    reward_gpus_per_node: Size = key("The same for these.", None, "resources.pools.reward.gpus_per_node")
    teacher_nnodes: Size = key(
        "The workers for the teachers, with `distillation.enabled=True`.", None, "resources.pools.teacher.nnodes"
    )
    teacher_gpus_per_node: Size = key("The same for these.", None, "resources.pools.teacher.gpus_per_node")
    trainer_overrides: Overrides = key(
        "Hydra overrides, as a list of `key=value` or as a mapping, nested or with dotted keys. They replace the "
        "defaults of the job.",
        [],
    )
    env_vars: Values = key("Environment variables of the driver and its workers.", {})
    before: Commands = key(
        "Shell commands on the driver's node before each attempt. One that fails, or takes longer than 10 "
        "minutes, ends the attempt.",
        [],
    )
    after: Commands = key(
        "Shell commands there after each attempt, however it ended, unless its launcher was killed or its node "
        "was lost. The next attempt waits for them.",
        [],
    )
    secrets: Names = key(
        "Names of environment variables with secret values, such as `WANDB_API_KEY`. The values come from "
        "`job_secrets`.",
        [],
    )
    retries: Annotated[Whole, require_between(0, 100, "the number of further attempts")] = key(
        "The number of further attempts, `0` to `100`, after failures that are not the job's own. They resume "
        "from the last complete checkpoint.",
        0,
    )
    deadline: Duration = key("The time limit of the job, with its time in the queue and all attempts.", None)
    wait_for_resources: Duration = key(
        "How long the job may wait for resources. If it is not set, a job that does not fit at once is refused, "
        "and a retry waits for a day.",
        None,
    )
    priority: Annotated[Whole, require_between(-1000, 1000, "a priority")] = key(
        "The place in the queue, `-1000` to `1000`. Higher ones come first, equal ones in the order of "
        "submission. Running jobs are not stopped.",
        0,
    )
    queue_patience: Duration = key(
        "How long later jobs may start before this one, because they fit and it does not. After that, what "
        "becomes free is kept for it. `0` means for ever.",
        "1h",
    )
    start_timeout: Duration = key("An attempt without a first step by then is stalled. `0` means no limit.", "60m")
    stall_timeout: Duration = key(
        "After the first step, a job without a step and without a line in its log for so long is stalled. Reports "
        "that verl and Ray repeat while nothing happens do not count. `0` means no limit.",
        "30m",
    )
    # RAY or TORCHRUN.
    launcher: Literal["ray", "torchrun"] = key(
        "What starts the processes of the trainer. `torchrun` is for `sft`: a task on each node starts "
        "`torch.distributed.run`.",
        "ray",
    )
    on_stall: Literal["report", "stop"] = key(
        "What happens to a stalled job after its evidence was collected: `report` lets it run, `stop` ends it.",
        "report",
    )
    resume_from: Annotated[
        str | None,
        require(
            SUBMISSION_ID.fullmatch,
            "{} is not a submission id",
            "give the id of the job whose last checkpoint this job resumes from",
        ),
    ] = key(
        "The id of a job with the same workload (for `eval`, of a `ppo` or `grpo` one), from whose last complete "
        "checkpoint this one starts.",
        None,
    )
    env_from: Annotated[dict[str, str], BeforeValidator(parse_mapping)] = key(
        "Environment variables with the addresses of servers, by the ids of their jobs: `{JUDGE_URL: command-…}`. "
        "The job starts once they answer.",
        {},
    )
    ready_port: Annotated[Whole | None, require_between(1, 65535, "a port")] = key(
        "The port of a `command` that is a server. It is RUNNING once it answers with a status below 300. It has "
        "to listen on all interfaces.",
        None,
        "ready.port",
    )
    ready_path: Annotated[str, require(lambda value: value.startswith("/"), "is {}", "begin it with /")] = key(
        "The path of that request.", "/", "ready.path"
    )
    depends_on: Annotated[
        str | None,
        require(
            SUBMISSION_ID.fullmatch, "{} is not a submission id", "give the id of the job that has to succeed before"
        ),
    ] = key(
        "The id of a job of this cluster that has to succeed first. Model, dataset and checkpoint may be its results.",
        None,
    )
    debugger: Literal["post_mortem", "legacy"] | None = key(
        "Ray's debugger for tasks and actors. `post_mortem` is used with VS Code and needs `debugpy` 1.8 or newer "
        "on the workers, `legacy` with `ray debug`. A job that waits for a debugger counts as stalled.",
        None,
    )
    tags: Values = key("Labels of the job, as names and values.", {})
    check_reward: Annotated[
        Whole, require_between(0, MAX_TRIAL_ROWS, "the number of rows with which the gate calls the reward function")
    ] = key(
        "The number of rows, `0` to `64`, with which the gate calls the reward function, each with its ground "
        "truth and with an empty answer.",
        0,
    )
    accept: Annotated[tuple[Literal["requirements", "space", "release"], ...], BeforeValidator(split_commas)] = key(
        "Problems to report as warnings: `requirements`, packages that the snapshot declares and the image lacks; "
        "`space`, checkpoints that are not expected to fit; `release`, a verl newer than all that are known.",
        [],
    )

    @classmethod
    def paths(cls) -> dict[str, str]:
        """The dotted name of each key, by the name of its field."""
        aliases = ((name, field.validation_alias) for name, field in cls.model_fields.items())
        return {
            name: ".".join(map(str, alias.path)) if isinstance(alias, AliasPath) else name for name, alias in aliases
        }

    @property
    def pools(self) -> dict[str, tuple[int | None, int | None]]:
        """The numbers of workers and of GPUs on each, of all pools with at least one of the two; None: not set."""
        sizes = {name: (getattr(self, f"{name}_nnodes"), getattr(self, f"{name}_gpus_per_node")) for name in POOLS}
        return {name: size for name, size in sizes.items() if any(size)}

    @property
    def inputs(self) -> Inputs:
        return Inputs(
            code_path=full_path(self.code_path, self.shared_root, CODE_DIR) if self.code_path else "",
            model=full_path(self.model, self.shared_root, MODELS_DIR),
            dataset=full_path(self.dataset, self.shared_root, DATASETS_DIR),
            reward=self._reward(),
        )

    def _reward(self) -> RewardFunction | None:
        if self.reward_fn_path is None:
            return None
        path, _dummy, function = self.reward_fn_path.partition(":")
        if is_module_entry(self.reward_fn_path):
            file = full_path(f"{path.replace('.', '/')}.py", self.shared_root, USER_CODE_DIR)
            return RewardFunction(file, function, path)
        return RewardFunction(full_path(path, self.shared_root, USER_CODE_DIR), function or "compute_score")


def nested_keys(paths: Iterable[str]) -> dict[str, Any]:
    """Dotted names as nested mappings; a key with a value has an empty mapping."""
    top: dict[str, Any] = {}
    for path in paths:
        level = top
        for part in path.split("."):
            level = level.setdefault(part, {})
    return top


KEYS = nested_keys(JobSpec.paths().values())
# The descriptions of the sections, for the documentation.
SECTIONS = {
    "ray": "How the job is submitted to Ray.",
    "ray.resources": "The resources that the driver requests.",
    "resources": "The size of the job.",
    "ready": "How to know that a server can be used.",
    "resources.pools": "GPUs beside those of the trainer.",
    "resources.pools.rollout": "Of the inference engines.",
    "resources.pools.reward": "Of the reward model.",
    "resources.pools.teacher": "Of the teachers of a distillation.",
}
# The keys that are not for a command, and those that a command does not need.
TRAINING_KEYS = (
    *("model", "dataset", "module", "config_name", "reward_fn_path", "check_reward", "trainer_overrides", "launcher"),
    *("resume_from", "resources.pools"),
)
OPTIONAL_FOR_COMMANDS = ("code_path", "model", "dataset")
DURATIONS = ("deadline", "wait_for_resources", "queue_patience", "start_timeout", "stall_timeout")
