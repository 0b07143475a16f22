from __future__ import annotations

import time
from typing import Any

import pytest
from jobs import findings_of, jobspec

from argus.jobspec.owned import (
    OWNED_OVERRIDES,
    foreign_resolver,
    owned_remedy,
    repetition_notes,
)

CONTROLLED = "is controlled by the JobSpec"
PAST_THE_KEY: list[tuple[Any, str]] = [
    # Overrides, and the key of the finding.
    (["~trainer.nnodes"], "trainer.nnodes"),
    (["trainer/default_local_dir=x"], "trainer/default_local_dir"),
    (["+ray_kwargs.ray_init.runtime_env.env_vars.A=1"], "ray_kwargs.ray_init.runtime_env.env_vars.A"),
    (["ray_kwargs.ray_init.runtime_env={working_dir:/x}"], "ray_kwargs.ray_init.runtime_env"),
    (["+ray_kwargs.ray_init.namespace=x"], "ray_kwargs.ray_init.namespace"),
    (
        ["+ray_kwargs.ray_init.runtime_env.worker_process_setup_hook=a.b"],
        "ray_kwargs.ray_init.runtime_env.worker_process_setup_hook",
    ),
    (["hydra.run.dir=/tmp"], "hydra.run.dir"),
    (["hydra={run:{dir:/tmp}}"], "hydra"),
    (["hydra/launcher=submitit"], "hydra/launcher"),
    (["+hydra/job_logging@x=none"], "hydra/job_logging"),
    (["~hydra"], "hydra"),
    ({"trainer": {"+default_local_dir": "/tmp"}}, "trainer.default_local_dir"),
]


@pytest.mark.parametrize(("overrides", "key"), PAST_THE_KEY, ids=str)
def test_other_ways_to_write_a_setting_that_the_jobspec_controls(overrides: Any, key: str) -> None:
    (finding,) = findings_of({"trainer_overrides": overrides})
    assert (finding.key, finding.problem) == (f"trainer_overrides.{key}", CONTROLLED)
    assert finding.remedy in OWNED_OVERRIDES.values()


REPEATED: list[tuple[dict[str, Any], str]] = [
    ({"workload": "grpo", "trainer_overrides": ["algorithm.adv_estimator=grpo"]}, "algorithm.adv_estimator"),
    ({"workload": "ppo", "trainer_overrides": {"algorithm": {"adv_estimator": "gae"}}}, "algorithm.adv_estimator"),
    ({"resources": {"nnodes": 2}, "trainer_overrides": {"trainer": {"nnodes": 2}}}, "trainer.nnodes"),
    # Of all workers and GPUs, only the cluster knows the number.
    ({"trainer_overrides": ["++trainer.n_gpus_per_node=4"]}, "trainer.n_gpus_per_node"),
    (
        {"submission_id": "a", "trainer_overrides": ["trainer.default_local_dir=/private/jobs/a/checkpoints"]},
        "trainer.default_local_dir",
    ),
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


DIFFERENT: list[tuple[dict[str, Any], str]] = [
    ({"resources": {"nnodes": 1}, "trainer_overrides": ["trainer.nnodes=2"]}, "trainer.nnodes"),
    (
        {"submission_id": "a", "trainer_overrides": ["trainer.default_local_dir=/private/jobs/b/checkpoints"]},
        "trainer.default_local_dir",
    ),
    # The id is made later.
    ({"trainer_overrides": ["trainer.default_local_dir=/private/jobs/a/checkpoints"]}, "trainer.default_local_dir"),
]


@pytest.mark.parametrize(("changes", "key"), DIFFERENT, ids=str)
def test_another_value_is_refused(changes: dict[str, Any], key: str) -> None:
    (finding,) = findings_of(changes)
    assert (finding.severity, finding.key) == ("error", f"trainer_overrides.{key}")


@pytest.mark.parametrize(
    "override",
    [
        "trainer={save_freq:5}",
        # What the composed configuration then has is what the gate checks.
        "trainer={nnodes:5}",
        "~trainer",
        "+trainer={new:{nodes:1}}",
        "trainer.nnodes_of_something=1",
        "reward={reward_kwargs:{path:x}}",
        "~critic",
        "ray_kwargs.ray_init.log_to_driver=false",
        "ray_kwargs.timeline_json_file=/x",
        "hydrate=1",
        "data.path=hydra.yaml",
        "actor@trainer=fsdp",
    ],
)
def test_settings_that_the_jobspec_leaves_to_its_author(override: str) -> None:
    assert owned_remedy(override) == ""


@pytest.mark.parametrize("option", ["--config-dir=/x", "-cd=/x", "--cfg=job", "-m=1", " --info=x"])
def test_options_of_hydra(option: str) -> None:
    (finding,) = findings_of({"trainer_overrides": [option]})
    assert finding.problem == "is an option of Hydra's command line"


READERS: list[tuple[Any, str]] = [
    (["a=${oc.env:HF_TOKEN}"], "oc.env"),
    (["a='${oc.env:HF_TOKEN}'"], "oc.env"),
    (["a=${\toc.env:HF_TOKEN,x}"], "oc.env"),
    (["a=[1,{b:'x${oc.env:HF_TOKEN}y'}]"], "oc.env"),
    ([r"a=$\{oc.env:HF_TOKEN\}"], "oc.env"),
    ([r"a=\${oc.env:HF_TOKEN}"], "oc.env"),
    (["a=${oc.${x}:HF_TOKEN}"], "oc.$…"),
    (["a=${${x}:HF_TOKEN}"], "$…"),
    (["a=${oc.select:b,${oc.env:HF_TOKEN}}"], "oc.env"),
    (["a=${oc.decode:${b}}"], "oc.decode"),
    (["a=${custom:1}"], "custom"),
    (["a=${:x}"], "a resolver without a name"),
    (["a=${oc.env"], "oc.env…"),
    ({"a": {"b": "${oc.env:HF_TOKEN}"}}, "oc.env"),
    ({"+a.b": {"c": {"d": "x ${oc.env:HF_TOKEN}"}}}, "oc.env"),
    (["${oc.env:A}=1"], "oc.env"),
]


@pytest.mark.parametrize(("overrides", "resolver"), READERS, ids=str)
def test_interpolations_that_read_more_than_the_configuration(overrides: Any, resolver: str) -> None:
    (finding,) = findings_of({"trainer_overrides": overrides})
    assert finding.problem == f"contains an interpolation of {resolver}, which may read the environment"
    assert finding.remedy == "name a secret in secrets: the trainer finds it in its environment"


@pytest.mark.parametrize(
    "override",
    ["a=${b.c}", "a=${ b }", "a='${b}/${c}'", "a=${oc.select:b,1}", "a=${..b}", "a=$HOME", "a={b:1}", "a=5$"],
)
def test_interpolations_within_the_configuration(override: str) -> None:
    assert foreign_resolver(override) == ""
    assert findings_of({"trainer_overrides": [override]}) == []


@pytest.mark.parametrize("piece", ["${", "${ ", "${a ", "$", "{", "\\", " "])
def test_a_long_override_takes_no_time(piece: str) -> None:
    started = time.monotonic()
    findings_of({"trainer_overrides": ["a=" + piece * (500_000 // len(piece))]})
    assert time.monotonic() - started < 30
