# SPDX-License-Identifier: Apache-2.0
"""Masks a job's secrets in text, streams and environments, in the forms in which programs write them:
as they are, JSON, repr, URLs, base64. Also tells by the name of a variable whether its value is a secret.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping

MASK = "[secret]"
# Shorter values are not masked: they occur by chance in any text.
MIN_SECRET_CHARS = 4
# The length from which a line of a secret, and the beginning of a secret that was cut off, are masked.
MIN_PART_CHARS = 8
# The most bytes of an unfinished line that are held back.
MAX_PENDING_BYTES = 1 << 16
# The login in a URL.
URL_LOGIN = re.compile(r"(://)[^\s/@]{0,256}:[^\s/@]{1,1024}@")
# The login in an HTTP header, whose base64 depends on the name beside the secret.
HTTP_LOGIN = re.compile(rb"(uthorization\W{1,8}[Bb]asic +)[\w+/-]+=*")
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


def maskable_lines(value: str) -> list[str]:
    """The lines of a value that are long enough to mask. A value without one is never masked."""
    lines = [line.strip() for line in value.strip().splitlines()]
    return [line for line in lines if len(line) >= (MIN_SECRET_CHARS if len(lines) == 1 else MIN_PART_CHARS)]


def written_forms(value: str) -> Iterator[str]:
    """The forms in which programs write a value, or one of its lines."""
    whole, quote, quote_plus = value.strip(), urllib.parse.quote, urllib.parse.quote_plus
    # Inside JSON, the line ends of a private key are escaped.
    lines = [*maskable_lines(value), *maskable_lines(value.replace("\\n", "\n"))]
    yield from lines
    for text in {whole, *lines}:
        data = text.encode(errors="surrogatepass")
        yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
        yield from (quote(data), quote(data, safe=""), quote_plus(data))
        # The last character of base64 depends on what follows the value, such as the end of a line: leave it out.
        fixed_count = len(data) * 4 // 3
        yield from (encode(data)[:fixed_count].decode() for encode in (base64.b64encode, base64.urlsafe_b64encode))


class Redactor:
    """Masks secrets in a text, or in the lines of a stream that arrives in pieces."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if maskable_lines(secret) for form in written_forms(secret)}
        # The longest come first, because one may contain another.
        self.forms = sorted({form.encode(errors="surrogatepass") for form in forms}, key=len, reverse=True)
        self.longest_form_bytes = max(map(len, self.forms), default=0)
        self.pending = b""

    def mask_text(self, text: str) -> str:
        """Mask the secrets in a text, and the beginning of a secret that was cut off at its end."""
        # A stream may escape surrogates when it writes; they must not fail here.
        return self._mask_with_end(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def feed(self, data: bytes) -> bytes:
        """Add a piece; return, masked, all complete lines, and an overlong line up to a place outside of any secret."""
        if not self.forms:
            return data
        data = self.pending + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > MAX_PENDING_BYTES + self.longest_form_bytes:
            # A secret that begins before this place has its end in the data.
            place = len(data) - self.longest_form_bytes
            pattern = self._pattern(data)
            matches = pattern.finditer(data) if pattern else ()
            end = next((match.end() for match in matches if match.start() < place < match.end()), place)
        self.pending = data[end:]
        return self._mask(data[:end])

    def finish(self) -> bytes:
        """Return the rest at the end of the stream, masked as in mask_text."""
        data, self.pending = self.pending, b""
        return self._mask_with_end(data)

    def _mask_with_end(self, data: bytes) -> bytes:
        """Mask the secrets, and the beginning of a secret that was cut off at the end of the data."""
        data = self._mask(data)
        first = max(0, len(data) - self.longest_form_bytes)
        begun = [form for form in self.forms if data.find(form[:MIN_PART_CHARS], first) >= 0]
        places = range(first, len(data) - MIN_PART_CHARS + 1) if begun else ()
        cut = next((place for place in places if any(form.startswith(data[place:]) for form in begun)), None)
        return data if cut is None else data[:cut] + MASK.encode()

    def _mask(self, data: bytes) -> bytes:
        data = HTTP_LOGIN.sub(rb"\1" + MASK.encode(), data) if self.forms else data
        pattern = self._pattern(data)
        return pattern.sub(MASK.encode(), data) if pattern else data

    def _pattern(self, data: bytes) -> re.Pattern[bytes] | None:
        """A pattern for the secrets that are in the data; None if there are none, which is usual and fast."""
        present = [re.escape(form) for form in self.forms if form in data]
        return re.compile(b"|".join(present)) if present else None


# Names of variables, and environments.
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
