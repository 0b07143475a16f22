# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ray's runtime environment of a job: which parts an inventory or a JobSpec may set. All of it is pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..common.findings import Finding, about
from ..common.text import nearest
from .environment import variable_findings
from .spec import JobSpec

KEY = "ray.runtime_env"
BUILDS = "it installs packages when the job starts, on every node, and jobs download nothing"
IMAGE = "add the packages to the image; see ray_image"
BEFORE = "Ray puts it before the snapshot on PYTHONPATH, and copies it to every node"
USER = "stage it to user/code, and name that directory in env_vars: {PYTHONPATH: …}"
# What the collection decides: why, and what to do instead.
OWNED = {
    "working_dir": (BEFORE, USER),
    "py_modules": (BEFORE, USER),
    "excludes": ("it belongs to working_dir", "remove it"),
    "pip": (BUILDS, IMAGE),
    "uv": (BUILDS, IMAGE),
    "conda": (BUILDS, IMAGE),
    "container": ("a job runs in the image of its nodes", "set the image of the cluster with ray_image"),
    "image_uri": ("a job runs in the image of its nodes", "set the image of the cluster with ray_image"),
    "py_executable": ("a job runs with the Python of its nodes", "remove it"),
    "java_jars": ("a job runs Python", "remove it"),
    "mpi": ("verl starts its processes itself", "remove it"),
    "worker_process_setup_hook": ("the collection has its own, for secrets and samples", "remove it"),
}


def _is_limit(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (value > 0 or value == -1)


def _is_text_or_options(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and all(isinstance(key, str) for key in value))


Check = Callable[[object], bool]
# What may be set, and the form of each value.
PROFILERS: dict[str, Check] = {"nsight": _is_text_or_options, "rocprof_sys": _is_text_or_options}
CONFIG: dict[str, tuple[Check, str]] = {
    "setup_timeout_seconds": (_is_limit, "give a number of seconds, or -1 for no limit"),
    "eager_install": (lambda value: isinstance(value, bool), "give true or false"),
}
KNOWN = ("env_vars", "config", *PROFILERS)


def runtime_env_findings(spec: JobSpec) -> Iterator[Finding]:
    """Problems of ray.runtime_env."""
    for name, value in spec.runtime_env.items():
        key = f"{KEY}.{name}"
        if name in OWNED:
            why, todo = OWNED[name]
            yield about(key, f"cannot be set: {why}", todo)
        elif name not in KNOWN:
            yield about(key, "is not known", nearest(str(name), KNOWN) or f"known keys: {', '.join(KNOWN)}")
        elif name in PROFILERS:
            if not PROFILERS[name](value):
                yield about(key, f"is {value!r}", "give the name of a configuration, or a mapping of options")
        elif not isinstance(value, Mapping):
            yield about(key, f"is {value!r}", "give a mapping")
        elif name == "env_vars":
            yield from variable_findings(key, value, spec.shared_root)
        else:
            yield from _config(value)


def _config(given: Mapping[object, object]) -> Iterator[Finding]:
    for name, value in given.items():
        key = f"{KEY}.config.{name}"
        if name not in CONFIG:
            yield about(key, "is not known", nearest(str(name), CONFIG) or f"known keys: {', '.join(CONFIG)}")
        elif not CONFIG[str(name)][0](value):
            yield about(key, f"is {value!r}", CONFIG[str(name)][1])
