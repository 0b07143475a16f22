from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checked_job import REWARD, found

from argus.checks import reward


def reward_says(root: Path, text: str, **changes: Any) -> list[tuple[str, str]]:
    (root / "user/code/r.py").write_text(text)
    reported = found(root, **changes)
    assert not list((root / "user/code").rglob("__pycache__"))
    return [(what, severity) for where, what, severity in reported if where == "reward_fn_path"]


@pytest.mark.parametrize(
    "text",
    [
        REWARD,
        "async " + REWARD,
        "def compute_score(**kwargs): ...",
        "def compute_score(solution_str, ground_truth, **kwargs): ...",
        "class Score:\n    def __call__(self, **kwargs): ...\ncompute_score = Score()",
        "import functools\ndef f(x, **kwargs): ...\ncompute_score = functools.partial(f, 1)",
        "print('hello')\nimport sys; sys.stderr.write('x')\n" + REWARD,
        "compute_score = max",
    ],
)
def test_rewards_that_verl_can_call(root: Path, text: str) -> None:
    assert reward_says(root, text) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import os\ndef f(:\n", ", line 2: the import fails with SyntaxError: invalid syntax"),
        ("import os\n\nimport no_such.thing\n", ", line 3: imports no_such, which the workers do not have"),
        ("from os import nothing\n", ", line 1: the import fails with ImportError"),
        ("\nraise ValueError('no key')\n", ", line 2: the import fails with ValueError: no key"),
        ("raise SystemExit(3)\n", ", line 1: the import fails with SystemExit: 3"),
        ("import os; os._exit(4)\n", ": importing it ends the process (exit status 4)"),
        ("def other(): ...\ndef third(): ...\n", " has no function compute_score; it has: other, third"),
        ("x = 1\n", " has no function compute_score; it has none"),
        ("compute_score = 1\n", ": compute_score is of type int, not a function"),
        ("def compute_score(solution, answer): ...\n", ": compute_score does not accept"),
        ("def compute_score(*args): ...\n", ": compute_score does not accept"),
        (
            "def compute_score(data_source, solution_str, /, ground_truth, extra_info, *, model): ...\n",
            ": compute_score does not accept",
        ),
    ],
)
def test_rewards_that_verl_cannot_call(root: Path, text: str, what: str) -> None:
    ((reported, severity),) = reward_says(root, text)
    assert reported.startswith(f"/private/user/code/r.py{what}")
    assert severity == "error"


def test_a_reward_that_is_not_there(root: Path) -> None:
    (root / "user/code/r.py").unlink()
    assert found(root)[0][1].startswith("/private/user/code/r.py: the import fails with FileNotFoundError: [Errno 2]")
    (root / "user/code/r.py").mkdir()
    assert found(root)[0][1].startswith("/private/user/code/r.py: the import fails with IsADirectoryError: [Errno 21]")


def test_a_module_beside_the_reward(root: Path) -> None:
    (root / "user/code/helper.py").write_text("x = 1\n")
    text = f"import helper\n{REWARD}"
    what = "/private/user/code/r.py, line 1: imports helper, but verl does not search the file's directory"
    assert reward_says(root, text) == [(what, "error")]
    assert reward_says(root, text, environment={"PYTHONPATH": f"{root}/user/code"}) == []


def test_a_reward_sees_the_environment_of_the_job(root: Path) -> None:
    text = f"import os\nassert os.environ['LEVEL'] == '3'\n{REWARD}"
    assert reward_says(root, text, environment={"LEVEL": 3}) == []
    assert reward_says(root, text)[0][0].endswith("line 2: the import fails with KeyError: 'LEVEL'")


def test_a_reward_that_takes_long(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "IMPORT_SECONDS", 0.5)
    what = "/private/user/code/r.py could not be imported within 0.5 s, so its function was not checked"
    assert reward_says(root, "import time; time.sleep(30)\n") == [(what, "warning")]


def test_arguments_of_the_configuration(root: Path) -> None:
    settings = {"reward.custom_reward_function.reward_kwargs": {"scale": 2}}
    ((what, severity),) = reward_says(root, REWARD, settings=settings)
    assert what.endswith("extra_info=None): got an unexpected keyword argument 'scale'")
    assert severity == "error"
    wants = REWARD.replace("extra_info=None", "extra_info, scale")
    assert reward_says(root, wants, settings=settings) == []
    assert reward_says(root, wants)[0][0].endswith("missing a required argument: 'scale'")
    assert reward_says(root, REWARD, settings={"reward.reward_model.enable": True})[0][0].endswith(
        "got an unexpected keyword argument 'reward_router_address'"
    )


def test_a_manager_that_takes_no_coroutine(root: Path) -> None:
    settings = {"reward.reward_manager.name": "remote"}
    what = "/private/user/code/r.py: compute_score is async, which verl's reward manager remote does not support"
    assert reward_says(root, f"async {REWARD}", settings=settings) == [(what, "error")]


@pytest.mark.parametrize(
    "settings", [{"reward.reward_manager.source": "importlib"}, {"reward_model.reward_manager": "batch"}]
)
def test_managers_with_calls_of_their_own(root: Path, settings: dict[str, Any]) -> None:
    assert reward_says(root, "def compute_score(x): ...\n", settings=settings) == []


def package(root: Path, **files: str) -> None:
    home = root / "user/code/graders"
    home.mkdir()
    for name, text in {"__init__": "", **files}.items():
        (home / f"{name}.py").write_text(text)


def module_says(root: Path, module: str = "graders.score") -> list[str]:
    """The findings about compute_score of a module."""
    file = root / "user/code" / f"{module.replace('.', '/')}.py"
    environment = {"PYTHONPATH": str(root / "user/code")}
    reported = found(root, reward_file=str(file), reward_module=module, environment=environment)
    assert not list((root / "user/code").rglob("__pycache__"))
    return [what for where, what, _severity in reported if where == "reward_fn_path"]


def test_a_module_may_have_relative_imports(root: Path) -> None:
    package(root, score="from .part import one\n" + REWARD, part="one = 1\n")
    assert module_says(root) == []
    # Loaded by its path, the same file has no package.
    file = root / "user/code/graders/score.py"
    (what,) = [what for where, what, _ in found(root, reward_file=str(file)) if where == "reward_fn_path"]
    assert "attempted relative import" in what


def test_problems_of_a_module(root: Path) -> None:
    package(root, score="from .part import one\n" + REWARD, part="raise ValueError('no key')\n", other="")
    (what,) = module_says(root)
    assert what.endswith("the import fails with ValueError: no key")
    assert module_says(root, "graders.other") == [
        "/private/user/code/graders/other.py has no function compute_score; it has none"
    ]


def test_a_module_whose_name_is_taken(root: Path) -> None:
    (root / "user/code/json").mkdir()
    (root / "user/code/json/decoder.py").write_text(REWARD)
    (what,) = module_says(root, "json.decoder")
    assert what.startswith("the module is imported from ") and "another one has its name" in what
