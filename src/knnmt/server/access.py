"""Access: API keys, stored as digests, and a rate limit for each key."""

import hmac
import math
import re
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fastapi import HTTPException, Request

from knnmt.errors import DataError, UsageError
from knnmt.server.people import ANYONE, Caller

_LINE = re.compile(r"(?P<name>\S+)\s+(?P<digest>[0-9a-f]{64})(?:\s+(?P<limit>\d+))?")
BUCKETS = 10_000  # clients tracked by the rate limiter; the least recently seen go first


@dataclass(frozen=True)
class Key:
    """A key's name, SHA-256 digest, and rate limit in requests a minute (None: the server's; 0: unlimited)."""

    name: str
    digest: str
    limit: int | None = None

    @property
    def caller(self) -> Caller:
        """Who has it."""
        return Caller(self.name, "teach", self.digest)


def read_keys(path: Path) -> list[Key]:
    """Read lines of NAME DIGEST [LIMIT]; empty lines and comments (#) are skipped."""
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
            raise DataError(f"{path}:{number}: expected NAME DIGEST [LIMIT]; create keys with `knnmt serve --new-key`")
        keys.append(Key(match["name"], match["digest"], int(match["limit"]) if match["limit"] else None))
    if not keys:
        raise DataError(f"{path}: contains no keys; create one with `knnmt serve --new-key NAME`")
    return keys


def add_key(path: Path, name: str, limit: int | None = None) -> str:
    """Create a key and append its digest to a file that only its owner may read. The key itself is stored nowhere."""
    if not re.fullmatch(r"[^\s#]\S*", name):
        raise UsageError(f"{name!r} is not a valid key name: use letters and digits, no spaces")
    if path.exists() and any(key.name == name for key in read_keys(path)):
        raise UsageError(f"{path}: a key named {name!r} already exists; choose another name, or remove its line")
    key = secrets.token_urlsafe(32)
    if not path.exists():
        path.touch(mode=0o600)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{name} {digest(key)}{'' if limit is None else f' {limit}'}\n")
    return key


def digest(key: str) -> str:
    """The SHA-256 of a key. Keys are long and random, so a fast hash is safe."""
    return sha256(key.encode(errors="surrogatepass")).hexdigest()


class Doorkeeper:
    """Admits requests, or raises 403 or 429."""

    def __init__(self, keys: list[Key], limit: int, anyone: Caller = ANYONE) -> None:
        self._keys, self._limit, self._anyone = keys, limit, anyone
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when counted

    @property
    def needs_key(self) -> bool:
        """Whether requests must carry a key."""
        return bool(self._keys)

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

    def _known(self, request: Request, key: str | None) -> Key | None:
        """The key of a request; None if the server has no keys."""
        key = key or _key_of(request)
        if not self._keys:
            return None
        if not key:
            raise HTTPException(403, "API key required: ask the operator of this server for one")
        found = self._find(key)
        if found is None:
            raise HTTPException(403, "Invalid API key")
        return found

    def _find(self, key: str) -> Key | None:
        """Compare with all keys, each in constant time, so that timing reveals nothing."""
        given, found = digest(key), None
        for each in self._keys:
            if hmac.compare_digest(each.digest, given):
                found = each
        return found

    def _count(self, who: str, limit: int) -> None:
        """Apply a token bucket that holds a minute's requests."""
        if not limit:
            return
        now = time.monotonic()
        left, counted = self._buckets.pop(who, (float(limit), now))
        left = min(float(limit), left + (now - counted) * limit / 60)
        allowed = left >= 1
        self._buckets[who] = left - allowed, now
        if len(self._buckets) > BUCKETS:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = math.ceil((1 - left) * 60 / limit)
            raise HTTPException(429, f"Slowdown: {limit} per 1 minute", {"Retry-After": str(wait)})


def _key_of(request: Request) -> str | None:
    """The key in the headers. One in the address would end up in logs and histories."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None
