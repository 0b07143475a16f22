"""Real Hydra on a small tree; verl's own are composed in tests/snapshots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from argus.gate import composition
from argus.gate.composition import Composition, Refusal
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


def compose(code: str, *overrides: str, module: str = MODULE, environment: dict[str, str] | None = None) -> Composition:
    return composition.compose(
        code, module, [(override_key(override), override) for override in overrides], environment or {}
    )


def refused(code: str, *overrides: str, module: str = MODULE) -> list[Refusal]:
    """Every override that Hydra refuses."""
    errors = compose(code, *overrides, module=module).errors
    for refusal in errors:
        assert "Traceback" not in refusal.error
        assert "HYDRA_FULL_ERROR" not in refusal.error
    return list(errors)


def failed(code: str, module: str = MODULE) -> str:
    """Why there is no configuration."""
    answer = compose(code, module=module)
    assert answer.config is None
    assert answer.yaml == ""
    (refusal,) = answer.errors
    return refusal.error


def test_what_is_composed(code: str) -> None:
    overrides = ["trainer.experiment_name='a, b'", "rollout.name=vllm", "++rollout.extra={a:1}", "hydra.run.dir=/x"]
    answer = compose(code, *overrides, environment={"TRAINER_USER": "ann"})
    assert answer.errors == ()
    assert answer.config == {
        "actor": {"strategy": "fsdp", "optim": {"_target_": "verl.no.such.thing", "lr": 0.001}},
        "trainer": {
            "nnodes": 1,
            "save_freq": -1,
            "experiment_name": "a, b",
            "default_local_dir": "checkpoints/a, b",
            "user": "ann",
        },
        "rollout": {"name": "vllm", "enable": True, "extra": {"a": 1}},
        "odd": [1, "two", 3.5, None, {"x": "y"}],
    }
    assert yaml.safe_load(answer.yaml) == answer.config


@pytest.mark.parametrize("works", [True, False, None])
def test_the_logger_of_tensorboard_is_added_where_it_works(code: str, tmp_path: Path, works: bool | None) -> None:
    for module in ("compat/proto/event_pb2", "summary/writer/event_file_writer") if works is not None else ():
        file = tmp_path / "packages" / "tensorboard" / f"{module}.py"
        file.parent.mkdir(parents=True)
        file.write_text("" if works else "raise TypeError('Descriptors cannot be created directly.')\n")
        of_tensorflow = tmp_path / "packages" / "tensorboard" / "compat" / "__init__.py"
        of_tensorflow.write_text("from types import SimpleNamespace as N\ntf = N(io=N(gfile=None))\n")
    path = {"PYTHONPATH": f"{tmp_path}/packages"}
    overrides = [("trainer.logger", "+trainer.logger=[file]")]
    answer = composition.compose(code, MODULE, overrides, path, "+trainer.logger=[file,tensorboard]")
    assert answer.config and answer.config["trainer"]["logger"] == ["file", *(["tensorboard"] if works else [])]


def test_where_hydra_writes_its_files(code: str) -> None:
    answer = compose(code, "hydra.run.dir=/x/y", "hydra.output_subdir=.", "rollout.name=x")
    assert (answer.errors, answer.output) == ((), "/x/y/.")
    assert "hydra" not in answer.config
    assert "hydra" not in yaml.safe_load(answer.yaml)


@pytest.mark.parametrize(
    "override",
    [
        "++trainer={default_local_dir:/tmp/x}",
        "trainer={default_local_dir:/tmp/x}",
        "+group@trainer=other",
        "+group@_global_=all",
        "trainer=${elsewhere}",
        "trainer.experiment_name=../../tmp/x",
        "~trainer.default_local_dir",
        "--config-name=whole",
    ],
)
def test_however_a_setting_is_written_the_composed_value_shows_it(code: str, override: str) -> None:
    """nodes.owned_findings compares it with the JobSpec's."""
    config = Path(code, "verl", "trainer", "config")
    (config / "group").mkdir()
    (config / "group" / "other.yaml").write_text("default_local_dir: /tmp/x\n")
    (config / "group" / "all.yaml").write_text("trainer: {default_local_dir: /tmp/x}\n")
    (config / "whole.yaml").write_text("trainer: {default_local_dir: /tmp/x}\n")
    answer = compose(code, "++elsewhere={default_local_dir:/tmp/x}", override)
    assert answer.errors == ()
    assert answer.config["trainer"].get("default_local_dir") != "checkpoints/test"


def test_escaped_interpolations_are_interpolations(code: str) -> None:
    """Why the checks of overrides ignore backslashes."""
    answer = compose(code, r"trainer.user=$\{oc.env:MY_SECRET\}", environment={"MY_SECRET": "value"})
    assert answer.config["trainer"]["user"] == "value"


@pytest.mark.parametrize("kind", ["fifo", "device", "large"])
def test_a_trainer_that_is_no_source_file(code: str, kind: str) -> None:
    file = Path(code, "verl", "trainer", "odd.py")
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.write_bytes(b"#" * (5 << 20))
    assert failed(code, module="verl.trainer.odd") == f"{file} is not a file of at most 4 MiB"


def test_it_is_what_hydra_makes_of_it_in_a_real_run(code: str, tmp_path: Path) -> None:
    real = Path(code, "verl", "trainer", "real.py")
    dump = 'print(__import__("json").dumps(__import__("omegaconf").OmegaConf.to_container(config, resolve=True)))'
    real.write_text(MAIN.replace("import there_is_no_such_module", "").replace("pass", dump) + "\n\nmain()\n")
    overrides = [
        "actor=megatron",
        "rollout.name='x y'",
        f"hydra.run.dir={tmp_path}/run",
        "hydra.output_subdir=.",
        "+a=1",
    ]
    done = subprocess.run([sys.executable, str(real), *overrides], capture_output=True, text=True, check=True)
    assert compose(code, *overrides).config == json.loads(done.stdout)


def test_a_group_and_another_config(code: str) -> None:
    assert compose(code, "actor=megatron").config["actor"] == {"strategy": "megatron"}
    assert compose(code, "--config-name=other", "trainer.nnodes=4").config == {"trainer": {"nnodes": 4}}


WRONG = [
    # The override, and the key.
    ("trainer.save_frequency=1", "trainer.save_frequency"),
    ("nnodes=2", "nnodes"),
    ("+trainer.nnodes=2", "trainer.nnodes"),
    ("~actor@other", "actor"),
    ("~trainer.none", "trainer.none"),
    ("trainer.nnodes=1,2", "trainer.nnodes"),
    ("actor=veomni", "actor"),
    ("trainer.user=${nothing.there}", "trainer.user"),
    ("hydra.nothing=1", "hydra.nothing"),
]


@pytest.mark.parametrize(("override", "key"), WRONG, ids=[row[0] for row in WRONG])
def test_what_hydra_refuses(code: str, override: str, key: str) -> None:
    (error,) = refused(code, "rollout.name=vllm", override, "trainer.experiment_name=x")
    assert error.key == key
    assert error.is_unknown_key == ("not in struct" in error.error)
    assert "append to your config" not in error.error


def test_all_that_hydra_refuses_is_found_and_the_rest_is_composed(code: str) -> None:
    overrides = ["rollout.name=vllm", "no.such=1", "trainer.nnodes=3", "trainer.none=2"]
    assert [error.key for error in refused(code, *overrides)] == ["no.such", "trainer.none"]
    assert compose(code, *overrides).config["trainer"]["nnodes"] == 3


@pytest.mark.parametrize(
    ("override", "is_read"),
    [
        ("+recipe=dapo", False),
        # Only another trainer reads it.
        ("+optim.lr=1", False),
        ("+known=1", True),
        ("+trainer.never_read=1", False),
        ("+trainer.read_with_get=1", True),
        ("++trainer.nnodes=2", True),
        # A class has fields, and so has the one that it extends.
        ("+typed.rate=1", True),
        ("+typed.inherited=1", True),
        ("+typed.read_with_get_elsewhere=1", False),
        ("+typed.popped=1", True),
        # verl passes them on as they are.
        ("+passed.engine_kwargs.vllm.x=1", True),
        ("+typed.override_config.deep.x=1", True),
        ("+rollout.of_a_user=1", True),
    ],
)
def test_keys_that_nothing_reads(code: str, tmp_path: Path, override: str, is_read: bool) -> None:
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
    pairs = [(override_key(override), override)]
    answer = composition.compose(code, MODULE, pairs, {}, "", str(user_code))
    assert answer.errors == ()
    assert answer.unread == (() if is_read else (override_key(override),))


def test_a_trainer_that_cannot_be_read(code: str) -> None:
    assert "No such file or directory" in failed(code, module="verl.trainer.absent")
    assert failed(code, module="verl.trainer.none").endswith("none.py has no @hydra.main")
    assert "invalid syntax" in failed(code, module="verl.trainer.broken")


def test_a_python_without_hydra(code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hydra.py").write_text("raise ImportError(\"No module named 'hydra'\")\n")
    answer = compose(code, environment={"PYTHONPATH": str(tmp_path)})
    assert answer.errors[0].error == f"No module named 'hydra', which verl needs, for {sys.executable}"


def test_one_that_does_not_come_back(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "SOURCE", "import time; time.sleep(60)")
    monkeypatch.setattr(composition, "TIMEOUT_SECONDS", 0.2)
    assert failed(code) == f"composing {MODULE} took more than 0.2 s"


@pytest.mark.parametrize("name", ["gae", "grpo_passk", "of-the-snapshot", "of_a_team", "[gae]"])
def test_estimators_that_a_snapshot_or_users_code_registers(code: str, tmp_path: Path, name: str) -> None:
    (tmp_path / "user.py").write_text('@register_adv_est("of_a_team")\n')
    overrides = [("algorithm.adv_estimator", f"+algorithm.adv_estimator={name}")]
    answer = composition.compose(code, MODULE, overrides, {}, user_code=str(tmp_path))
    assert (answer.estimators, answer.errors) == ((), ())


def test_an_estimator_that_nothing_registers(code: str) -> None:
    known = compose(code, "+algorithm.adv_estimator=grpo").estimators
    assert known == ("gae", "grpo_passk", "of-the-snapshot")
