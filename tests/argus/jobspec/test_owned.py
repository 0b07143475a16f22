from __future__ import annotations

import time
from typing import Any

import pytest
from jobs import findings_of, jobspec

from argus.jobspec.owned import OWNED_OVERRIDES, repetition_notes

CONTROLLED: list[tuple[Any, str]] = [
    # Overrides, and the key of the finding.
    *(([f"{prefix}{key}=x"], key) for key in OWNED_OVERRIDES for prefix in ("", "+", "++", "~")),
    (["~trainer.nnodes"], "trainer.nnodes"),
    (["trainer/default_local_dir=x"], "trainer/default_local_dir"),
    (["ray_kwargs.ray_init.runtime_env={working_dir:/x}"], "ray_kwargs.ray_init.runtime_env"),
    (["+ray_kwargs.ray_init.namespace=x"], "ray_kwargs.ray_init.namespace"),
    (["+ray_kwargs.ray_init.runtime_env.env_vars.A=1"], "ray_kwargs.ray_init.runtime_env.env_vars.A"),
    *(([f"{key}=x"], key) for key in ("hydra.run.dir", "hydra", "hydra/launcher")),
    (["+hydra/job_logging@x=none"], "hydra/job_logging"),
    ({"trainer": {"+default_local_dir": "/tmp"}}, "trainer.default_local_dir"),
]


@pytest.mark.parametrize(("overrides", "key"), CONTROLLED, ids=str)
def test_a_setting_that_the_jobspec_controls_however_written(overrides: Any, key: str) -> None:
    (finding,) = findings_of({"trainer_overrides": overrides})
    assert finding.key == f"trainer_overrides.{key}"
    assert finding.remedy in OWNED_OVERRIDES.values()


LOCAL_DIR = "trainer.default_local_dir"
REPEATED: list[tuple[dict[str, Any], str]] = [
    ({"workload": "grpo", "trainer_overrides": ["algorithm.adv_estimator=grpo"]}, "algorithm.adv_estimator"),
    ({"workload": "ppo", "trainer_overrides": {"algorithm": {"adv_estimator": "gae"}}}, "algorithm.adv_estimator"),
    ({"resources": {"nnodes": 2}, "trainer_overrides": {"trainer": {"nnodes": 2}}}, "trainer.nnodes"),
    # Of all workers and GPUs, only the cluster knows the number.
    ({"trainer_overrides": ["++trainer.n_gpus_per_node=4"]}, "trainer.n_gpus_per_node"),
    ({"submission_id": "a", "trainer_overrides": [f"{LOCAL_DIR}=/private/jobs/a/checkpoints"]}, LOCAL_DIR),
]


@pytest.mark.parametrize(("changes", "key"), REPEATED, ids=str)
def test_a_value_that_the_job_has_anyway_is_noted(changes: dict[str, Any], key: str) -> None:
    assert findings_of(changes) == []
    (note,) = repetition_notes(jobspec(**changes))
    assert (note.severity, note.key) == ("note", f"trainer_overrides.{key}")


@pytest.mark.parametrize("where", ["env_vars", "runtime_env"])
def test_a_variable_that_the_job_has_anyway_is_accepted(where: str) -> None:
    variables = {"RAY_ADDRESS": "auto", "HF_HOME": "/private/hf"}
    changes = {"env_vars": variables} if where == "env_vars" else {"ray": {"runtime_env": {"env_vars": variables}}}
    assert findings_of(changes) == []
    assert len(list(repetition_notes(jobspec(**changes)))) == (2 if where == "env_vars" else 0)


DIFFERENT: list[dict[str, Any]] = [
    {"resources": {"nnodes": 1}, "trainer_overrides": ["trainer.nnodes=2"]},
    {"submission_id": "a", "trainer_overrides": ["trainer.default_local_dir=/private/jobs/b/checkpoints"]},
    # The id is made later.
    {"trainer_overrides": ["trainer.default_local_dir=/private/jobs/a/checkpoints"]},
]


@pytest.mark.parametrize("changes", DIFFERENT, ids=str)
def test_another_value_is_refused(changes: dict[str, Any]) -> None:
    assert [finding.severity for finding in findings_of(changes)] == ["error"]


@pytest.mark.parametrize(
    "override",
    [
        # What the composed configuration then has is what the gate checks.
        *("trainer={save_freq:5}", "trainer={nnodes:5}", "~trainer", "+trainer={new:{nodes:1}}", "actor@trainer=fsdp"),
        *("trainer.nnodes_of_something=1", "reward={reward_kwargs:{path:x}}", "~critic", "hydrate=1"),
        *("ray_kwargs.ray_init.log_to_driver=false", "ray_kwargs.timeline_json_file=/x", "data.path=hydra.yaml"),
        # Interpolations within the configuration.
        *("a=${b.c}", "a=${ b }", "a='${b}/${c}'", "a=${oc.select:b,1}", "a=${..b}", "a=$HOME", "a={b:1}", "a=5$"),
    ],
)
def test_settings_that_the_jobspec_leaves_to_its_author(override: str) -> None:
    assert findings_of({"trainer_overrides": [override]}) == []


@pytest.mark.parametrize("option", ["--config-dir=/x", "-cd=/x", "--cfg=job", "-m=1", " --info=x"])
def test_options_of_hydra(option: str) -> None:
    assert len(findings_of({"trainer_overrides": [option]})) == 1


READERS: list[Any] = [
    *(["a=${oc.env:HF_TOKEN}"], ["a='${oc.env:HF_TOKEN}'"], ["a=${\toc.env:HF_TOKEN,x}"], ["${oc.env:A}=1"]),
    *(["a=[1,{b:'x${oc.env:HF_TOKEN}y'}]"], [r"a=$\{oc.env:HF_TOKEN\}"], [r"a=\${oc.env:HF_TOKEN}"]),
    *(["a=${oc.${x}:HF_TOKEN}"], ["a=${${x}:HF_TOKEN}"], ["a=${oc.select:b,${oc.env:HF_TOKEN}}"]),
    *(["a=${oc.decode:${b}}"], ["a=${custom:1}"], ["a=${:x}"], ["a=${oc.env"]),
    *({"a": {"b": "${oc.env:HF_TOKEN}"}}, {"+a.b": {"c": {"d": "x ${oc.env:HF_TOKEN}"}}}),
]


@pytest.mark.parametrize("overrides", READERS, ids=str)
def test_interpolations_that_read_more_than_the_configuration(overrides: Any) -> None:
    (finding,) = findings_of({"trainer_overrides": overrides})
    assert "contains an interpolation" in finding.problem


@pytest.mark.parametrize("piece", ["${", "${ ", "${a ", "$", "{", "\\", " "])
def test_a_long_override_takes_no_time(piece: str) -> None:
    started = time.monotonic()
    findings_of({"trainer_overrides": ["a=" + piece * (500_000 // len(piece))]})
    assert time.monotonic() - started < 30
