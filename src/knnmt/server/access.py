"""Access: API keys, stored as digests, and limits for each key: requests a minute, characters a day."""

import hmac
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

from fastapi import HTTPException, Request

from knnmt.errors import DataError, UsageError
from knnmt.server.people import ANYONE, ROLES, Caller, Key

_LINE = re.compile(r"(?P<name>\S+)\s+(?P<digest>[0-9a-f]{64})(?:\s+(?P<limit>\d+))?(?P<fields>(?:\s+[a-z]+=\S+)*)")
FORMAT = "NAME DIGEST [LIMIT] [role=…] [expires=YYYY-MM-DD] [memories=A,B] [own=A] [characters=N]"
BUCKETS = 10_000  # clients tracked by the rate limiter; the least recently seen go first
MINUTE, DAY = 60.0, 86400.0


def read_keys(path: Path) -> list[Key]:
    """Read lines of NAME DIGEST [LIMIT] [FIELD=VALUE …]; empty lines and comments (#) are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; create keys with `knnmt serve --new-key`") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8; create keys with `knnmt serve --new-key NAME`") from None
    keys = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise DataError(f"{path}:{number}: expected {FORMAT}; create keys with `knnmt serve --new-key`")
        key = Key(match["name"], match["digest"], int(match["limit"]) if match["limit"] else None)
        given = dict(field.split("=", 1) for field in match["fields"].split())
        try:
            keys.append(replace(key, **{name: _value(name, text) for name, text in given.items()}))
        except ValueError as error:
            raise DataError(f"{path}:{number}: {error}") from None
    if not keys:
        raise DataError(f"{path}: contains no keys; create one with `knnmt serve --new-key NAME`")
    return keys


def _value(name: str, text: str) -> Any:
    """The value of a field of a key's line."""
    if name in ("memories", "own"):
        return tuple(text.split(","))
    if name == "role" and text in ROLES:
        return text
    if name == "role":
        raise ValueError(f"role={text}: should be one of {', '.join(ROLES)}")
    if name == "expires":
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise ValueError(f"expires={text}: should be a date, such as 2027-01-01") from None
    if name == "characters" and text.isdecimal() and int(text):
        return int(text)
    raise ValueError(f"{name}={text}: expected {FORMAT}")


def add_key(path: Path, name: str, limit: int | None = None, **fields: Any) -> str:
    """Create a key and append its digest to a file that only its owner may read. The key itself is stored nowhere.

    fields: those of `Key`, such as its role
    """
    if not re.fullmatch(r"[^\s#]\S*", name):
        raise UsageError(f"{name!r} is not a valid key name: use letters and digits, no spaces")
    if path.exists() and any(each.name == name for each in read_keys(path)):
        raise UsageError(f"{path}: a key named {name!r} already exists; choose another name, or remove its line")
    new = Key(name, "", limit, **fields)
    if new.expires is not None and new.expires < date.today():
        raise UsageError(f"a key that expired on {new.expires} would open nothing: choose a later day")
    for each in (new.memories, new.own):
        if each is not None and (not each or re.search(r"\s", "".join(each))):  # the line would say something else
            raise UsageError("name at least one memory, without spaces; others go to [keys] of the configuration")
    secret = secrets.token_urlsafe(32)
    if not path.exists():
        path.touch(mode=0o600)
    with path.open("a", encoding="utf-8") as file:
        file.write(_line(replace(new, digest=digest(secret))) + "\n")
    return secret


def _line(key: Key) -> str:
    """A key as its file has it."""
    fields = {
        "role": key.role if key.role != Key.role else None,
        "expires": key.expires,
        "memories": ",".join(key.memories or ()),
        "own": ",".join(key.own or ()),
        "characters": key.characters,
    }
    limit = [] if key.limit is None else [str(key.limit)]
    return " ".join([key.name, key.digest, *limit, *(f"{name}={value}" for name, value in fields.items() if value)])


def digest(key: str) -> str:
    """The SHA-256 of a key. Keys are long and random, so a fast hash is safe."""
    return sha256(key.encode(errors="surrogatepass")).hexdigest()


class Doorkeeper:
    """Says who calls, or raises 403 or 429."""

    def __init__(self, keys: Sequence[Key], limit: int, anyone: Caller = ANYONE) -> None:
        self.keys, self._limit, self._anyone = tuple(keys), limit, anyone
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when counted

    def replace(self, keys: Sequence[Key]) -> None:
        """Know other keys from now on; what was counted stays."""
        self.keys = tuple(keys)

    @property
    def needs_key(self) -> bool:
        """Whether requests must carry a key."""
        return bool(self.keys)

    def admit(self, request: Request, key: str | None = None) -> Caller:
        """Who calls, by the key given or in the request's headers; the request counts towards the rate limit."""
        found = self._known(request, key)
        if found is None:
            client = request.client.host if request.client else ""
            self._count(f"@{client}", self._limit)
            return self._anyone
        self._count(found.digest, self._limit if found.limit is None else found.limit)
        return found.caller

    def recognise(self, request: Request) -> Caller:
        """Who calls, by the key in the request's headers; not counted: progress may be asked for at any rate."""
        found = self._known(request, None)
        return self._anyone if found is None else found.caller

    def count_characters(self, caller: Caller, count: int) -> None:
        """Count characters towards a caller's limit; 429 beyond it."""
        if caller.characters is not None and not self._take(f"#{caller.id}", caller.characters, DAY, count):
            raise HTTPException(429, f"Slowdown: {caller.characters} characters per day", {"Retry-After": "3600"})

    def _known(self, request: Request, key: str | None) -> Key | None:
        """The key of a request; None if the server has no keys."""
        key = key or _key_of(request)
        if not self.keys:
            return None
        if not key:
            raise HTTPException(403, "API key required: ask the operator of this server for one")
        found = self._find(key)
        if found is None:
            raise HTTPException(403, "Invalid API key")
        if found.expired:
            raise HTTPException(403, f"API key expired on {found.expires}: ask the operator of this server for another")
        return found

    def _find(self, key: str) -> Key | None:
        """Compare with all keys, each in constant time, so that timing reveals nothing."""
        given, found = digest(key), None
        for each in self.keys:
            if hmac.compare_digest(each.digest, given):
                found = each
        return found

    def _count(self, who: str, limit: int) -> None:
        """Count a request towards a limit of requests a minute."""
        if limit and not self._take(who, limit, MINUTE, 1):
            wait = math.ceil((1 - self._buckets[who][0]) * MINUTE / limit)
            raise HTTPException(429, f"Slowdown: {limit} per 1 minute", {"Retry-After": str(wait)})

    def _take(self, who: str, limit: int, period: float, count: int) -> bool:
        """Take from a token bucket that holds what is allowed in a period."""
        now = time.monotonic()
        left, counted = self._buckets.pop(who, (float(limit), now))
        left = min(float(limit), left + (now - counted) * limit / period)
        allowed = left >= count
        self._buckets[who] = left - count * allowed, now
        if len(self._buckets) > BUCKETS:
            self._buckets.popitem(last=False)
        return allowed


def _key_of(request: Request) -> str | None:
    """The key in the headers. One in the address would end up in logs and histories."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() in ("bearer", "deepl-auth-key") else None
