# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The trainer's configuration, composed offline as Hydra will compose it when the job runs.

It runs on a worker, in the Python of its container, to where `compose` is sent by value: only the standard library
here, nothing of the collection, and nothing that Python 3.9 cannot read. There it runs this very file once more, in a
process of its own: Hydra keeps what it composes in a global, and resolvers read the environment.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

# In place of this file, which is not on the worker.
SOURCE = "" if __name__ == "__main__" else inspect.getsource(sys.modules[__name__])
# About 0.7 s on two cores, 1.4 s with a key to look for; a shared root that does not answer is told from that.
TIMEOUT_SECONDS = 60
# Whatever a resolver prints before, the answer comes after it.
MARK = "\nCOMPOSED "
NOTHING: dict[str, Any] = {"config": None, "yaml": "", "errors": [], "missing": []}


def compose(code_path: str, module: str, overrides: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """What the trainer `module` of the snapshot at `code_path` will be configured with.

    config: the resolved configuration as plain data, or None; "???" stands for what is missing. Overrides that Hydra
        refuses are left out of it, so that all of them are found, and what else is wrong.
    yaml: the same as YAML.
    errors: what Hydra says of each override that it refuses, without its traceback: `error`, the `key` that it concerns
        and the `nearest` known key, empty where that cannot be told.
    missing: the keys that have to be given and are not; some belong to parts that are switched off.
    """
    paths = [code_path, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    env = {**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": "1"}
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    try:
        done = subprocess.run(
            [sys.executable, "-c", SOURCE],
            input=json.dumps({"code_path": code_path, "module": module, "overrides": overrides}),
            capture_output=True,
            text=True,
            env=env,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return failed(f"composing {module} took more than {TIMEOUT_SECONDS} s")
    _dummy, mark, answer = done.stdout.rpartition(MARK)
    if done.returncode or not mark:
        said = "\n".join(done.stderr.strip().splitlines()[-3:])
        return failed(f"{sys.executable} could not compose {module}: {said}")
    composed: dict[str, Any] = json.loads(answer)
    return composed


def failed(error: str, key: str = "", nearest: str = "") -> dict[str, Any]:
    return {**NOTHING, "errors": [{"error": error, "key": key, "nearest": nearest}]}


def composed(code_path: str, module: str, overrides: list[str]) -> dict[str, Any]:
    """Hydra ends at the first override that it refuses: composed again without it, until none is left."""
    errors: list[dict[str, str]] = []
    while True:
        answer = composed_once(code_path, module, overrides)
        errors += answer["errors"]
        rest = [override for override in overrides if answer["errors"] and bare(override) != errors[-1]["key"]]
        if not answer["errors"] or len(rest) == len(overrides):
            return {**answer, "errors": errors}
        overrides = rest


def composed_once(code_path: str, module: str, overrides: list[str]) -> dict[str, Any]:
    try:
        from hydra import compose as hydra_compose
        from hydra import initialize_config_dir
        from omegaconf import OmegaConf
    except ImportError as error:
        return failed(f"{error}, which verl needs, for {sys.executable}")
    path = Path(code_path, *module.split(".")).with_suffix(".py")
    try:
        said = main_decorator(path)
    except (OSError, SyntaxError, ValueError) as error:
        return failed(str(error))
    own, overrides = options(overrides)
    said.update(own)
    # Hydra takes it as relative to the module's file.
    directory = str((path.parent / (said.get("config_path") or ".")).resolve())
    version = {"version_base": said["version_base"]} if "version_base" in said else {}
    key, nearest = "", ""
    try:
        with initialize_config_dir(directory, **version):
            try:
                config = hydra_compose(said.get("config_name"), overrides)
            except Exception as error:
                key = key_of(error, overrides)
                if key and "not in struct" in message_of(error):
                    known = OmegaConf.to_container(hydra_compose(said.get("config_name")), resolve=False)
                    nearest = nearest_key(key, [name for name, _dummy in leaves_of(known)])
                raise
        plain = OmegaConf.to_container(config, resolve=True)
        return {
            **NOTHING,
            # What JSON has no form for is kept as its text.
            "config": json.loads(json.dumps(plain, default=str)),
            "yaml": OmegaConf.to_yaml(OmegaConf.create(plain)),
            "missing": [name for name, value in leaves_of(plain) if value == "???"],
        }
    except Exception as error:  # Hydra and OmegaConf raise many kinds, and plug-ins raise theirs
        return failed(message_of(error), key or key_of(error, overrides), nearest)


def main_decorator(path: Path) -> dict[str, Any]:
    """config_path, config_name and version_base as the trainer's @hydra.main has them.

    Read, not imported: verl's import takes ten times as long as all the rest.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "hydra.main":
            return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    raise ValueError(f"{path} has no @hydra.main")


def options(overrides: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options of Hydra's command line among the overrides, as @hydra.main calls them, and the rest."""
    names = {"--config-name": "config_name", "-cn": "config_name", "--config-path": "config_path", "-cp": "config_path"}
    found, rest = {}, []
    for override in overrides:
        name, _dummy, value = override.partition("=")
        if name in names:
            found[names[name]] = value
        else:
            rest.append(override)
    return found, rest


def bare(override: str) -> str:
    """The key of an override, without +, ~ and the package of a group."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def key_of(error: BaseException, overrides: list[str]) -> str:
    """The override that an error speaks of, or else the key."""
    text = message_of(error)
    # OverrideParseException has it; its text has not.
    if getattr(error, "override", None):
        return bare(str(getattr(error, "override", "")))
    quoted = [bare(found) for found in re.findall(r"'([^']+)'", text)]
    # "Could not find 'data/none'" speaks of a group and its option.
    quoted += [name.rpartition("/")[0] for name in quoted]
    full = re.findall(r"full_key: (\S+)", text)
    keys = [bare(override) for override in overrides]
    return next((name for name in [*quoted, *full] if name in keys), full[0] if full else "")


def leaves_of(node: Any, path: str = "") -> list[tuple[str, Any]]:
    """All values of a configuration, each with its dotted key."""
    if not isinstance(node, dict) or not node:
        return [(path, node)]
    return [leaf for key, value in node.items() for leaf in leaves_of(value, f"{path}.{key}" if path else str(key))]


def nearest_key(key: str, known: list[str]) -> str:
    """The same name elsewhere, or else a similar one."""
    same = [name for name in known if name.rpartition(".")[2] == key.rpartition(".")[2]]
    found = difflib.get_close_matches(key, same, n=1, cutoff=0) or difflib.get_close_matches(key, known, n=1)
    return found[0] if found else ""


def message_of(error: BaseException) -> str:
    """What Hydra says, and the cause that it leaves to the traceback."""
    lines = str(error).splitlines()
    if error.__cause__ is not None:
        lines += [line for line in str(error.__cause__).splitlines() if line not in lines]
    # OmegaConf ends with the Python types of its nodes, and Hydra with how to see the traceback.
    unsaid = ("object_type=", "reference_type=", "Set the environment variable HYDRA_FULL_ERROR")
    return "\n".join(line.strip() for line in lines if line.strip() and not line.strip().startswith(unsaid))


if __name__ == "__main__":
    sys.stdout.write(MARK + json.dumps(composed(**json.load(sys.stdin))))
