"""Build the CPU image, if its inputs changed since it was built.

The inputs are the files of this directory; their hash is the image's label ``argus.verl.inputs``.
Wheels come from the host's pip configuration, the base from the registry or, where that cannot be
reached, from mmdebstrap.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LABEL = "argus.verl.inputs"
STAGE_LABEL = "argus.verl.stage=build"  # in the Dockerfile
BASE = "debian:bookworm-slim"
SUITE = "bookworm"
PYTHON = "3.11"  # what bookworm has
VERL = "0.9.1"
SPACE_NEEDED = 8 * 2**30  # bytes: wheels, the build context, the build's layers and the image
PULL_SECONDS = 120
NOT_INPUTS = {"__pycache__", ".pytest_cache", "README.md", "tests"}
TORCH_CPU_MEBIBYTES = 400  # 2.13.0 for CPU has 190, for CUDA 900


def fail(message: str) -> None:
    sys.exit(f"images/cpu/build.py: {message}")


def run(*argv: str | Path, **kwargs: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(arg) for arg in argv], text=True, check=True, **kwargs)  # type: ignore[call-overload]


def inputs() -> list[Path]:
    """What goes into the image, in a fixed order."""
    return sorted(
        path for path in HERE.rglob("*") if path.is_file() and not NOT_INPUTS & set(path.relative_to(HERE).parts)
    )


def inputs_hash() -> str:
    digest = hashlib.sha256()
    for path in inputs():
        digest.update(f"{path.relative_to(HERE)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def built_hash(engine: str, tag: str) -> str:
    """The inputs' hash of the image that is there, or nothing."""
    found = subprocess.run(
        [engine, "image", "inspect", "--format", f'{{{{ index .Config.Labels "{LABEL}" }}}}', tag],
        text=True,
        capture_output=True,
        check=False,
    )
    return found.stdout.strip() if found.returncode == 0 else ""


def base_image(engine: str) -> str:
    """The base image's name: from the registry if it can be reached, else made here."""
    made = f"argus-verl-base:{SUITE}"
    for name in (BASE, made):
        if subprocess.run([engine, "image", "inspect", name], capture_output=True, check=False).returncode == 0:
            return name
    try:
        run(engine, "pull", "--quiet", BASE, capture_output=True, timeout=PULL_SECONDS)
        return BASE
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pass
    if not shutil.which("mmdebstrap"):
        fail(f"{BASE} cannot be pulled, and mmdebstrap, which could make it here, is not installed")
    print(f"{BASE} cannot be pulled: making it with mmdebstrap", flush=True)
    with tempfile.TemporaryFile() as tree:
        run("mmdebstrap", "--quiet", "--variant=minbase", SUITE, "-", stdout=tree)
        tree.seek(0)
        run(engine, "import", "-", made, stdin=tree, stdout=subprocess.DEVNULL)
    return made


def collect_wheels(target: Path) -> None:
    """Wheels for the image's Python on this host's platform, by the host's pip and its configuration."""
    pip = [sys.executable, "-m", "pip"]
    quiet = ["--quiet", "--quiet", "--disable-pip-version-check"]
    wheels = ["--only-binary=:all:", "--python-version", PYTHON, "--dest", str(target)]
    # hydra-core's parser is published as source only; it is pure Python, so any host can build its wheel.
    source_only = "antlr4-python3-runtime"
    lines = (HERE / "requirements.txt").read_text().splitlines()
    pins = [line.split("#")[0].strip() for line in lines]
    parser = next(pin for pin in pins if pin.startswith(source_only))
    others = [pin for pin in pins if pin and pin != parser]
    run(*pip, "wheel", *quiet, "--no-deps", "--wheel-dir", target, parser)
    # No dependencies: requirements.txt is complete, and torch's would be several GB of CUDA.
    run(*pip, "download", *quiet, *wheels, "--no-deps", *others, f"verl=={VERL}")
    torch = next(target.glob("torch-*.whl"))
    mebibytes = torch.stat().st_size / 2**20
    if mebibytes > TORCH_CPU_MEBIBYTES:
        fail(
            f"pip's configuration gives {torch.name} ({mebibytes:.0f} MiB), a build for CUDA. Name the directory or "
            "the index of PyTorch's CPU wheels in it (pip config set global.find-links DIRECTORY, or "
            "global.extra-index-url as PyTorch's page on installing says for CPU), or pass --find-links DIRECTORY"
        )


def build(engine: str, tag: str, digest: str, wheels: Path | None) -> None:
    docker_root = run(engine, "info", "--format", "{{ .DockerRootDir }}", capture_output=True).stdout.strip()
    for directory in (tempfile.gettempdir(), docker_root):
        # The engine may be on another machine.
        if Path(directory).is_dir() and (free := shutil.disk_usage(directory).free) < SPACE_NEEDED:
            need = f"{SPACE_NEEDED / 2**30:.0f} GiB while the image is built"
            fail(f"{directory} has {free / 2**30:.1f} GiB free, and needs {need}")
    base = base_image(engine)
    with tempfile.TemporaryDirectory(prefix="argus-verl-cpu-") as name:
        context = Path(name)
        for path in inputs():
            copy = context / path.relative_to(HERE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
        (context / "wheels").mkdir()
        if wheels:
            os.environ["PIP_FIND_LINKS"] = f"{wheels} {os.environ.get('PIP_FIND_LINKS', '')}".strip()
        print("collecting wheels (about 430 MiB)", flush=True)
        collect_wheels(context / "wheels")
        print(f"building {tag} (about 2 GiB)", flush=True)
        build = [engine, "build", "--quiet", "--build-arg", f"BASE={base}"]
        built = subprocess.run(
            [*build, "--label", f"{LABEL}={digest}", "--tag", tag, name],
            env={**os.environ, "DOCKER_BUILDKIT": "0"},  # BuildKit needs a plugin that distributions may lack
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if built.returncode:
        fail(f"the build failed:\n{built.stdout}")
    # The build stage, of which the next build can use nothing, and the image that this one replaced.
    for label in (STAGE_LABEL, LABEL):
        prune = [engine, "image", "prune", "--force", "--filter", f"label={label}"]
        subprocess.run(prune, capture_output=True, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", help="the image's name, for example argus-verl-cpu:0.1.0")
    parser.add_argument("--engine", default="docker", help="the container engine's command (default: docker)")
    parser.add_argument("--find-links", type=Path, help="a directory with further wheels, such as torch's CPU build")
    parser.add_argument("--force", action="store_true", help="build although nothing changed")
    args = parser.parse_args()
    if not shutil.which(args.engine):
        fail(f"the container engine {args.engine!r} is not installed")
    reached = subprocess.run([args.engine, "info"], text=True, capture_output=True, check=False)
    if reached.returncode:
        fail(f"{args.engine} does not answer: {reached.stderr.strip()}")
    digest = inputs_hash()
    if built_hash(args.engine, args.tag) == digest and not args.force:
        print(f"{args.tag}: exists, built from the same inputs ({digest})")
        return
    try:
        build(args.engine, args.tag, digest, args.find_links)
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(map(str, error.cmd[:4]))} … failed with exit code {error.returncode}; its output is above")
    print(f"{args.tag}: built ({digest})")


if __name__ == "__main__":
    main()
