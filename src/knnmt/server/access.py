"""Who may ask, and how often: API keys, of which only digests are kept, and a limit of requests a minute for each."""

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

_LINE = re.compile(r"(?P<name>\S+)\s+(?P<digest>[0-9a-f]{64})(?:\s+(?P<limit>\d+))?")
BUCKETS = 10_000  # clients remembered; those not seen for longest are forgotten first


@dataclass(frozen=True)
class Key:
    """A key's name, its SHA-256 digest, and its own limit of requests a minute, where it has one (0: none)."""

    name: str
    digest: str
    limit: int | None = None


def read_keys(path: Path) -> list[Key]:
    """Read lines of name, digest and perhaps a limit; empty lines and those that begin with # do not count."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): make keys with `knnmt serve --new-key`") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8: make keys with `knnmt serve --new-key NAME`") from None
    keys = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise DataError(f"{path}:{number}: a line is NAME DIGEST [LIMIT]; make one with `knnmt serve --new-key`")
        keys.append(Key(match["name"], match["digest"], int(match["limit"]) if match["limit"] else None))
    if not keys:
        raise DataError(f"{path} holds no key, so nobody could ask: make one with `knnmt serve --new-key NAME`")
    return keys


def add_key(path: Path, name: str, limit: int | None = None) -> str:
    """Make a key, append its digest to a file that only its owner may read, and give the key: it is kept nowhere."""
    if not re.fullmatch(r"[^\s#]\S*", name):
        raise UsageError(f"{name!r} is no name for a key: use letters and digits, without spaces")
    if path.exists() and any(key.name == name for key in read_keys(path)):
        raise UsageError(f"{path} has a key {name!r} already: take another name, or remove its line")
    key = secrets.token_urlsafe(32)
    if not path.exists():
        path.touch(mode=0o600)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{name} {digest(key)}{'' if limit is None else f' {limit}'}\n")
    return key


def digest(key: str) -> str:
    """What is kept of a key. Keys are long and random, so a fast digest is enough."""
    return sha256(key.encode(errors="surrogatepass")).hexdigest()


class Doorkeeper:
    """Lets requests in, or raises 403 or 429."""

    def __init__(self, keys: list[Key], limit: int) -> None:
        self._keys, self._limit = keys, limit
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when it was counted

    @property
    def needs_key(self) -> bool:
        """Whether there are keys at all."""
        return bool(self._keys)

    def admit(self, request: Request, key: str | None = None) -> None:
        """Check the key, from the request's fields or its headers, and count the request."""
        key = key or _key_of(request)
        if not self._keys:
            client = request.client.host if request.client else ""
            self._count(f"@{client}", self._limit)
            return
        if not key:
            raise HTTPException(403, "an API key is needed: ask whoever runs this server for one")
        found = self._find(key)
        if found is None:
            raise HTTPException(403, "Invalid API key")
        self._count(found.digest, self._limit if found.limit is None else found.limit)

    def _find(self, key: str) -> Key | None:
        """All are compared, each in constant time, so that the time tells nothing."""
        given, found = digest(key), None
        for each in self._keys:
            if hmac.compare_digest(each.digest, given):
                found = each
        return found

    def _count(self, who: str, limit: int) -> None:
        """A bucket that holds a minute's requests and fills up steadily."""
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
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return request.query_params.get("api_key")
