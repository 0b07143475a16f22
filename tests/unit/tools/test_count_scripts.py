"""Which scripts of verl a JobSpec can express."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from script_module import script_module

REPO = Path(__file__).resolve().parents[3]
MAIN = "python3 -m verl.trainer.main_ppo \\\n  # a comment\n  algorithm.adv_estimator=${estimator} \\\n"
PROGRAM = '@hydra.main(config_path="config", config_name="trainer")\ndef main(config): ...\n'


@pytest.fixture
def tool(tmp_path: Path) -> ModuleType:
    for file, text in {
        "verl/verl/trainer/main_ppo.py": PROGRAM,
        "verl/verl/trainer/sft_trainer.py": PROGRAM,
        "verl/verl/model_merger/__main__.py": "",
        "verl/verl/trainer/ppo/core_algos.py": '@register_adv_est("grpo")\n',
        "recipes/mine/main.py": PROGRAM,
        "recipes/mine/core.py": '@register_adv_est("own")\n',
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return script_module(REPO / "tools" / "count_scripts.py")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"estimator=grpo\n{MAIN} --config-path=./config trainer.nnodes=$N", ("verl's trainers", "")),
        (
            'ENTRYPOINT=${ENTRYPOINT:-"-m verl.trainer.sft_trainer"}\ntorchrun $ENTRYPOINT trainer.x=1',
            ("verl's trainers", ""),
        ),
        (f'estimator="own"\n{MAIN.replace("verl.trainer.main_ppo", "recipe.mine.main")} trainer.x=1', ("`module`", "")),
        ("python -m verl.model_merger merge", ("`command`", "")),
        ("cat > get.py << EOF\nEOF\npython get.py\nexport A=1", ("not counted", "")),
        (f"estimator=other\n{MAIN}", ("do not fit", "no estimator is registered as other")),
        (f"estimator=grpo\n{MAIN} rollout.nnodes=2", ("do not fit", "the GPUs of rollout are those of no pool")),
        (f"estimator=grpo\n{MAIN} distillation.nnodes=2", ("verl's trainers", "")),
        (f"{MAIN} --config-path /x", ("do not fit", "no estimator is registered as 1")),
        ("python -m verl.trainer.gone", ("do not fit", "verl.trainer.gone is in neither checkout")),
        (
            "python -m verl.trainer.main_ppo --config-dir=/x trainer.x=1",
            ("do not fit", "--config-dir is an option of Hydra's command line"),
        ),
    ],
)
def test_a_script_is_judged_by_its_text(tool: ModuleType, tmp_path: Path, text: str, expected: tuple[str, str]) -> None:
    script = tmp_path / "recipes" / "mine" / "run.sh"
    script.write_text(text)
    assert tool.classify(script, tmp_path / "verl", tmp_path / "recipes") == expected


def test_the_table_has_what_was_counted_and_the_reasons(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipes" / "mine" / "run.sh").write_text("python3 missing.py")
    monkeypatch.setattr("sys.argv", ["count_scripts.py", str(tmp_path / "verl"), str(tmp_path / "recipes")])
    assert tool.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "| examples | 0 | 0 | 0 | 0 | 0 | 0 |",
        "| recipes | 1 | 0 | 0 | 0 | 1 | 0 |",
        "",
        "recipes/mine/run.sh: missing.py is in neither checkout",
    ]
