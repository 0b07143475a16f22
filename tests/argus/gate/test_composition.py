"""Real Hydra on a small tree; verl's own are composed in tests/snapshots.

Most compose in this process: `compose` starts one of its own, which takes longer than the rest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from argus.gate import composition
from argus.gate.composition import Composition
from argus.io.hydra import override_key

MODULE = "verl.trainer.main"
MAIN = """
import hydra
import there_is_no_such_module


@hydra.main(config_path="config", config_name="trainer", version_base=None)
def main(config):
    pass
"""
FILES = {
    "main.py": MAIN,
    "none.py": "def main(): pass\n",
    "broken.py": "def main(:\n",
    "ppo/core_algos.py": """
class AdvantageEstimator(str, Enum):
    GAE = "gae"
    GRPO_PASSK = "grpo_passk"

@register_adv_est(AdvantageEstimator.GAE)
@register_adv_est(
    AdvantageEstimator.GRPO_PASSK
)
""",
    "patch.py": "@core_algos.register_adv_est('of-the-snapshot')\n",
    "config/trainer.yaml": """
defaults:
  - actor@actor: fsdp
  - _self_
trainer:
  nnodes: 1
  save_freq: -1
  experiment_name: test
  default_local_dir: checkpoints/${trainer.experiment_name}
  user: ${oc.env:TRAINER_USER,nobody}
rollout:
  name: ???
  enable: true
odd: [1, two, 3.5, null, {x: y}]
""",
    "config/other.yaml": "trainer: {nnodes: 3}\n",
    "config/actor/fsdp.yaml": "strategy: fsdp\noptim: {_target_: verl.no.such.thing, lr: 1e-3}\n",
    "config/actor/megatron.yaml": "strategy: megatron\n",
}


@pytest.fixture
def code(tmp_path: Path) -> str:
    for name, text in FILES.items():
        file = tmp_path / "code" / "verl" / "trainer" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return str(tmp_path / "code")


def pairs(*overrides: str) -> list[tuple[str, str]]:
    return [(override_key(override), override) for override in overrides]


def composed(code: str, *overrides: str, module: str = MODULE, user_code: str = "") -> Composition:
    return composition.compose_here(code, module, pairs(*overrides), user_code=user_code)


def test_it_is_what_hydra_makes_of_it_in_a_real_run(code: str, tmp_path: Path) -> None:
    real = Path(code, "verl", "trainer", "real.py")
    dump = 'print(__import__("json").dumps(__import__("omegaconf").OmegaConf.to_container(config, resolve=True)))'
    real.write_text(MAIN.replace("import there_is_no_such_module", "").replace("pass", dump) + "\n\nmain()\n")
    overrides = [
        *("actor=megatron", "trainer.experiment_name='a, b'", "rollout.name=vllm", "++rollout.extra={a:1}"),
        *(f"hydra.run.dir={tmp_path}/run", "hydra.output_subdir=.", r"trainer.user=$\{oc.env:MY_SECRET\}"),
    ]
    secret = {"MY_SECRET": "value"}
    command = [sys.executable, str(real), *overrides]
    done = subprocess.run(command, env={**os.environ, **secret}, capture_output=True, text=True, check=True)
    answer = composition.compose(code, MODULE, pairs(*overrides), secret)
    assert (answer.errors, answer.output) == ((), f"{tmp_path}/run/.")
    assert answer.config == json.loads(done.stdout) == yaml.safe_load(answer.yaml)
    # Why the checks of overrides ignore backslashes.
    assert answer.config["trainer"]["user"] == "value"


@pytest.mark.parametrize("works", [True, False])
def test_the_logger_of_tensorboard_is_added_where_it_works(code: str, tmp_path: Path, works: bool) -> None:
    for module in ("compat/proto/event_pb2", "summary/writer/event_file_writer"):
        file = tmp_path / "packages" / "tensorboard" / f"{module}.py"
        file.parent.mkdir(parents=True)
        file.write_text("" if works else "raise TypeError('Descriptors cannot be created directly.')\n")
        of_tensorflow = tmp_path / "packages" / "tensorboard" / "compat" / "__init__.py"
        of_tensorflow.write_text("from types import SimpleNamespace as N\ntf = N(io=N(gfile=None))\n")
    path = {"PYTHONPATH": f"{tmp_path}/packages"}
    overrides = pairs("+trainer.logger=[file]")
    answer = composition.compose(code, MODULE, overrides, path, "+trainer.logger=[file,tensorboard]")
    assert answer.config and answer.config["trainer"]["logger"] == ["file", *(["tensorboard"] if works else [])]


@pytest.mark.parametrize(
    "override",
    ["++trainer={default_local_dir:/tmp/x}", "+group@trainer=other", "+group@_global_=all", "trainer=${elsewhere}"],
)
def test_however_a_setting_is_written_the_composed_value_shows_it(code: str, override: str) -> None:
    """owned_findings compares it with the JobSpec's."""
    config = Path(code, "verl", "trainer", "config")
    (config / "group").mkdir()
    (config / "group" / "other.yaml").write_text("default_local_dir: /tmp/x\n")
    (config / "group" / "all.yaml").write_text("trainer: {default_local_dir: /tmp/x}\n")
    answer = composed(code, "++elsewhere={default_local_dir:/tmp/x}", override)
    assert (answer.errors, answer.config["trainer"].get("default_local_dir")) == ((), "/tmp/x")


def test_another_config(code: str) -> None:
    assert composed(code, "--config-name=other", "trainer.nnodes=4").config == {"trainer": {"nnodes": 4}}


WRONG = [
    # The override, and the key.
    ("trainer.save_frequency=1", "trainer.save_frequency"),
    ("+trainer.nnodes=2", "trainer.nnodes"),
    ("~actor@other", "actor"),
    ("~trainer.none", "trainer.none"),
    ("trainer.nnodes=1,2", "trainer.nnodes"),
    ("actor=veomni", "actor"),
    ("trainer.user=${nothing.there}", "trainer.user"),
    ("hydra.nothing=1", "hydra.nothing"),
]


@pytest.mark.parametrize(("override", "key"), WRONG, ids=[row[0] for row in WRONG])
def test_all_that_hydra_refuses_is_found_and_the_rest_is_composed(code: str, override: str, key: str) -> None:
    answer = composed(code, "rollout.name=vllm", "no.such=1", override, "trainer.experiment_name=x")
    assert {error.key for error in answer.errors} == {"no.such", key}
    assert answer.config["trainer"]["experiment_name"] == "x"
    for error in answer.errors:
        assert error.is_unknown_key == ("not in struct" in error.error)
        assert not any(noise in error.error for noise in ("Traceback", "HYDRA_FULL_ERROR", "append to your config"))


READ = [
    *("+known=1", "+trainer.read_with_get=1", "++trainer.nnodes=2"),
    # A class has fields, and so has the one that it extends.
    *("+typed.rate=1", "+typed.inherited=1", "+typed.popped=1"),
    # verl passes them on as they are.
    *("+passed.engine_kwargs.vllm.x=1", "+typed.override_config.deep.x=1", "+rollout.of_a_user=1"),
]
# Only another trainer reads optim.
UNREAD = ["+recipe=dapo", "+optim.lr=1", "+trainer.never_read=1", "+typed.read_with_get_elsewhere=1"]


def test_keys_that_nothing_reads(code: str, tmp_path: Path) -> None:
    verl = Path(code, "verl")
    (verl / "parts").mkdir()
    classes = "class Base:\n    inherited: int = 0\n\n\nclass Typed(Base):\n    rate: float = 0\n\n\nclass Other:\n"
    (verl / "parts" / "typed.py").write_text(f"{classes}    read_with_get_elsewhere: int = 0\n")
    (verl / "trainer" / "fit.py").write_text(
        "config.known\nconfig.trainer.get('read_with_get', 0)\nmetrics.pop('metric')\nconfig.typed.pop('popped')\n"
    )
    (verl / "trainer" / "sft_fit.py").write_text("config.optim\n")
    config = verl / "trainer" / "config" / "trainer.yaml"
    added = "typed: {_target_: verl.parts.Typed, override_config: {}}\npassed: {engine_kwargs: {vllm: {y: 1}}}\n"
    config.write_text(f"{config.read_text()}{added}")
    user_code = tmp_path / "user"
    user_code.mkdir()
    (user_code / "loop.py").write_text("config.rollout.of_a_user\n")
    answer = composed(code, *READ, *UNREAD, user_code=str(user_code))
    assert (answer.errors, answer.unread) == ((), tuple(map(override_key, UNREAD)))


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("absent", "No such file or directory"),
        ("none", "none.py has no @hydra.main"),
        ("broken", "invalid syntax"),
        ("large", "is not a file of at most 4 MiB"),
    ],
)
def test_a_trainer_that_cannot_be_read(code: str, module: str, error: str) -> None:
    Path(code, "verl", "trainer", "large.py").write_bytes(b"#" * (5 << 20))
    answer = composed(code, module=f"verl.trainer.{module}")
    assert (answer.config, answer.yaml) == (None, "")
    (refusal,) = answer.errors
    assert error in refusal.error


def test_a_trainer_that_is_no_file(code: str) -> None:
    os.mkfifo(Path(code, "verl", "trainer", "fifo.py"))
    (refusal,) = composition.compose(code, "verl.trainer.fifo", [], {}).errors
    assert refusal.error.endswith("is not a file of at most 4 MiB")


def test_a_python_without_hydra(code: str, tmp_path: Path) -> None:
    (tmp_path / "hydra.py").write_text("raise ImportError(\"No module named 'hydra'\")\n")
    (refusal,) = composition.compose(code, MODULE, [], {"PYTHONPATH": str(tmp_path)}).errors
    assert refusal.error == f"No module named 'hydra', which verl needs, for {sys.executable}"


def test_one_that_does_not_come_back(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "SOURCE", "import time; time.sleep(60)")
    monkeypatch.setattr(composition, "COMPOSITION_TIMEOUT_SECONDS", 0.2)
    (refusal,) = composition.compose(code, MODULE, [], {}).errors
    assert refusal.error == f"composing {MODULE} took more than 0.2 s"


@pytest.mark.parametrize("name", ["gae", "grpo_passk", "of-the-snapshot", "of_a_team", "[gae]", "grpo"])
def test_estimators_that_verl_a_snapshot_or_users_code_registers(code: str, tmp_path: Path, name: str) -> None:
    user_code = tmp_path / "user"
    user_code.mkdir()
    (user_code / "user.py").write_text('@register_adv_est("of_a_team")\n')
    answer = composed(code, f"+algorithm.adv_estimator={name}", user_code=str(user_code))
    registered = ("gae", "grpo_passk", "of-the-snapshot", "of_a_team")
    assert (answer.estimators, answer.errors) == (registered if name == "grpo" else (), ())
