# SPDX-License-Identifier: Apache-2.0
"""Recognises environment variables that hold secrets, and masks them in an environment."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .redact import MASK, Redactor

# The login in a URL.
URL_LOGIN = re.compile(r"(://)[^\s/@]{0,256}:[^\s/@]{1,1024}@")
CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Names of variables that hold a secret: their values never go into evidence, and a JobSpec's env_vars may not set them.
SECRET_NAME = re.compile(
    r"""PASSW|PASSPHRASE|SECRET|CREDENTIAL|TOKEN(?!I[ZS])|WEBHOOK|KUBECONFIG|NETRC|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY
    |(^|_)(KEYS?|PAT|PWD|O?AUTH|CREDS?|COOKIES?|JWT|CERTS?|DSN|PEM|PSK|SAS|BEARER|MNEMONIC|CONN(ECTION)?_STR(ING)?)(_|$)
    |(^|_)(PASS|SESSION)$
    |(^|_)(DATABASE|DB|REDIS|VALKEY|MONGO(DB)?|POSTGRES(QL)?|PG|MYSQL|MARIADB|AMQP|RABBITMQ|BROKER|SQLALCHEMY|JDBC)_UR[IL]$
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Names that match, but hold only a path or a setting.
HARMLESS_NAME = re.compile(
    r"""_(PATH|FILE|DIR|SOCK|MODE|NAME|TYPE|SIZE|LENGTH|COUNT|ENABLED|DISABLED|TIMEOUT)$
    |^(OLD)?PWD$|^(TORCH_)?NCCL_|^TOKENIZERS_
    # Settings on the tokens of a model, and names of columns.
    |(^|_)((MAX|MIN|NUM|PER|PAD|EOS|BOS|UNK|STOP|SPECIAL|BATCHED|NEW|IMAGE|MASK)_)+TOKENS?(_IDS?|_LEN)?$
    |(^|_)TOKENS?_(PER|LEN|LEVEL|MEAN|IDS|BUDGET|LIMIT)(_|$)
    |(^|_)(PUBLIC|PRIMARY|SORT|CACHE|PROMPT|REWARD|REWARD_FN|RESPONSE|ANSWER|LABEL|INPUT|OUTPUT|IMAGE|VIDEO|MESSAGES)_KEY$
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_secret_name(name: str) -> bool:
    """Whether a variable's name, also one in camel case, tells that its value is a secret."""
    words = CAMEL_CASE.sub("_", name).replace("-", "_")
    return bool(SECRET_NAME.search(words)) and not HARMLESS_NAME.search(words)


def masked_environment(variables: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """A copy of an environment in which values that are secret by their name or their content are masked."""
    return {
        name: MASK if is_secret_name(name) else URL_LOGIN.sub(rf"\1{MASK}@", redactor.mask_text(value))
        for name, value in sorted(variables.items())
    }
