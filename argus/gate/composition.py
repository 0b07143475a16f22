# SPDX-License-Identifier: Apache-2.0
"""Composes the trainer's configuration before the job runs, as Hydra will when it runs.

Also finds settings that an override adds and that no code reads. This module runs its own source in a child process,
because Hydra keeps global state and resolvers read the environment. So it imports nothing of this program.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

# The source of this module, whose file may be inside the program's archive.
SOURCE = "" if __name__ == "__main__" else inspect.getsource(sys.modules[__name__])
# Takes about 0.7 s on two cores, 1.4 s with a key to search for. The limit is for a shared root that does not answer.
COMPOSITION_TIMEOUT_SECONDS = 60
# The largest trainer of verl has 100 KiB.
MAX_SOURCE_BYTES = 4 << 20
# The maximum number of files of a snapshot or of users' code. verl has 600.
MAX_SOURCE_FILES = 3000
# Precedes the answer, because resolvers may print something before it.
ANSWER_MARK = "\nCOMPOSED "
# Options of Hydra's command line, with the arguments of @hydra.main that they replace.
HYDRA_OPTIONS = {
    "--config-name": "config_name",
    "-cn": "config_name",
    "--config-path": "config_path",
    "-cp": "config_path",
}
# Lines of errors that do not help: OmegaConf's types of nodes, and Hydra's advice on tracebacks and on adding keys.
NOISE_PREFIXES = (
    "object_type=",
    "reference_type=",
    "Set the environment variable HYDRA_FULL_ERROR",
    "To append to your config",
)
# verl registers its estimators of advantages in this file, by a member of an enumeration or by a name.
ESTIMATORS_FILE = "verl/trainer/ppo/core_algos.py"
REGISTERED_ESTIMATOR = re.compile(r"register_adv_est\(\s*(?:AdvantageEstimator\.(\w+)|[\"']([\w.-]+)[\"'])")
# Names of sections that verl passes on to libraries unchanged, with any keys.
PASSED_ON_SECTION = re.compile(r"override_\w+|\w*kwargs|kw_args|\w+_options|ray_init|transfer_queue")

# Pairs of the key of an override and the override. Only io.hydra gets keys from overrides.
Overrides = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Refusal:
    """An override that Hydra refuses."""

    error: str  # Hydra's message, without the traceback
    key: str = ""  # of the override; "" if it is unknown

    @property
    def is_unknown_key(self) -> bool:
        return bool(self.key) and "not in struct" in self.error


@dataclass(frozen=True)
class Composition:
    """A composed configuration, and the problems of its overrides."""

    # The resolved configuration as plain data, with "???" for missing values; None if there is none. It is composed
    # without the overrides that Hydra refuses, so that other problems are found as well.
    config: dict[str, Any] | None = None
    yaml: str = ""  # the same configuration
    output: str = ""  # the directory into which Hydra writes the configuration of a run
    errors: tuple[Refusal, ...] = ()  # every override that Hydra refuses
    unread: tuple[str, ...] = ()  # the keys that overrides add, and that nothing reads
    estimators: tuple[str, ...] = ()  # the names that algorithm.adv_estimator may have; empty if it has one of them


def compose(
    code_path: str,
    module: str,
    overrides: Overrides,
    environment: dict[str, str],
    tensorboard: str = "",
    user_code: str = "",
    directory: str = "",
) -> Composition:
    """Compose the configuration of a trainer in a child process.

    code_path: the snapshot. module: the trainer's Python module, of the snapshot or of users' code.
    environment: the variables of the job, in addition to those of this process.
    tensorboard: the override of the loggers to use if TensorBoard can be imported; "" for none.
    user_code: the directory of users' code, which may read settings as well; "" for none.
    directory: the working directory of the trainer; "" for any.
    """
    paths = [code_path, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    env = {**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": "1"}
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    try:
        done = subprocess.run(
            [sys.executable, "-c", SOURCE],
            input=json.dumps([code_path, module, list(overrides), tensorboard, user_code]),
            capture_output=True,
            text=True,
            env=env,
            cwd=directory or None,
            timeout=COMPOSITION_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return failed_composition(f"composing {module} took more than {COMPOSITION_TIMEOUT_SECONDS} s")
    _dummy, mark, answer = done.stdout.rpartition(ANSWER_MARK)
    if done.returncode or not mark:
        last_lines = "\n".join(done.stderr.strip().splitlines()[-3:])
        return failed_composition(f"{sys.executable} could not compose {module}: {last_lines}")
    values = json.loads(answer)
    values["errors"] = tuple(Refusal(**error) for error in values["errors"])
    values |= {name: tuple(values[name]) for name in ("unread", "estimators")}
    return Composition(**values)


def failed_composition(error: str) -> Composition:
    return Composition(errors=(Refusal(error),))


def has_tensorboard() -> bool:
    """Whether TensorBoard's writer can be imported; another version of protobuf may prevent that."""
    try:
        importlib.import_module("tensorboard.compat.proto.event_pb2")
        importlib.import_module("tensorboard.summary.writer.event_file_writer")
        # TensorFlow's, where that is installed.
        importlib.import_module("tensorboard.compat").tf.io.gfile  # noqa: B018 - imports it
    except Exception:
        return False
    return True


def compose_here(
    code_path: str, module: str, overrides: Overrides, tensorboard: str = "", user_code: str = ""
) -> Composition:
    """Compose the configuration in this process. The arguments are those of `compose`."""
    try:
        from hydra import initialize_config_dir
    except ImportError as error:
        return failed_composition(f"{error}, which verl needs, for {sys.executable}")
    places = [Path(place, *module.split(".")).with_suffix(".py") for place in (code_path, user_code or code_path)]
    path = next((place for place in places if place.exists()), places[0])
    try:
        main = read_main_decorator(path)
    except (OSError, SyntaxError, ValueError) as error:
        return failed_composition(str(error))
    main.update({HYDRA_OPTIONS[key]: override.partition("=")[2] for key, override in overrides if key in HYDRA_OPTIONS})
    overrides = [(key, override) for key, override in overrides if key not in HYDRA_OPTIONS]
    if tensorboard and has_tensorboard():
        overrides = [(key, tensorboard if key == "trainer.logger" else override) for key, override in overrides]
    # Hydra takes config_path as relative to the file of the module.
    directory = str((path.parent / (main.get("config_path") or ".")).resolve())
    version = {"version_base": main["version_base"]} if "version_base" in main else {}
    with initialize_config_dir(directory, **version):
        composition = compose_accepted(main.get("config_name") or "", overrides)
        composition = replace(composition, estimators=known_estimators(composition.config, Path(code_path), user_code))
        refused = {refusal.key for refusal in composition.errors}
        overrides = [(key, override) for key, override in overrides if key not in refused]
        added = [
            key
            for key, override in overrides
            if re.match(r"\+{1,2}[\w.-]+=", override) and not any(map(PASSED_ON_SECTION.fullmatch, key.split(".")[:-1]))
        ]
        if composition.config is None or not added:
            return composition
        plain = plain_config(
            main.get("config_name") or "", [override for _key, override in overrides if not override.startswith("+")]
        )
        reader = Reader(Path(code_path), module, user_code)
        return replace(composition, unread=tuple(key for key in added if not reader.reads(key, plain)))


def compose_accepted(name: str, overrides: Overrides) -> Composition:
    """Compose with the overrides that Hydra accepts: it stops at the first that it refuses, so try again without it."""
    errors: tuple[Refusal, ...] = ()
    while True:
        try:
            return replace(compose_once(name, overrides), errors=errors)
        except Exception as error:  # Hydra, OmegaConf and plug-ins raise many types
            key, message = key_in_error(error, overrides), error_message(error)
            errors += (Refusal(message, key),)
            rest = [(other, override) for other, override in overrides if other != key]
            if len(rest) == len(overrides):
                return Composition(errors=errors)
            overrides = rest


def compose_once(name: str, overrides: Overrides) -> Composition:
    from hydra import compose as hydra_compose
    from omegaconf import OmegaConf

    config = hydra_compose(name, [override for _dummy, override in overrides], return_hydra_config=True)
    output = f"{config.hydra.run.dir}/{config.hydra.output_subdir}"
    OmegaConf.set_struct(config, False)
    # The trainer's configuration does not contain it.
    del config["hydra"]
    plain = OmegaConf.to_container(config, resolve=True)
    # JSON has no form for some values; their text stands for them.
    return Composition(json.loads(json.dumps(plain, default=str)), OmegaConf.to_yaml(OmegaConf.create(plain)), output)


def known_estimators(config: Any, code_path: Path, user_code: str) -> tuple[str, ...]:
    """The estimators that verl and users' code register; none if the configuration has one of them."""
    estimator = ((config or {}).get("algorithm") or {}).get("adv_estimator")
    if not isinstance(estimator, str):
        return ()
    text = "\n".join(read_sources(code_path / ESTIMATORS_FILE))
    members = dict(re.findall(r"^    ([A-Z_]+) = \"(\w+)\"$", text, re.MULTILINE))
    names: set[str] = set()
    for place in (code_path / ESTIMATORS_FILE, code_path, *([Path(user_code)] if user_code else [])):
        registered = (match.groups() for text in read_sources(place) for match in REGISTERED_ESTIMATOR.finditer(text))
        names |= {members.get(member, member) or name for member, name in registered}
        if estimator in names:
            return ()
    return tuple(sorted(names))


def read_main_decorator(path: Path) -> dict[str, Any]:
    """The arguments of the trainer's @hydra.main: config_path, config_name, version_base. Raises OSError, ValueError.

    The file is parsed, not imported: importing verl takes ten times as long as everything else here.
    """
    # Opening a FIFO would wait for ever.
    if path.exists() and not (path.is_file() and path.stat().st_size <= MAX_SOURCE_BYTES):
        raise ValueError(f"{path} is not a file of at most {MAX_SOURCE_BYTES >> 20} MiB")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "hydra.main":
            return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    raise ValueError(f"{path} has no @hydra.main")


def key_in_error(error: BaseException, overrides: Overrides) -> str:
    """The key of the override that an error is about, or else the key that its message names; "" for none."""
    text = error_message(error)
    # Hydra quotes a key, or an override with or without its prefix and its value.
    keys: dict[str, str] = {}
    for key, override in overrides:
        for form in (override, override.lstrip("+~")):
            keys.update({form: key, form.partition("=")[0]: key})
    keys.update({key: key for key, _dummy in overrides})
    # OverrideParseException has the override as an attribute, but not in its text.
    refused = getattr(error, "override", None)
    if refused:
        return keys.get(str(refused), "")
    names = re.findall(r"'([^']+)'", text)
    # "Could not find 'data/none'" names a group and its option.
    names += [name.rpartition("/")[0] for name in names]
    full = re.findall(r"full_key: (\S+)", text)
    return next((keys[name] for name in [*names, *full] if name in keys), full[0] if full else "")


def plain_config(name: str, overrides: Sequence[str]) -> Any:
    """The configuration with unresolved interpolations; empty if Hydra refuses an override that needs another one."""
    from hydra import compose as hydra_compose
    from omegaconf import OmegaConf

    try:
        return OmegaConf.to_container(hydra_compose(name, list(overrides)), resolve=False)
    except Exception:
        return {}


@dataclass(frozen=True)
class Reader:
    """The source code that may read settings, which is searched for their names."""

    code_path: Path  # the snapshot
    module: str  # the trainer's Python module
    user_code: str  # the directory of users' code; "" for none

    def reads(self, key: str, config: Any) -> bool:
        """Whether any code may read a key that an override adds. config: the configuration without the override."""
        node, above, name = config, "", ""
        for name in key.split("."):
            if not isinstance(node, dict) or not node:
                return True
            if name not in node:
                break
            node, above = node[name], name
        else:
            return True
        is_sft = "sft" in self.module
        quoted = rf"\(\s*[\"']{re.escape(name)}[\"']"
        if "_target_" in node:
            # hydra.utils.instantiate: it refuses what is no field of the class.
            *package, target = node["_target_"].split(".")
            fields = class_body("\n".join(read_sources(self.code_path.joinpath(*package))), target)
            if not fields or re.search(rf"^\s+{re.escape(name)}\s*:", fields, re.MULTILINE):
                return True
            # Other code reads the key first, from a variable named like the section or like a configuration.
            places = [(self.code_path / "verl", rf"(?:config|cfg|\b{re.escape(above)})\.(?:get|pop){quoted}")]
        elif not above:
            # Trainers of another kind have sections of their own.
            files = [file for file in (self.code_path / "verl/trainer").rglob("*.py") if ("sft" in file.name) == is_sft]
            files += self.other_places()
            places = [(file, rf"\bconfig\.{re.escape(name)}\b|get{quoted}") for file in files]
        else:
            readers = [self.code_path / "verl", *self.other_places()]
            places = [(place, rf"[\"']{re.escape(name)}[\"']|\.{re.escape(name)}\b") for place in readers]
        return any(re.search(pattern, text, re.MULTILINE) for place, pattern in places for text in read_sources(place))

    def other_places(self) -> list[Path]:
        """Users' code, and the package of a trainer that is not in verl."""
        package = self.module.partition(".")[0]
        return [Path(self.user_code)] * bool(self.user_code) + [self.code_path / package] * (package != "verl")


def class_body(text: str, name: str) -> str:
    """The source of a class and of its base classes."""
    match = re.search(rf"^class {name}(?:\(([\w., ]*)\))?:\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    if not match:
        return ""
    return match[2] + "".join(class_body(text, base) for base in re.findall(r"\w+", match[1] or ""))


@functools.cache
def read_sources(place: Path) -> list[str]:
    """The texts of the Python files at a path."""
    files = [place] if place.suffix == ".py" else [*place.rglob("*.py"), place.with_suffix(".py")]
    return [
        file.read_text("utf-8", "replace")
        for file in files[:MAX_SOURCE_FILES]
        if file.is_file() and file.stat().st_size <= MAX_SOURCE_BYTES
    ]


def error_message(error: BaseException) -> str:
    """Hydra's message, with the cause, which Hydra shows only in the traceback."""
    lines = str(error).splitlines()
    if error.__cause__ is not None:
        lines += [line for line in str(error.__cause__).splitlines() if line not in lines]
    return "\n".join(line.strip() for line in lines if line.strip() and not line.strip().startswith(NOISE_PREFIXES))


if __name__ == "__main__":
    sys.stdout.write(ANSWER_MARK + json.dumps(asdict(compose_here(*json.load(sys.stdin)))))
