#!/usr/bin/env python3
"""Count which scripts a JobSpec can express: those of verl's examples, and those of its recipes.

A script is judged by its text: by its programs, which have to exist, its estimator, its pools of GPUs, and what a
JobSpec refuses of its settings. Those that have keys of their own in a JobSpec are no overrides there.
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

OWN, MODULE, COMMAND, MISFIT, HELPER = KINDS = "verl's trainers", "`module`", "`command`", "do not fit", "not counted"
SFT_MODULES = (trainer_module(SFT), trainer_module(SFT, "torchrun"))
# A module or a file that Python runs; some scripts keep the first words of a command in a variable.
PROGRAM = re.compile(
    r"(?:\b(?:python3?|torchrun|ENTRYPOINT)\b|LAUNCH)[^|;&\n]*?[\s\"'](?:-m\s+[\"']?([\w.${}]+)|([\w./${}-]+\.py)\b)"
)
COMMENT, CONFIG = re.compile(r"^\s*#.*\n|\s#\s.*", re.MULTILINE), re.compile(r"(--config-\w+)\s+")
DEFAULT, VARIABLE = re.compile(r"\$\{\w+:?[-=]([^{}]*)\}"), re.compile(r"\$\{?(\w+)\}?")
ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(\w+)=[\"']?([^\s\"']*)", re.MULTILINE)
OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z]\w*(?:[./][\w@-]+)+=.*|--config-(?:name|path|dir)=.*")


def read_script(script: Path) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """The modules and the files that a script runs, and its overrides by their keys."""
    text = CONFIG.sub(r"\1=", COMMENT.sub("", script.read_text("utf-8")).replace("\\\n", " "))
    while text != (text := DEFAULT.sub(r"\1", text)):
        pass
    values = dict(ASSIGNMENT.findall(text))

    def fill(part: str) -> str:
        return VARIABLE.sub(lambda match: values.get(match[1], match[0]), part)

    written = [(fill(module), fill(file).removeprefix("./")) for module, file in PROGRAM.findall(text)]
    # A script may write a file before it runs it.
    programs = [(module, file) for module, file in written if f"> {file} <<" not in text]
    words = [fill(word) for word in re.sub("[()]", " ", re.sub("[\"']", "", text)).split() if OVERRIDE.fullmatch(word)]
    # What is not known becomes 1. Hydra takes the last of several.
    return programs, {override_key(word): re.sub(r"[$`].*", "1", word) for word in words}


def classify(script: Path, checkout: Path, recipes: Path) -> tuple[str, str]:
    """How a JobSpec expresses a script, and why it does not."""
    programs, overrides = read_script(script)
    trains = any(key.startswith("trainer.") and key not in OWNED_OVERRIDES for key in overrides)
    kinds: dict[str, tuple[str, Path]] = {}
    for module, file in programs:
        name = file or module.replace(".", "/")
        near = [place / name for place in script.parents if place.is_relative_to(recipes)]
        places = [checkout / name, recipes / name.removeprefix("recipe/"), *near]
        files = [Path(f"{place}{end}") for place in places for end in (("",) if file else (".py", "/__main__.py"))]
        path = next((path for path in files if path.is_file()), None)
        if not path:
            return MISFIT, f"{module or file} is in neither checkout"
        has_main = module and trains and "@hydra.main" in path.read_text("utf-8")
        kinds[OWN if module in (trainer_module(PPO), *SFT_MODULES) else MODULE if has_main else COMMAND] = module, path
    kind = next((kind for kind in KINDS if kind in kinds), HELPER)
    if kind in (COMMAND, HELPER):
        return kind, ""
    module, path = kinds[kind]
    estimator = override_text(overrides.get(ESTIMATOR, ""))
    recipe = next((place for place in script.parents if place.parent == recipes), recipes)
    if estimator and known_estimators({"algorithm": {"adv_estimator": estimator}}, checkout, str(recipe)):
        return MISFIT, f"no estimator is registered as {estimator}"
    for key in overrides if kind == OWN else ():
        section, _dot, size = RL_UNTIL_0_9.get(key, key).rpartition(".")
        if size in ("nnodes", GPUS_NAME) and section not in ("trainer", *POOLS.values()):
            return MISFIT, f"the GPUs of {section} are those of no pool"
    config = override_text(overrides.pop("--config-name", "")) if kind == MODULE else ""
    accepted = [override for key, override in overrides.items() if not owned_remedy(override)]
    workload = SFT if module in SFT_MODULES else PPO if estimator == "gae" else GRPO
    keys: dict[str, Any] = {"workload": workload, "trainer_overrides": accepted}
    keys |= {"code_path": "verl", "model": "model", "dataset": "data"}
    keys |= {"module": module, "config_name": config or None} if kind == MODULE else {}
    error = next(iter(errors(parse_jobspec(keys)[0])), None)
    return (MISFIT, f"{error.key.removeprefix('trainer_overrides.')} {error.problem}") if error else (kind, "")


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
