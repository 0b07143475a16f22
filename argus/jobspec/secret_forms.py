# SPDX-License-Identifier: Apache-2.0
"""Recognizes well-known kinds of secrets in texts of a JobSpec, which are archived and readable."""

from __future__ import annotations

import re

# Forms of well-known secrets. Each is bounded, so that searching a long text takes linear time.
SECRET_FORMS = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY"),
    "a URL with a password": re.compile(r"://[^\s:@/?#]{0,256}:[^\s@/]{1,256}@"),
    "a JSON Web Token": re.compile(r"eyJ[\w-]{8,256}\.eyJ[\w-]{8}"),
    "an access key": re.compile(
        r"(?<![A-Za-z0-9])((AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])|hf_[A-Za-z0-9]{16}|gh[pousr]_[A-Za-z0-9]{20}"
        r"|github_pat_\w{20}|glpat-[\w-]{16}|sk-[A-Za-z0-9]{20}|nvapi-[\w-]{20}"
        r"|sk-(proj|ant|svcacct|admin|or)-[\w-]{16}|[rs]k_(live|test)_[A-Za-z0-9]{16}"
        r"|xox[abeprs]-[\w-]{10}|xapp-[\w-]{10}|AIza[\w-]{35}|ya29\.[\w-]{20}|npm_[A-Za-z0-9]{30}|pypi-[\w-]{16}"
        r"|wandb_v1_\w{16}|dop_v1_[a-f0-9]{32}|dapi[a-f0-9]{32}|SG\.[\w-]{16,64}\.[\w-]{16})"
    ),
}


def form_of_secret(text: str) -> str:
    """The kind of secret that a text contains, or ""."""
    return next((form for form, pattern in SECRET_FORMS.items() if pattern.search(text)), "")
