"""The part of the operator's environment that Slurm's commands get, with programs in their place."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.slurm import commands

REPO = Path(__file__).resolve().parents[5]
SECRETS = ("HF_TOKEN", "WANDB_API_KEY", "ANSIBLE_VAULT_PASSWORD_FILE", "SLURM_JWT", "SBATCH_EXPORT")
# As sbatch with --export=ALL: the script has its environment.
SBATCH = '#!/bin/bash\n[ "$*" = --parsable ] || exit 2\nbash -s >&2\necho "7;cluster"\n'
# Shows its words.
SRUN = "#!/bin/sh\nprintf '%s\\n' \"$@\" > '{log}'\n"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def names(file: Path) -> set[str]:
    return {variable.partition("=")[0] for variable in file.read_text().split("\0") if variable}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with programs; the environment has secrets."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in SECRETS:
        monkeypatch.setenv(name, "a secret")
    return tmp_path


def test_a_batch_script_has_no_secrets_and_can_load_modules(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(here / "bin" / "sbatch", SBATCH)
    modules = {"MODULEPATH": "/sw/modules", "LMOD_CMD": "/lmod", "MODULESHOME": "/sw", "LD_LIBRARY_PATH": "/sw/lib"}
    loaded = {"LOADEDMODULES": "cuda", "LMOD_FAMILY_COMPILER": "gcc", "_ModuleTable001_": "x", "CUDA_HOME": "/sw/cuda"}
    function = {"BASH_FUNC_module%%": f'() {{ export CUDA="$2 of $MODULEPATH"; echo "$2" > {here}/asked; }}'}
    for name, text in {**modules, **loaded, **function}.items():
        monkeypatch.setenv(name, text)
    assert commands.submit(f"module load cuda\nenv -0 > {here}/env\n") == 7
    assert (here / "asked").read_text() == "cuda\n"
    environment = names(here / "env")
    assert {*modules, "PATH", "HOME", "LANG", "CUDA"} <= environment
    assert not environment & {*SECRETS, *loaded}


def test_nodes_of_the_batch_script_of_the_collection_have_no_secrets(here: Path) -> None:
    program(here / "bin" / "srun", SRUN.format(log=here / "words"))
    program(here / "playbook", f"#!/bin/bash\nenv -0 > {here}/env\n")
    settings = {"ARGUS": str(REPO), "ANSIBLE_PLAYBOOK": str(here / "playbook"), "SLURM_JOB_ID": "7"}
    # The step and the playbooks run at the same time.
    waits = f'trap wait EXIT\n. {REPO}/slurm/verl.sbatch "$@"'
    subprocess.run(["bash", "-c", waits, "bash", "grpo.yaml"], env={**os.environ, **settings}, check=True)
    words = (here / "words").read_text().splitlines()
    (exported,) = [word.removeprefix("--export=") for word in words if word.startswith("--export=")]
    assert words.index(f"--export={exported}") < words.index("/opt/verl/bin/python3")
    listed = exported.split(",")
    assert set(listed) == set(commands.step_environment(dict.fromkeys(listed, "x"), modules=True)) - {"LANG"}
    # The playbooks need the secrets of jobs.
    assert "HF_TOKEN" in names(here / "env")
