"""Every regular expression of the collection, found in its source, and texts on which a bad one would never end."""

from __future__ import annotations

import ast
import importlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as opcodes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from ansible_collections.argus.verl.plugins.plugin_utils import node_command
from ansible_collections.argus.verl.plugins.plugin_utils.slurm import commands

from argus.jobspec import environment
from argus.launcher.failure_rules import CAUSES, CONSEQUENCES
from argus.staging.usage import STAGED_KEYS

REPO = Path(__file__).parent.parent
PLUGINS = "ansible_collections.argus.verl."
FUNCTIONS = ("compile", "match", "search", "sub", "subn", "fullmatch", "finditer", "findall", "split")
RULES = [*CAUSES, *CONSEQUENCES]
# Expressions that only a running function can evaluate, by their source. A new one fails until it is here.
IN_FUNCTIONS: dict[str, list[str]] = {
    "rule.pattern": [rule.pattern for rule in RULES],
    "rule.frame": [rule.frame for rule in RULES if rule.frame],
    # Names of settings and classes, of verl's source.
    r"f'^class {name}(?:\\(([\\w., ]*)\\))?:\\n(.*?)(?=^\\S|\\Z)'": [r"^class X(?:\(([\w., ]*)\))?:\n(.*?)(?=^\S|\Z)"],
    r"f'^\\s+{re.escape(name)}\\s*:'": [r"^\s+lr\s*:"],
    "b'|'.join(present)": ["hf_AbCdEfGhIjKl|-----BEGIN"],
    # Forms of variables, of nodes and of Slurm.
    "pattern": ["[a-z0-9][a-z0-9_.-]{0,62}", "([0-9]{1,10}:[0-9]{1,10})?", *dict(commands.FIELD_PATTERNS.values())],
    "names": [names.pattern for names in environment.FORBIDDEN_NAMES.values()],
    "f'{ENGINE_PREFIX}(?:{pattern})'": [f"{node_command.ENGINE_PREFIX}(?:x)"],
    r"f'worker-\\w+-(?:{ids})-\\d+\\.(?:out|err)|runtime_env_setup-(?:{ids})\\.log'": [
        r"worker-\w+-(?:01|02)-\d+\.(?:out|err)|runtime_env_setup-(?:01|02)\.log"
    ],
    """f"{re.escape(str(root))}/({'|'.join(STAGED_KEYS.values())})/([\\\\w.-]+)\"""": [
        f"/x/({'|'.join(STAGED_KEYS.values())})/([\\w.-]+)"
    ],
}
# Expressions with names and texts of the operator. Nothing in them repeats but what the operator has written.
OF_THE_OPERATOR = {
    "arrived",
    "self.pattern",
    "expression",
    "self.dataset.ground_truth_pattern",
    "compiled(pattern)",
    r"f'\\b{name}\\b'",
    r"f'(?<![^\\W_]){re.escape(expected.gpu_model)}(?![^\\W_])'",
    r"f'{name}(?![\\w/.-])'",
    '''f"""["']{flag}["']"""''',
    """f"(?:^|[\\\\s'\\\\u2018]){engine}{NOT_FOUND_TEXT}\"""",
}


@dataclass(frozen=True)
class Expression:
    """A pattern, its place, and whether its module searches with it, rather than matching at one place."""

    place: str
    pattern: re.Pattern[Any]
    searches: bool


def expressions() -> Iterator[Expression]:
    """All patterns of the collection."""
    for path in sorted([*(REPO / "argus").rglob("*.py"), *(REPO / "plugins").rglob("*.py")]):
        source = path.read_text()
        calls = [call for call in ast.walk(ast.parse(source)) if isinstance(call, ast.Call) and is_of_re(call)]
        if not calls:
            continue
        name = ".".join(path.with_suffix("").relative_to(REPO).parts)
        variables = vars(importlib.import_module(name if name.startswith("argus.") else f"{PLUGINS}{name}"))
        for call in calls:
            for pattern in compiled(call, variables, f"{name}:{call.lineno}"):
                label = next((key for key, value in variables.items() if value is pattern), "")
                searches = re.search(rf"\b{label}\.(?:search|sub|finditer|findall|split)\b", source) if label else None
                yield Expression(f"{name}:{label or call.lineno}", pattern, bool(searches))


def is_of_re(call: ast.Call) -> bool:
    function = call.func
    is_attribute = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
    return is_attribute and function.value.id == "re" and function.attr in FUNCTIONS  # type: ignore[attr-defined]


def compiled(call: ast.Call, variables: dict[str, Any], place: str) -> list[re.Pattern[Any]]:
    source = ast.unparse(call.args[0])
    if source in OF_THE_OPERATOR:
        return []
    if source in IN_FUNCTIONS:
        return [re.compile(example, re.MULTILINE) for example in IN_FUNCTIONS[source]]
    is_object = ast.unparse(call.func) == "re.compile"
    try:
        value = eval(ast.unparse(call) if is_object else source, dict(variables))  # noqa: S307
    except NameError as error:
        raise AssertionError(f"{place}: add examples of the pattern {source} to IN_FUNCTIONS") from error
    return [value if isinstance(value, re.Pattern) else re.compile(value, re.MULTILINE)]


# --- Texts for a pattern ---------------------------------------------------------------------------------------------

# First those that more than one part of a pattern may take.
CHARACTERS = [*"-=a1 ./\\'", *map(chr, range(33, 127)), "\n", "\t", "\x1b", "\0", "ö"]
OFTEN = 10
SINGLE = (opcodes.LITERAL, opcodes.NOT_LITERAL, opcodes.ANY, opcodes.IN)
REPEATS = (opcodes.MAX_REPEAT, opcodes.MIN_REPEAT, opcodes.POSSESSIVE_REPEAT)
Part = tuple[Any, Any]


class Texts:
    """Texts that a pattern almost matches, with many repetitions of what it repeats."""

    def __init__(self, seed: int = 1) -> None:
        self.chance = random.Random(seed)  # noqa: S311

    def of(self, pattern: re.Pattern[Any], length: int, rounds: int = 6) -> set[str]:
        is_text = isinstance(pattern.pattern, str)
        tree = list(parser.parse(pattern.pattern, pattern.flags if is_text else pattern.flags & ~re.UNICODE))
        texts = set()
        for _round in range(rounds):
            pairs = [*self.repeated(tree, ""), ("", self.sample(tree))]
            texts |= {
                before + (unit * length)[:length] + end for before, unit in pairs if unit for end in ("", "\0", "!")
            }
        return texts

    def repeated(self, parts: list[Part], before: str) -> Iterator[tuple[str, str]]:
        """What a pattern repeats, and what comes before it."""
        for number, (kind, value) in enumerate(parts):
            here = before + self.sample(parts[:number])
            if kind in REPEATS and value[1] > 1:
                yield here, self.sample(list(value[2]))
            for inner in self.inside(kind, value):
                yield from self.repeated(inner, here)

    def inside(self, kind: Any, value: Any) -> list[list[Part]]:
        if kind is opcodes.BRANCH:
            return [list(branch) for branch in value[1]]
        place = {opcodes.SUBPATTERN: 3, opcodes.ATOMIC_GROUP: None}.get(kind, 2 if kind in REPEATS else -1)
        return [] if place == -1 else [list(value if place is None else value[place])]

    def sample(self, parts: list[Part]) -> str:
        """A text that a pattern matches, apart from lookarounds."""
        return "".join(self.one(kind, value) for kind, value in parts)

    def one(self, kind: Any, value: Any) -> str:
        if kind in SINGLE:
            return self.chance.choice(fitting(kind, repr(value), value))
        inner = self.inside(kind, value)
        if not inner:
            return ""
        times = min(value[1], value[0] + self.chance.choice((0, 1, 1, 2))) if kind in REPEATS else 1
        return "".join(self.sample(self.chance.choice(inner)) for _time in range(times))


KNOWN: dict[tuple[Any, str], list[str]] = {}


def fitting(kind: Any, text: str, value: Any) -> list[str]:
    """The characters that a part of a pattern matches."""
    if (kind, text) not in KNOWN:
        pattern = compiler.compile(parser.SubPattern(parser.State(), [(kind, value)]))
        matches = [one for one in CHARACTERS if pattern.match(one)]
        # If the part matches none of them, the first character that it names.
        number = value if kind is opcodes.LITERAL else value[0][1] if not matches else 0
        named = chr(number if isinstance(number, int) else number[0])
        KNOWN[kind, text] = [one for one in matches if one in CHARACTERS[:OFTEN]] or matches or [named]
    return KNOWN[kind, text]
