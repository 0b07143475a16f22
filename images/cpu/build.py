"""Build the CPU image, or with --vllm the one with vLLM, if its inputs have changed since the last build.

The inputs are the files of this directory, or those of vllm/ and the CPU image. Their hash is the image's label
``argus.verl.inputs``. pip downloads the packages as it is configured on this host, and compares them with the hashes
in requirements.txt. The base image comes from its registry, or from mmdebstrap if the registry cannot be reached.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
VLLM = HERE / "vllm"
INPUTS_LABEL = "argus.verl.inputs"
STAGE_LABEL = "argus.verl.stage=build"  # in the Dockerfile
# With the digest of the tag's list of architectures. In the Dockerfile, apt-get upgrade installs later updates.
BASE_IMAGE = "debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251"
SUITE = "bookworm"
PYTHON = "3.11"  # the version in bookworm
NEEDED_BYTES = 8 * 2**30  # for wheels, the build context, the build's layers and the image
PULL_TIMEOUT_SECONDS = 120
NOT_INPUTS = {"__pycache__", ".pytest_cache", "README.md", "tests", "vllm"}


def fail(message: str) -> None:
    sys.exit(f"images/cpu/build.py: {message}")


def run(*argv: str | Path, **kwargs: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(arg) for arg in argv], text=True, check=True, **kwargs)  # type: ignore[call-overload]


def input_files(directory: Path) -> list[Path]:
    """The files that determine the image, in a fixed order."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return sorted(path for path in files if not NOT_INPUTS & set(path.relative_to(directory).parts))


def inputs_hash(directory: Path) -> str:
    digest = hashlib.sha256()
    for path in input_files(directory):
        digest.update(f"{path.relative_to(directory)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def built_hash(engine: str, tag: str) -> str:
    """The hash of the inputs from which the existing image was built; "" if there is no image."""
    result = subprocess.run(
        [engine, "image", "inspect", "--format", f'{{{{ index .Config.Labels "{INPUTS_LABEL}" }}}}', tag],
        text=True,
        capture_output=True,
        check=False,
    )
    return result.stdout.strip() if result.returncode == 0 else ""


def base_image(engine: str) -> str:
    """The name of the base image. If it is missing, pulls it or, without a registry, creates it with mmdebstrap."""
    made = f"argus-verl-base:{SUITE}"
    for name in (BASE_IMAGE, made):
        if subprocess.run([engine, "image", "inspect", name], capture_output=True, check=False).returncode == 0:
            return name
    try:
        run(engine, "pull", "--quiet", BASE_IMAGE, capture_output=True, timeout=PULL_TIMEOUT_SECONDS)
        return BASE_IMAGE
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pass
    if not shutil.which("mmdebstrap"):
        fail(f"{BASE_IMAGE} cannot be pulled, and mmdebstrap, which can create it, is not installed")
    print(f"{BASE_IMAGE} cannot be pulled: creating it with mmdebstrap", flush=True)
    with tempfile.TemporaryFile() as tree:
        run("mmdebstrap", "--quiet", "--variant=minbase", SUITE, "-", stdout=tree)
        tree.seek(0)
        run(engine, "import", "-", made, stdin=tree, stdout=subprocess.DEVNULL)
    return made


def collect_wheels(requirements: Path, target: Path) -> None:
    """Download the image's packages with the pip of this host, which compares them with their hashes."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--quiet", "--disable-pip-version-check"]
    # No dependencies: requirements.txt is complete.
    wheels = ["--no-deps", "--only-binary=:all:", "--python-version", PYTHON, "--dest", str(target)]
    # hydra-core's parser has no wheel. To read its name and version, pip runs its setup.py: with the setuptools that is
    # installed, as pip would not compare one that it downloads.
    source = ["--no-binary=antlr4-python3-runtime", "--no-build-isolation", "--use-pep517"]
    argv = [*pip, *wheels, *source, "--require-hashes", "--requirement", str(requirements)]
    downloaded = subprocess.run(argv, text=True, stderr=subprocess.PIPE, check=False)
    if downloaded.returncode:
        print(downloaded.stderr, file=sys.stderr)
        if match := re.search(r"No matching distribution found for (torch==\S+)", downloaded.stderr):
            fail(
                f"pip's configuration does not give {match[1]}, PyTorch's build for CPUs. Add the directory or the "
                "index of PyTorch's CPU wheels to it (pip config set global.find-links DIRECTORY, or "
                "global.extra-index-url as in PyTorch's installation guide for CPU), or pass --find-links DIRECTORY"
            )
        if "DO NOT MATCH THE HASHES" in downloaded.stderr:
            fail(
                f"a package differs from its hash in {requirements}; pip names it above. Its index may be wrong or "
                "compromised: compare the package with the one of its publisher"
            )
        downloaded.check_returncode()


def build_context(engine: str, tag: str, digest: str, base: str, context: Path) -> None:
    """Build an image from a complete build context, and remove the image that it replaces. digest: of the inputs."""
    command = [engine, "build", "--quiet", "--build-arg", f"BASE={base}"]
    built = subprocess.run(
        [*command, "--label", f"{INPUTS_LABEL}={digest}", "--tag", tag, str(context)],
        env={**os.environ, "DOCKER_BUILDKIT": "0"},  # distributions may lack the plugin that BuildKit needs
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if built.returncode:
        fail(f"the build failed:\n{built.stdout}")
    # Remove the build stage, which no later build can reuse, and the image that this one replaces.
    for label in (STAGE_LABEL, INPUTS_LABEL):
        prune = [engine, "image", "prune", "--force", "--filter", f"label={label}"]
        subprocess.run(prune, capture_output=True, check=False)


def build(engine: str, tag: str, digest: str, wheels: Path | None, cpu_image: str = "") -> None:
    """Collect the packages of the CPU image or of the one with vLLM, and build it.

    wheels: a directory with additional wheels. cpu_image: on which the image with vLLM is built; "" for the CPU image.
    """
    docker_root = run(engine, "info", "--format", "{{ .DockerRootDir }}", capture_output=True).stdout.strip()
    for directory in (tempfile.gettempdir(), docker_root):
        # The engine may run on another machine.
        if Path(directory).is_dir() and (free := shutil.disk_usage(directory).free) < NEEDED_BYTES:
            need = f"{NEEDED_BYTES / 2**30:.0f} GiB while the image is built"
            fail(f"{directory} has {free / 2**30:.1f} GiB free, and needs {need}")
    base = cpu_image or base_image(engine)
    source = VLLM if cpu_image else HERE
    with tempfile.TemporaryDirectory(prefix="argus-verl-cpu-") as name:
        context = Path(name)
        for path in input_files(source):
            copy = context / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
        shutil.copy2(HERE / "sbom.py", context)
        (context / "wheels").mkdir()
        if wheels:
            os.environ["PIP_FIND_LINKS"] = f"{wheels} {os.environ.get('PIP_FIND_LINKS', '')}".strip()
        print(f"Downloading packages for {tag} (about {'200' if cpu_image else '430'} MiB)", flush=True)
        collect_wheels(source / "requirements.txt", context / "wheels")
        print(f"Building {tag}", flush=True)
        build_context(engine, tag, digest, base, context)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", help="the name of the image, for example argus-verl-cpu:0.1.0")
    parser.add_argument("--engine", default="docker", help="the container engine's command (default: docker)")
    parser.add_argument("--find-links", type=Path, help="a directory with additional wheels, such as torch's CPU build")
    parser.add_argument("--vllm", metavar="IMAGE", help="add vLLM to IMAGE, which is the CPU image", default="")
    parser.add_argument("--force", action="store_true", help="build even if nothing has changed")
    args = parser.parse_args()
    if not shutil.which(args.engine):
        fail(f"the container engine {args.engine!r} is not installed")
    reached = subprocess.run([args.engine, "info"], text=True, capture_output=True, check=False)
    if reached.returncode:
        fail(f"{args.engine} does not answer: {reached.stderr.strip()}")
    digest = inputs_hash(HERE)
    if args.vllm:
        if built_hash(args.engine, args.vllm) != digest:
            fail(f"{args.vllm} is missing, or built from other inputs: build it first, without --vllm")
        digest = hashlib.sha256(f"{digest}{inputs_hash(VLLM)}".encode()).hexdigest()[:16]
    if built_hash(args.engine, args.tag) == digest and not args.force:
        return
    try:
        build(args.engine, args.tag, digest, args.find_links, args.vllm)
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(map(str, error.cmd[:4]))} … failed with exit code {error.returncode}; its output is above")
    print(f"Built {args.tag}")


if __name__ == "__main__":
    main()
