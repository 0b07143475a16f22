# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the gate that looks at the things themselves: data, model, reward, packages and space, on the nodes.

It travels into Ray tasks by value, where there is neither Ansible nor this collection. So it imports nothing of
either, of the image's packages only what a check needs and inside of it, and a finding is a mapping with the keys of
``findings.Finding``. Of data and weights it reads footers, headers and a few rows.

A request is a mapping:

shared_root, workload, code_path, model, dataset: as in the JobSpec; all paths are absolute.
reward: the file and the function, or None.
environment: the environment variables of the job.
files: what has to be there on every node: paths, or a mapping of paths to their sizes on the head (None: any).
accept: checks whose errors the user takes as warnings: "requirements", "space".
config: the composed Hydra configuration of the job, or None when it is not known; then less is checked.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ERROR, WARNING = "error", "warning"
SFT = "sft"
# Rows of each file that are looked at.
SAMPLE_ROWS = 64
# What chat templates know; others end up in the text as they are.
ROLES = ("system", "developer", "user", "assistant", "tool")
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
# The format's own limit of a header.
SAFETENSORS_HEADER_LIMIT = 100_000_000
# In the order in which transformers looks for them.
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
VOCABULARIES = ("vocab*", "*.model", "*.tiktoken", "merges.txt", "tekken.json")
REWARD_SECONDS = 20
# verl's reward managers that score one answer at a time; others, and those of users, have calls of their own.
REWARD_MANAGERS = ("naive", "dapo", "gdpo", "remote", "rate_limited")
# What they pass, all by name (experimental/reward_loop/reward_manager/*.py: run_single).
REWARD_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
# And when a reward model is on.
REWARD_MODEL_ARGUMENTS = ("reward_router_address", "reward_model_tokenizer")
# The packages that verl's rollouts of these names call, and the extra of verl that declares them.
ENGINES = {"vllm": ("vllm", "vllm"), "sglang": ("sglang", "sglang"), "trtllm": ("tensorrt-llm", "trtllm")}
ALMOST_FULL = 0.8
# What a checkpoint is of, and where the configuration speaks of it: SFT saves the model, RL actor and critic.
CHECKPOINTS = {
    "model": {
        "parameters": "parameters",
        "model": "model",
        "engine": "engine",
        "strategy": "engine.strategy",
        "contents": "checkpoint",
        "keep": "trainer.max_ckpt_to_keep",
    },
    "actor": {
        "parameters": "parameters",
        "model": "actor_rollout_ref.model",
        "engine": "actor_rollout_ref.actor.fsdp_config",
        "strategy": "actor_rollout_ref.actor.strategy",
        "contents": "actor_rollout_ref.actor.checkpoint",
        "keep": "trainer.max_actor_ckpt_to_keep",
    },
    "critic": {
        "parameters": "critic_parameters",
        "model": "critic.model",
        "engine": "critic.fsdp",
        "strategy": "critic.strategy",
        "contents": "critic.checkpoint",
        "keep": "trainer.max_critic_ckpt_to_keep",
    },
}
ITEM_BYTES = {"F64": 8, "F32": 4, "float32": 4, "fp32": 4, "F16": 2, "BF16": 2, "fp16": 2, "bf16": 2}

# The import of verl's utils/import_utils.py: load_module, in a process of its own; what the file prints goes nowhere.
REWARD_PROBE = """
import json, os, sys
answer = os.dup(1)
os.dup2(2, 1)
# Ray's workers do not look into the current directory.
sys.path[:] = [path for path in sys.path if path]
path, function = sys.argv[1:]

def say(**said):
    os.write(answer, json.dumps(said).encode())
    os._exit(0)

import importlib.util, inspect, traceback
spec = importlib.util.spec_from_file_location(f"custom_module_{hash(os.path.abspath(path))}", path)
module = importlib.util.module_from_spec(spec)
try:
    spec.loader.exec_module(module)
except BaseException as error:
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    say(error=f"{type(error).__name__}: {error}", line=line, missing=missing)
if not hasattr(module, function):
    say(functions=[name for name, value in vars(module).items()
                   if inspect.isfunction(value) and value.__module__ == module.__name__])
found = getattr(module, function)
if not callable(found):
    say(type=type(found).__name__)
try:
    signature = inspect.signature(found)
except (TypeError, ValueError):
    say(parameters=None)
say(text=str(signature), is_async=inspect.iscoroutinefunction(found),
    parameters=[[each.name, each.kind.name, each.default is each.empty] for each in signature.parameters.values()])
"""


def finding(where: str, what: str, todo: str, severity: str = ERROR) -> dict[str, str]:
    return {"where": where, "what": what, "todo": todo, "severity": severity}


def one_line(error: object) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def size_text(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def setting(config: Mapping[str, Any] | None, key: str, default: Any = None) -> Any:
    """A value of the job's configuration by its dotted key; the default where it is null or not there."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    # An interpolation that nobody has resolved is not a value.
    return default if value is None or (isinstance(value, str) and value.startswith("${")) else value


def listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def accepted(request: Mapping[str, Any], check: str) -> str:
    """The severity of a check's errors: whoever insists gets them as warnings."""
    return WARNING if check in (request.get("accept") or ()) else ERROR


def is_lfs_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def pointer_finding(where: str, path: Path) -> dict[str, str]:
    todo = "stage the real file: `git lfs pull` where it was cloned, or download it again"
    return finding(where, f"{path} is a git-lfs pointer, not the file", todo)


# --- On every node ---------------------------------------------------------------------------------------------------


def check_node(request: Mapping[str, Any]) -> list[dict[str, str]]:
    """Whether this node sees what the head has seen, and can write where jobs write."""
    root = Path(request["shared_root"])
    jobs = root / "jobs"
    if not jobs.is_dir():
        todo = "mount the shared root at this path on every node, and run cluster_up.yml"
        return [finding("shared_root", f"{jobs} is not there", todo)]
    found = write_findings(jobs)
    files = request.get("files") or ()
    sizes = files if isinstance(files, Mapping) else dict.fromkeys(files)
    for name, size in sizes.items():
        found += seen_findings(request, Path(name), size, root.resolve())
    return found


def write_findings(directory: Path) -> list[dict[str, str]]:
    test = directory / f".write-test-{uuid.uuid4().hex}"
    try:
        with test.open("xb") as file:
            file.write(b"x")
        test.unlink()
    except OSError as error:
        todo = f"give user id {os.geteuid()} permission to write there, and see that the file system is not full"
        return [finding("shared_root", f"{directory} is not writable: {error.strerror or error}", todo)]
    return []


def key_of(request: Mapping[str, Any], path: Path) -> str:
    """The key of the JobSpec that a file belongs to."""
    if request.get("reward") and Path(request["reward"][0]) == path:
        return "reward_fn_path"
    for key in ("model", "dataset", "code_path"):
        home = request.get(key)
        if home and (Path(home) == path or Path(home) in path.parents):
            return key
    return "shared_root"


def seen_findings(request: Mapping[str, Any], path: Path, size: int | None, root: Path) -> list[dict[str, str]]:
    where = key_of(request, path)
    try:
        real = path.resolve()
        if root != real and root not in real.parents:
            todo = f"copy it to {root}: what lies elsewhere may be missing on another node"
            return [finding(where, f"{path} leads out of the shared root, to {real}", todo)]
        status = path.stat()
        if path.is_file():
            with path.open("rb"):
                pass
    except FileNotFoundError:
        what = f"{path} is a link to {path.resolve()}, which is not there" if path.is_symlink() else None
        return [finding(where, what or f"{path} is not there", "see that all nodes mount the same file system")]
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        todo = f"give user id {os.geteuid()} permission to read it, and see that the file system is well"
        return [finding(where, f"{path} cannot be read: {one_line(error)}", todo)]
    if size is not None and status.st_size != size:
        what = f"{path} has {status.st_size} bytes, on the head it has {size}"
        return [finding(where, what, "see that all nodes mount the same file system, and that nobody writes to it")]
    return []


# --- On one worker ---------------------------------------------------------------------------------------------------


def check_worker(request: Mapping[str, Any]) -> dict[str, Any]:
    """All that is wrong with data, model, reward, packages and space, and what is known of them.

    Facts, absent or None where they are unknown: train_rows, val_rows, data_sources (of the rows looked at);
    model_bytes, parameters, critic_parameters; versions (of what verl declares: None is not installed); free_bytes,
    steps, checkpoint_bytes (one checkpoint), checkpoints_kept, checkpoint_space (all that are kept); seconds (a check).
    """
    found: list[dict[str, str]] = []
    facts: dict[str, Any] = {"parameters": None}
    for where, check in (
        ("dataset", data_findings),
        ("model", model_findings),
        ("reward_fn_path", reward_findings),
        ("code_path", requirement_findings),
        ("shared_root", space_findings),
    ):
        started = time.monotonic()
        try:
            found += check(request, facts)
        except Exception as error:
            # A file of a kind that nobody has thought of must not keep a good job away.
            what = f"could not be checked: {type(error).__name__}: {one_line(error)}"
            found.append(finding(where, what, "report it; the job itself may be well", WARNING))
        facts.setdefault("seconds", {})[where] = round(time.monotonic() - started, 3)
    return {"findings": found, "facts": facts}


# --- Data ------------------------------------------------------------------------------------------------------------


def data_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> list[dict[str, str]]:
    config = request.get("config")
    found: list[dict[str, str]] = []
    for split in ("train", "val"):
        rows: int | None = 0
        files = data_files(request, split)
        for file in files:
            # verl fetches hdfs:// itself, and reads JSON lines for RL: neither tells its rows without being read.
            if not file.startswith("/") or file.endswith((".json", ".jsonl")):
                rows = None
                continue
            more, count = parquet_findings(request, facts, Path(file))
            found += more
            rows = None if rows is None or count is None else rows + count
        if not files or rows is None:
            continue
        limit = setting(config, f"data.{split}_max_samples", -1)
        rows = min(rows, limit) if limit > 0 else rows
        facts[f"{split}_rows"] = rows
        if rows == 0:
            found.append(finding("dataset", f"{', '.join(files)} has no rows", "stage it again, with rows in it"))
        else:
            found += batch_findings(request, split, rows, ", ".join(files))
    return found


def data_files(request: Mapping[str, Any], split: str) -> list[str]:
    if request.get("config") is None:
        return [f"{request['dataset']}/{split}.parquet"]
    files = map(str, listed(setting(request["config"], f"data.{split}_files")))
    return [file if "://" in file else str(Path(file).expanduser()) for file in files]


def batch_findings(request: Mapping[str, Any], split: str, rows: int, files: str) -> list[dict[str, str]]:
    """The last batch is dropped when it is not full, and so is the first when there is no other."""
    config = request.get("config")
    batch = setting(config, "data.train_batch_size")
    if not batch or rows >= batch or setting(config, "data.custom_cls.path"):
        return []
    if split == "train":
        what = f"{files} has {rows} rows, a batch takes {batch} (data.train_batch_size): there would be no step"
        todo = f"set data.train_batch_size to at most {rows} in trainer_overrides, or stage more rows"
        return [finding("dataset", what, todo)]
    if request["workload"] == SFT:
        # trainer/sft_trainer_ray.py: _build_dataloader validates in batches of the same size, and drops as well.
        what = f"{files} has {rows} rows, a batch takes {batch} (data.train_batch_size): val/loss would be nan"
        todo = f"set data.train_batch_size to at most {rows} in trainer_overrides, or stage more rows"
        return [finding("dataset", what, todo, WARNING)]
    return []


def parquet_findings(
    request: Mapping[str, Any], facts: dict[str, Any], path: Path
) -> tuple[list[dict[str, str]], int | None]:
    """What is wrong with a file, and its rows."""
    from pyarrow import ArrowException, parquet

    try:
        if is_lfs_pointer(path):
            return [pointer_finding("dataset", path)], None
        # Not whole column chunks: they may hold a gigabyte of images each.
        # pre_buffer would hold whole row groups all the same.
        file = parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    except FileNotFoundError:
        return [finding("dataset", f"{path} is not there", "stage it, or correct dataset")], None
    except (OSError, ArrowException) as error:
        what = f"{path} is not readable as parquet: {one_line(error)}"
        return [finding("dataset", what, "stage it again: it may have been cut off")], None
    with file:
        rows = file.metadata.num_rows
        # A dataset class of the user's own reads what it likes.
        if setting(request.get("config"), "data.custom_cls.path"):
            return [], rows
        found, columns = schema_findings(request, path, file.schema_arrow)
        if any(each["severity"] == ERROR for each in found):
            return found, rows
        try:
            batch = next(file.iter_batches(SAMPLE_ROWS, columns=columns), None)
        except (OSError, ArrowException) as error:
            what = f"{path} is damaged: {one_line(error)}"
            return [finding("dataset", what, "stage it again")], rows
        found += row_findings(request, facts, path, batch.to_pylist() if batch else [])
    return found, rows


def messages_key(request: Mapping[str, Any]) -> str:
    key, default = ("data.messages_key", "messages") if request["workload"] == SFT else ("data.prompt_key", "prompt")
    return str(setting(request.get("config"), key, default))


def has_reward_model(request: Mapping[str, Any]) -> bool:
    config = request.get("config")
    # The second is the name up to 0.8; 0.9 still has it, as null.
    return bool(setting(config, "reward.reward_model.enable") or setting(config, "reward_model.enable"))


def reward_manager(request: Mapping[str, Any]) -> str | None:
    """The one of verl's own reward managers that calls the reward function; None for another one, and for sft."""
    config = request.get("config")
    if request["workload"] == SFT or setting(config, "reward.reward_manager.source", "register") != "register":
        return None
    # Up to 0.8 the second name; 0.9 still has it, as null.
    name = setting(config, "reward_model.reward_manager") or setting(config, "reward.reward_manager.name", "naive")
    return str(name) if name in REWARD_MANAGERS else None


def reward_columns(request: Mapping[str, Any]) -> list[str]:
    """The columns that the reward is computed from."""
    # experimental/reward_loop/reward_loop.py: compute_score asks the reward model alone.
    if reward_manager(request) is None or (has_reward_model(request) and not request.get("reward")):
        return []
    return [data_source_key(request), "reward_model"]


def data_source_key(request: Mapping[str, Any]) -> str:
    """Since 0.9 always the same: data.reward_fn_key is still in its configuration, but nothing reads it."""
    key = str(setting(request.get("config"), "data.reward_fn_key", "data_source"))
    return "data_source" if is_since(request, (0, 9)) else key


def is_since(request: Mapping[str, Any], release: tuple[int, int]) -> bool:
    """Whether the snapshot is of this release of verl or a later one; what does not tell is taken for the latest."""
    try:
        version = (Path(request["code_path"]) / "verl" / "version" / "version").read_text(encoding="utf-8")
        major, minor = version.strip().split(".")[:2]
        return (int(major), int(minor)) >= release
    except (OSError, ValueError):
        return True


def schema_findings(request: Mapping[str, Any], path: Path, schema: Any) -> tuple[list[dict[str, str]], list[str]]:
    """What is wrong with the columns, and those that are there of the ones that verl reads."""
    from pyarrow import types

    def fields(kind: Any) -> list[str]:
        return [kind.field(index).name for index in range(kind.num_fields)] if types.is_struct(kind) else []

    workload, names, key = request["workload"], schema.names, messages_key(request)
    has = f"it has: {', '.join(names)}"
    found: list[dict[str, str]] = []
    if key not in names:
        if workload == SFT and {"prompt", "reward_model"} <= set(names):
            what = f"{path} is a dataset for ppo and grpo (prompt, reward_model), not for sft: it has no column {key}"
            return [finding("dataset", what, "name a dataset made for sft, or choose workload: grpo or ppo")], []
        if workload != SFT and "messages" in names:
            what = f"{path} is a dataset for sft (messages), not for {workload}: it has no column {key}"
            return [finding("dataset", what, f"name a dataset made for {workload}, or choose workload: sft")], []
        option = "data.messages_key" if workload == SFT else "data.prompt_key"
        todo = f"name its column of messages with {option} in trainer_overrides, or stage it in verl's form"
        return [finding("dataset", f"{path} has no column {key}; {has}", todo)], []
    kind = schema.field(key).type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or not {"role", "content"} <= set(fields(kind.value_type)):
        what = f"{path}: column {key} is {kind}, verl reads a list of {{role, content}}"
        return [finding("dataset", what, "stage it in verl's form; see examples/data_preprocess of verl")], []
    columns = [key]
    reward = reward_columns(request)
    if reward:
        columns += reward
        for name in reward:
            if name not in names:
                what = f"{path} has no column {name}, which verl's reward managers read; {has}"
                found.append(finding("dataset", what, "stage it in verl's form; see examples/data_preprocess of verl"))
        if "reward_model" in names and "ground_truth" not in fields(schema.field("reward_model").type):
            what = f"{path}: column reward_model is {schema.field('reward_model').type}, without ground_truth in it"
            found.append(finding("dataset", what, "give it the form {style: rule, ground_truth: …}"))
        fn_key = setting(request.get("config"), "data.reward_fn_key", "data_source")
        if fn_key != data_source_key(request):
            what = f"data.reward_fn_key={fn_key} does nothing: since verl 0.9 the column is always data_source"
            found.append(finding("dataset", what, "leave it out", WARNING))
    if workload != SFT and "extra_info" in names:
        kind = schema.field("extra_info").type
        # utils/dataset/rl_dataset.py: __getitem__ calls its get().
        if not types.is_struct(kind) and not types.is_null(kind):
            what = f"{path}: column extra_info is {kind}, verl reads a mapping"
            found.append(finding("dataset", what, "make it a mapping, or leave it out"))
    return found, [name for name in columns if name in names]


def row_findings(
    request: Mapping[str, Any], facts: dict[str, Any], path: Path, sample: list[dict[str, Any]]
) -> list[dict[str, str]]:
    """What is wrong with the first rows; each kind once, with the first row that has it."""
    problems: dict[tuple[str, str], list[int]] = {}
    sources: dict[str, int] = {}
    source_key = data_source_key(request)
    for number, row in enumerate(sample):
        for problem in message_problems(request, row):
            problems.setdefault(problem, []).append(number)
        if "reward_model" in row:
            sources.setdefault(str(row[source_key]), number)
            if not request.get("reward") and (row["reward_model"] or {}).get("ground_truth") is None:
                problems.setdefault(("its ground_truth is null", ERROR), []).append(number)
    facts["data_sources"] = sorted({*facts.get("data_sources", ()), *sources})
    found = []
    for (what, severity), rows in problems.items():
        more = f" (and {len(rows) - 1} more of the first {len(sample)})" if len(rows) > 1 else ""
        todo = "correct the data and stage it again"
        found.append(finding("dataset", f"{path}, row {rows[0]}: {what}{more}", todo, severity))
    if sources and not request.get("reward"):
        known = known_data_sources(Path(request["code_path"]))
        for source, number in sources.items():
            if known and source not in known[0] and not source.startswith(known[1]):
                what = f"{path}, row {number}: verl has no reward function for data_source {source!r}"
                found.append(finding("dataset", what, "give reward_fn_path, or a data_source that verl knows"))
    return found


def message_problems(request: Mapping[str, Any], row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    messages = row[messages_key(request)] or []
    roles = [(message or {}).get("role") for message in messages]
    if not messages:
        yield "it has no messages", ERROR
    elif request["workload"] == SFT and "assistant" not in roles:
        # utils/dataset/multiturn_sft_dataset.py: _process_single_message masks out everybody else.
        what = "no message is the assistant's, so there is nothing to learn"
        yield f"{what} (roles: {', '.join(map(str, roles))})", ERROR
    for role, message in zip(roles, messages):  # noqa: B905 - strict= is of Python 3.10
        if not role:
            yield "a message has no role", ERROR
        elif role not in ROLES:
            yield f"the role {role!r} is none that chat templates know ({', '.join(ROLES)})", WARNING
        elif role in ("user", "assistant") and not message.get("content") and not message.get("tool_calls"):
            yield f"a message of the {role} is empty", ERROR


def constants(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def known_data_sources(code_path: Path) -> tuple[set[str], tuple[str, ...]] | None:
    """What the snapshot's own default_compute_score compares data_source with: names, and beginnings of names."""
    try:
        tree = ast.parse((code_path / "verl" / "utils" / "reward_score" / "__init__.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
    names: set[str] = set()
    beginnings: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "data_source":
            for each in node.comparators:
                names.update(constants(each))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "data_source.startswith":
            beginnings += [name for each in node.args for name in constants(each)]
    return (names, tuple(beginnings)) if names else None


# --- Model -----------------------------------------------------------------------------------------------------------


def has_critic(request: Mapping[str, Any]) -> bool:
    """trainer/ppo/utils.py: need_critic."""
    default = request["workload"] == "ppo"
    return request["workload"] != SFT and bool(setting(request.get("config"), "critic.enable", default))


def model_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> list[dict[str, str]]:
    config = request.get("config")
    section = "model" if request["workload"] == SFT else "actor_rollout_ref.model"
    model = str(setting(config, f"{section}.path", request["model"]))
    # A name on the hub is looked up in HF_HOME, by rules of its own.
    if not model.startswith("/"):
        return []
    where = "model" if model == request["model"] else f"trainer_overrides: {section}.path"
    if not Path(model).is_dir():
        return config_findings(where, Path(model))
    found, facts["model_bytes"], facts["parameters"] = weight_findings(where, Path(model))
    found = config_findings(where, Path(model)) + found
    tokenizer = str(setting(config, f"{section}.tokenizer_path", model))
    if tokenizer.startswith("/"):
        template = bool(setting(config, f"{section}.custom_chat_template"))
        found += tokenizer_findings(where, Path(tokenizer), has_template=template)
    critic = str(setting(config, "critic.model.path", model))
    if has_critic(request):
        facts["critic_parameters"] = facts["parameters"]
        if critic != model and critic.startswith("/"):
            where = "trainer_overrides: critic.model.path"
            more, _dummy, facts["critic_parameters"] = weight_findings(where, Path(critic))
            found += config_findings(where, Path(critic)) + more
    return found


def config_findings(where: str, model: Path) -> list[dict[str, str]]:
    path = model / "config.json"
    try:
        if is_lfs_pointer(path):
            return [pointer_finding(where, path)]
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (model / "adapter_config.json").is_file():
            todo = "name the base model, and the adapter with actor_rollout_ref.model.lora_adapter_path"
            return [finding(where, f"{model} is a LoRA adapter, not a model", todo)]
        return [finding(where, f"{path} is not there", "name the directory that holds it and the weights")]
    except (OSError, ValueError) as error:
        return [finding(where, f"{path} is not readable as JSON: {one_line(error)}", "stage the model again")]
    if not isinstance(read, dict) or not read.get("model_type"):
        return [finding(where, f"{path} has no model_type", "stage the model again, in the form of transformers")]
    architectures = read.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1:
        # workers/config/model.py: HFModelConfig asserts it.
        what = f"{path} has architectures {json.dumps(architectures)}, verl wants exactly one"
        return [finding(where, what, "stage the model again, in the form of transformers")]
    return []


def tokenizer_findings(where: str, path: Path, *, has_template: bool) -> list[dict[str, str]]:
    tokenizer, settings = path / "tokenizer.json", path / "tokenizer_config.json"
    for file in (tokenizer, settings):
        if file.is_file() and is_lfs_pointer(file):
            return [pointer_finding(where, file)]
        # The first may have 30 MB: its end tells whether it is whole.
        if file.is_file() and not ends_as_mapping(file):
            return [finding(where, f"{file} is cut off", "stage the model again")]
    vocabulary = any(True for pattern in VOCABULARIES for _dummy in path.glob(pattern))
    if not tokenizer.is_file() and not (settings.is_file() and vocabulary):
        what = f"{path} has no tokenizer: neither tokenizer.json, nor tokenizer_config.json with a vocabulary"
        return [finding(where, what, "stage the tokenizer's files beside the weights")]
    try:
        read = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    except (OSError, ValueError) as error:
        return [finding(where, f"{settings} is not readable as JSON: {one_line(error)}", "stage the model again")]
    templates = ("chat_template.jinja", "chat_template.json")
    if has_template or read.get("chat_template") or any((path / name).is_file() for name in templates):
        return []
    what = f"{path} has no chat template, and verl applies one to every row"
    todo = "add chat_template.jinja (instruct models have one), or set custom_chat_template of the model"
    return [finding(where, what, todo, WARNING)]


def ends_as_mapping(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")


def weight_findings(where: str, model: Path) -> tuple[list[dict[str, str]], int, int | None]:
    """What is wrong with the weights, their bytes, and the number of parameters."""
    again = "stage the model again: the download may have been cut off"
    name = next((name for name in WEIGHTS if (model / name).is_file()), None)
    if name is None:
        todo = "name a directory with weights, in the form that save_pretrained writes"
        what = f"{model} has no weights: neither model.safetensors nor pytorch_model.bin, whole or with an index"
        return [finding(where, what, todo)], 0, None
    shards = [name]
    if name.endswith(".index.json"):
        try:
            if is_lfs_pointer(model / name):
                return [pointer_finding(where, model / name)], 0, None
            shards = sorted(set(json.loads((model / name).read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            return [finding(where, f"{model / name} is not readable as an index: {one_line(error)}", again)], 0, None
    missing = [shard for shard in shards if not (model / shard).is_file()]
    if missing:
        what = f"{len(missing)} of {len(shards)} shards in {model} are not there: {', '.join(missing[:3])}"
        return [finding(where, what + (", …" if len(missing) > 3 else ""), again)], 0, None
    found: list[dict[str, str]] = []
    size, parameters = 0, 0
    for path in (model / shard for shard in shards):
        size += path.stat().st_size
        if is_lfs_pointer(path):
            found.append(pointer_finding(where, path))
        elif path.suffix == ".safetensors":
            problem, count = safetensors_problem(path)
            parameters += count
            if problem:
                found.append(finding(where, f"{path} {problem}", again))
        elif torch_file_is_cut(path):
            found.append(finding(where, f"{path} is cut off", again))
    if name.startswith("pytorch") and not found:
        parameters = size // ITEM_BYTES.get(declared_dtype(model), 2)
    return found, size, None if found else parameters


def safetensors_problem(path: Path) -> tuple[str | None, int]:
    """What is wrong with a file, as its header tells without the data, and the number of its parameters."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > SAFETENSORS_HEADER_LIMIT:
            return f"has no safetensors header ({size_text(size)})", 0
        if size < 8 + length:
            return f"has {size} bytes, its header alone {8 + length}: it is cut off", 0
        try:
            header = json.loads(file.read(length))
            tensors = [each for name, each in header.items() if name != "__metadata__"]
            implied = 8 + length + max((each["data_offsets"][1] for each in tensors), default=0)
            count = 0
            for each in tensors:
                elements = 1
                for extent in each["shape"]:
                    elements *= extent
                count += elements
        except (ValueError, KeyError, AttributeError, TypeError, IndexError):
            return f"has no safetensors header ({size_text(size)})", 0
    if size != implied:
        state = "it is cut off" if size < implied else "it is not what was saved"
        return f"has {size} bytes, its header says {implied}: {state}", count
    return None, count


def torch_file_is_cut(path: Path) -> bool:
    """torch.save writes a zip archive, whose directory is its end; older files are not archives."""
    import zipfile

    with path.open("rb") as file:
        return file.read(2) in (b"", b"PK") and not zipfile.is_zipfile(path)


def declared_dtype(model: Path) -> str:
    try:
        read = json.loads((model / "config.json").read_text(encoding="utf-8"))
        return str(read.get("dtype") or read.get("torch_dtype"))
    except (OSError, ValueError, AttributeError):
        return ""


# --- Reward ----------------------------------------------------------------------------------------------------------


def reward_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> list[dict[str, str]]:
    if not request.get("reward"):
        return []
    file, function = request["reward"]
    path = Path(file)
    try:
        # Bytes, so that a declared encoding counts.
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except FileNotFoundError:
        return [finding("reward_fn_path", f"{path} is not there", "stage it, or correct reward_fn_path")]
    except (OSError, ValueError) as error:
        return [finding("reward_fn_path", f"{path} is not readable: {one_line(error)}", "correct the file")]
    except SyntaxError as error:
        return [finding("reward_fn_path", f"{path}, line {error.lineno}: {error.msg}", "correct the file")]
    environment = {**os.environ, **{name: str(value) for name, value in (request.get("environment") or {}).items()}}
    try:
        done = subprocess.run(
            # -B: user/code is not ours, and perhaps read-only.
            [sys.executable, "-B", "-c", REWARD_PROBE, str(path), function],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=REWARD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        what = f"{path} is not imported after {REWARD_SECONDS} s, so that its function is not checked"
        todo = "move what takes long from the module into the function: every reward worker imports it"
        return [finding("reward_fn_path", what, todo, WARNING)]
    try:
        said = json.loads(done.stdout)
    except ValueError:
        what = f"{path} ends the process that imports it (exit status {done.returncode})"
        return [finding("reward_fn_path", what, "run it alone on a node, and correct the file")]
    return import_findings(path, function, said) or signature_findings(request, path, function, said)


def import_findings(path: Path, function: str, said: Mapping[str, Any]) -> list[dict[str, str]]:
    where = "reward_fn_path"
    line = f"{path}, line {said['line']}" if said.get("line") else str(path)
    if said.get("missing"):
        top = said["missing"].partition(".")[0]
        if (path.parent / f"{top}.py").is_file() or (path.parent / top).is_dir():
            what = f"{line}: imports {said['missing']}, and verl does not look beside the file"
            return [finding(where, what, f"add env_vars: {{PYTHONPATH: {path.parent}}}")]
        what = f"{line}: imports {said['missing']}, which the workers do not have"
        return [finding(where, what, "add it to the image, or do without it")]
    if "error" in said:
        return [finding(where, f"{line}: its import ends with {one_line(said['error'])}", "correct the file")]
    if "functions" in said:
        has = f"it has: {', '.join(said['functions'])}" if said["functions"] else "it has none"
        return [finding(where, f"{path} has no function {function}; {has}", "correct its name")]
    if "type" in said:
        return [finding(where, f"{path}: {function} is a {said['type']}, not a function", "correct its name")]
    return []


def signature_findings(
    request: Mapping[str, Any], path: Path, function: str, said: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Whether the function takes what verl's own reward managers pass, all of it by name."""
    config = request.get("config")
    if said.get("parameters") is None or reward_manager(request) is None:
        return []
    if said["is_async"] and reward_manager(request) == "remote":
        what = f"{path}: {function} is async, which verl's reward manager remote does not take"
        return [finding("reward_fn_path", what, "make it a plain function, or choose another reward_manager")]
    own = ("reward.custom_reward_function.reward_kwargs", "custom_reward_function.reward_kwargs")
    passed = [*REWARD_ARGUMENTS, *(name for key in own for name in setting(config, key, {}))]
    if has_reward_model(request):
        passed += REWARD_MODEL_ARGUMENTS
    parameters = said["parameters"]
    by_name = [name for name, kind, _dummy in parameters if kind in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")]
    takes_any = any(kind == "VAR_KEYWORD" for _dummy, kind, _dummy in parameters)
    unknown = [] if takes_any else [name for name in passed if name not in by_name]
    wanting = [
        name
        for name, kind, required in parameters
        if required and not kind.startswith("VAR_") and (name not in passed or kind == "POSITIONAL_ONLY")
    ]
    problems = []
    if unknown:
        problems.append(f"does not take {', '.join(unknown)}, which verl passes by name")
    if wanting:
        problems.append(f"wants {', '.join(wanting)}, which verl does not pass")
    if not problems:
        return []
    what = f"{path}: {function}{said['text']} {', and '.join(problems)}"
    todo = f"make it def {function}(data_source, solution_str, ground_truth, extra_info=None, **kwargs)"
    return [finding("reward_fn_path", what, todo)]


# --- Requirements ----------------------------------------------------------------------------------------------------


def dispensable(request: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, bool]:
    """Packages that verl declares for every job and imports only for some, and whether this job is one of those.

    Read in verl 0.9.0 and 0.9.1. Every job imports the others that they declare, dill by way of datasets.
    """
    config = request.get("config")
    loggers = listed(setting(config, "trainer.logger"))
    sources = () if request.get("reward") else facts.get("data_sources", ())
    return {
        "wandb": bool({"wandb", "tracking"} & set(loggers)),  # utils/tracking.py: Tracking
        "tensorboard": "tensorboard" in loggers,  # the same
        # utils/reward_score/prime_math/__init__.py, for data sources of these names.
        "pylatexenc": any(source.startswith("numina") for source in sources),
        # Nothing imports it; Megatron compiles a helper with it.
        "pybind11": setting(config, "actor_rollout_ref.actor.strategy") == "megatron",
    }


def requirement_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> list[dict[str, str]]:
    """What verl declares against what is installed here.

    A snapshot swaps verl, not what it stands on. What it declares for every job counts; of the extra of the rollout's
    engine, the engine itself: the other pins in there tell with what verl's authors have tested.
    """
    try:
        manifest = json.loads((Path(request["code_path"]) / "manifest.json").read_text(encoding="utf-8"))
        lines = [str(line) for line in manifest.get("requirements") or ()]
    except (OSError, ValueError, AttributeError):
        return []  # whether it is a snapshot at all is the head's question
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError:
        what = "the workers have no packaging, so that what verl declares is not compared with what they have"
        return [finding("code_path", what, "add it to the image: verl needs it too", WARNING)]
    verl = f"verl {manifest.get('verl_version')}"
    engine, extra = ENGINES.get(setting(request.get("config"), "actor_rollout_ref.rollout.name"), (None, None))
    needless = {name for name, needed in dispensable(request, facts).items() if not needed}
    severity = accepted(request, "requirements")
    todo = "use an image made for this verl, another snapshot, or insist with accept: [requirements]"
    found: list[dict[str, str]] = []
    tested: list[str] = []
    versions = facts.setdefault("versions", {})
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if marker is not None and not always and (extra is None or not marker.evaluate({"extra": extra})):
            continue
        declared = f"{requirement.name}{requirement.specifier}"
        version = installed_version(request, requirement.name)
        versions[requirement.name] = version
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            continue
        if not always and requirement.name != engine:
            tested += [f"{declared} (the workers have {version})"] if version else []
        elif version is not None:
            grade = WARNING if not always and same_minor(requirement, version) else severity
            what = f"{verl} declares {declared}, the workers have {version}"
            found.append(finding("code_path", what, todo, grade))
        elif requirement.name not in needless:
            what = f"{verl} declares {declared}, the workers do not have it"
            found.append(finding("code_path", what, todo, severity))
    if tested:
        what = f"{verl} is tested for {extra} with {', '.join(tested)}"
        found.append(finding("code_path", what, "nothing, if this image is known to train", WARNING))
    return found


def installed_version(request: Mapping[str, Any], name: str) -> str | None:
    """The version that the job would import: its own PYTHONPATH goes first."""
    from importlib import metadata

    own = str((request.get("environment") or {}).get("PYTHONPATH", "")).split(":")
    for distribution in metadata.distributions(name=name, path=[*filter(None, own), *sys.path]):
        return distribution.version
    return None


def same_minor(requirement: Any, version: str) -> bool:
    """Whether a pin differs in the last part alone: vllm==0.24.0 and 0.24.1."""
    from packaging.version import Version

    return all(
        each.operator == "==" and Version(each.version).release[:2] == Version(version).release[:2]
        for each in requirement.specifier
    )


# --- Space -----------------------------------------------------------------------------------------------------------


def space_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> list[dict[str, str]]:
    """Whether the checkpoints of the whole job will fit."""
    config = request.get("config")
    root = request["shared_root"]
    status = os.statvfs(root)
    free = facts["free_bytes"] = status.f_bavail * status.f_frsize
    if config is None:
        return []
    found, saved = step_findings(request, facts)
    if saved is None:
        return found
    parts = ["model"] if request["workload"] == SFT else ["actor", "critic"] if has_critic(request) else ["actor"]
    each = {part: checkpoint_bytes(config, CHECKPOINTS[part], facts) for part in parts}
    if not all(each.values()):
        return found
    kept = {part: checkpoints_kept(config, CHECKPOINTS[part], saved) for part in parts}
    needed = sum(kept[part] * each[part] for part in parts)
    facts.update(checkpoint_bytes=sum(each.values()), checkpoints_kept=max(kept.values()), checkpoint_space=needed)
    if not needed or needed < ALMOST_FULL * free:
        return found
    terms = ", ".join(
        f"{kept[part]} of {saved} at a time, {size_text(each[part])} each for the {part}" for part in parts
    )
    what = f"checkpoints need about {size_text(needed)} ({terms}), {size_text(free)} are free in {root}"
    todo = f"raise trainer.save_freq, lower {' and '.join(CHECKPOINTS[part]['keep'] for part in parts)}, make room"
    if needed <= free:
        return [*found, finding("shared_root", what, todo, WARNING)]
    # Other strategies than FSDP write other files: about as large, but nobody has measured them here.
    is_measured = all(str(setting(config, CHECKPOINTS[part]["strategy"], "fsdp")).startswith("fsdp") for part in parts)
    severity = accepted(request, "space") if is_measured else WARNING
    return [*found, finding("shared_root", what, f"{todo}, or insist with accept: [space]", severity)]


def step_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> tuple[list[dict[str, str]], int | None]:
    """Fills in the steps, and returns how many checkpoints the job writes."""
    config = request["config"]
    rows, batch = facts.get("train_rows"), setting(config, "data.train_batch_size")
    epochs, asked = setting(config, "trainer.total_epochs", 1), setting(config, "trainer.total_training_steps")
    if not rows or not batch:
        return [], None
    steps_per_epoch = rows // batch
    steps = steps_per_epoch * epochs
    found: list[dict[str, str]] = []
    is_complete = True
    if asked is not None and asked > steps > 0:
        # trainer/sft_trainer_ray.py and trainer/ppo/v1/trainer_base.py: fit; the loop ends with the epochs, and only
        # the step of the asked number counts as the last.
        is_complete = False
        what = (
            f"trainer.total_training_steps={asked}, but trainer.total_epochs={epochs} ends the job after {steps} steps "
            f"({rows} rows in batches of {batch})"
        )
        todo = "raise trainer.total_epochs; as it is, the last steps are not saved"
        found.append(finding("trainer_overrides", what, todo, WARNING))
    elif asked is not None and steps:
        steps = asked
    facts["steps"] = steps
    every = setting(config, "trainer.save_freq", -1)
    every = steps_per_epoch if every == "after_each_epoch" else every
    # SFT saves its last step even with save_freq=-1, RL does not.
    is_last_saved = is_complete and (every > 0 or request["workload"] == SFT)
    saved = steps // every if every > 0 else 0
    if steps and is_last_saved and (every <= 0 or steps % every):
        saved += 1
    return found, saved


def checkpoints_kept(config: Mapping[str, Any], keys: Mapping[str, str], saved: int) -> int:
    """How many are there at the same time: utils/checkpoint/checkpoint_manager.py."""
    limit = 1 if setting(config, "trainer.remove_previous_ckpt_in_save", False) else setting(config, keys["keep"])
    if not isinstance(limit, int) or limit <= 0:
        return saved
    # With 1 the old one goes once the new one is there, with more before that.
    return min(saved, max(limit, 2))


def checkpoint_bytes(config: Mapping[str, Any], keys: Mapping[str, str], facts: Mapping[str, Any]) -> int:
    """utils/checkpoint/fsdp_checkpoint_manager.py: save_checkpoint. 0 when the number of parameters is not known.

    Of real checkpoints of a model of 124,096 parameters it is 97 % (actor), 96 % (with hf_model) and 116 % (critic,
    which has no output layer); what is missing does not grow with the model.
    """
    contents = setting(config, f"{keys['contents']}.save_contents", ["model", "optimizer", "extra"])
    # Training is in fp32 unless told otherwise (trainer/config/engine/fsdp.yaml), and so are Adam's two moments.
    item = ITEM_BYTES.get(setting(config, f"{keys['engine']}.model_dtype", "fp32"), 4)
    has_lora = (setting(config, f"{keys['model']}.lora_rank") or setting(config, f"{keys['model']}.lora.rank") or 0) > 0
    items = 0
    if "model" in contents and not (has_lora and setting(config, f"{keys['contents']}.save_lora_only", False)):
        items += 1
    if "optimizer" in contents and not has_lora:
        items += 2
    # The whole model once more, in the type of training.
    if "hf_model" in contents:
        items += 1
    return int(facts.get(keys["parameters"]) or 0) * item * items
