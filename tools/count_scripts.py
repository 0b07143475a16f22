#!/usr/bin/env python3
"""Count how many shell scripts of verl, examples and recipes, a JobSpec can express, and print why it cannot others.

A script is judged by its text. Its programs have to exist, its estimator has to be registered, its GPUs have to be
those of a pool, and a JobSpec has to accept its overrides, except those for which it has keys of its own.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from argus.common.findings import errors
from argus.gate.composition import known_estimators
from argus.gate.pools import GPUS_NAME
from argus.io.hydra import override_key, override_text
from argus.jobspec.owned import ESTIMATOR, OWNED_OVERRIDES, owned_remedy
from argus.jobspec.parse import parse_jobspec
from argus.jobspec.spec import POOLS
from argus.jobspec.verl_releases import GRPO, PPO, RL_UNTIL_0_9, SFT, trainer_module

# How a JobSpec expresses a script: by its workload, its key `module` or `command`, or not. A helper runs no program.
TRAINER, MODULE, COMMAND = "verl's trainers", "`module`", "`command`"
MISFIT, HELPER = "do not fit", "not counted"
KINDS = (TRAINER, MODULE, COMMAND, MISFIT, HELPER)
SFT_MODULES = (trainer_module(SFT), trainer_module(SFT, "torchrun"))
# A module or a file that Python runs. Some scripts have the first words of the command in a variable.
PROGRAM = re.compile(
    r"(?:\b(?:python3?|torchrun|ENTRYPOINT)\b|LAUNCH)[^|;&\n]*?[\s\"'](?:-m\s+[\"']?([\w.${}]+)|([\w./${}-]+\.py)\b)"
)
COMMENT, CONFIG = re.compile(r"^\s*#.*\n|\s#\s.*", re.MULTILINE), re.compile(r"(--config-\w+)\s+")
DEFAULT, VARIABLE = re.compile(r"\$\{\w+:?[-=]([^{}]*)\}"), re.compile(r"\$\{?(\w+)\}?")
ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(\w+)=[\"']?([^\s\"']*)", re.MULTILINE)
OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z]\w*(?:[./][\w@-]+)+=.*|--config-(?:name|path|dir)=.*")


def read_script(script: Path) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """The programs that a script runs, each as a module or a file, the other one empty; and its overrides by key."""
    text = CONFIG.sub(r"\1=", COMMENT.sub("", script.read_text("utf-8")).replace("\\\n", " "))
    # ${NAME:-default} becomes its default. Defaults can be nested.
    while text != (text := DEFAULT.sub(r"\1", text)):
        pass
    values = dict(ASSIGNMENT.findall(text))

    def fill(part: str) -> str:
        return VARIABLE.sub(lambda match: values.get(match[1], match[0]), part)

    written = [(fill(module), fill(file).removeprefix("./")) for module, file in PROGRAM.findall(text)]
    # A script may write a file before it runs it.
    programs = [(module, file) for module, file in written if f"> {file} <<" not in text]
    words = [fill(word) for word in re.sub("[()]", " ", re.sub("[\"']", "", text)).split() if OVERRIDE.fullmatch(word)]
    # The number 1 stands for a variable without a value. Of overrides with the same key, Hydra takes the last.
    return programs, {override_key(word): re.sub(r"[$`].*", "1", word) for word in words}


def classify(script: Path, checkout: Path, recipes: Path) -> tuple[str, str]:
    """One of KINDS, and of a script that does not fit the reason. checkout: of verl; recipes: of its recipes."""
    programs, overrides = read_script(script)
    has_trainer_overrides = any(key.startswith("trainer.") and key not in OWNED_OVERRIDES for key in overrides)
    modules: dict[str, str] = {}
    for module, file in programs:
        path = find_program(module, file, script, checkout, recipes)
        if not path:
            return MISFIT, f"{module or file} is in neither checkout"
        is_trainer = module and has_trainer_overrides and "@hydra.main" in path.read_text("utf-8")
        kind = TRAINER if module in (trainer_module(PPO), *SFT_MODULES) else MODULE if is_trainer else COMMAND
        modules[kind] = module
    kind = next((kind for kind in KINDS if kind in modules), HELPER)
    if kind in (COMMAND, HELPER):
        return kind, ""
    recipe = next((place for place in script.parents if place.parent == recipes), recipes)
    reason = misfit_reason(kind, modules[kind], overrides, checkout, recipe)
    return (MISFIT, reason) if reason else (kind, "")


def find_program(module: str, file: str, script: Path, checkout: Path, recipes: Path) -> Path | None:
    """The file of a program: in verl, in its recipes, or in a directory of recipes above the script."""
    name = file or module.replace(".", "/")
    near = [place / name for place in script.parents if place.is_relative_to(recipes)]
    places = [checkout / name, recipes / name.removeprefix("recipe/"), *near]
    files = [Path(f"{place}{end}") for place in places for end in (("",) if file else (".py", "/__main__.py"))]
    return next((path for path in files if path.is_file()), None)


def misfit_reason(kind: str, module: str, overrides: dict[str, str], checkout: Path, recipe: Path) -> str:
    """Why no JobSpec expresses a script that runs this trainer; empty if one does."""
    estimator = override_text(overrides.get(ESTIMATOR, ""))
    if estimator and known_estimators({"algorithm": {"adv_estimator": estimator}}, checkout, str(recipe)):
        return f"no estimator is registered as {estimator}"
    for key in overrides if kind == TRAINER else ():
        section, _dot, size = RL_UNTIL_0_9.get(key, key).rpartition(".")
        if size in ("nnodes", GPUS_NAME) and section not in ("trainer", *POOLS.values()):
            return f"the GPUs of {section} are those of no pool"
    config = override_text(overrides.pop("--config-name", "")) if kind == MODULE else ""
    accepted = [override for key, override in overrides.items() if not owned_remedy(override)]
    workload = SFT if module in SFT_MODULES else PPO if estimator == "gae" else GRPO
    keys: dict[str, Any] = {"workload": workload, "trainer_overrides": accepted}
    keys |= {"code_path": "verl", "model": "model", "dataset": "data"}
    keys |= {"module": module, "config_name": config or None} if kind == MODULE else {}
    error = next(iter(errors(parse_jobspec(keys)[0])), None)
    return f"{error.key.removeprefix('trainer_overrides.')} {error.problem}" if error else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="of verl")
    parser.add_argument("recipes", type=Path, nargs="?", help="a checkout of its recipes, if not its directory recipe")
    args = parser.parse_args()
    checkout = args.checkout.resolve()
    recipes, reasons = (args.recipes or checkout / "recipe").resolve(), []
    print(f"| Place | Scripts | {' | '.join(KINDS)} |\n{'|---' * (len(KINDS) + 2)}|")
    for title, place in (("examples", checkout / "examples"), ("recipes", recipes)):
        counts: Counter[str] = Counter()
        for script in sorted(place.rglob("*.sh")):
            kind, reason = classify(script, checkout, recipes)
            counts[kind] += 1
            reasons += [f"{title}/{script.relative_to(place)}: {reason}"] if reason else []
        numbers = (counts.total() - counts[HELPER], *(counts[kind] for kind in KINDS))
        print(f"| {title} | {' | '.join(map(str, numbers))} |")
    print("", *reasons, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
