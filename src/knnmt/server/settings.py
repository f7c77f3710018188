"""The settings of a server: address, limits, access."""

from pathlib import Path

from pydantic import Field

from knnmt.settings import Settings


class ServerSettings(Settings):
    """Settings of a server. The limits keep one client from starving the others."""

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 for all interfaces")
    port: int = Field(default=5000, ge=0, le=65535, description="port to listen on; 0 for any free port")
    beam: int = Field(default=5, ge=1, le=64, description="default beam size")
    max_beam: int = Field(default=16, ge=1, le=64, description="maximum beam size of a request")
    max_alternatives: int = Field(default=8, ge=0, le=63, description="maximum alternatives of a text")
    max_segments: int = Field(default=512, ge=1, description="maximum texts in a request, counting every line")
    max_characters: int = Field(default=50_000, ge=1, description="maximum characters in a request")
    max_tokens: int = Field(default=50_000, ge=1, description="maximum source tokens in a request")
    max_body: int = Field(default=1 << 20, ge=1, description="maximum request size in bytes")
    max_import: int = Field(default=256 << 20, ge=1, description="maximum size of an imported file in bytes")
    time_limit: float = Field(default=30, gt=0, description="timeout of a request in seconds")
    queue: int = Field(default=256, ge=1, description="maximum requests in the queue")
    batch_tokens: int = Field(default=4096, ge=1, description="maximum source tokens in a batch")
    batch_size: int = Field(default=32, ge=1, description="maximum texts the model decodes at a time")
    gather: float = Field(default=0.003, ge=0, le=1, description="seconds to wait for more requests to join a batch")
    rate_limit: int = Field(default=0, ge=0, description="requests a minute for each key; 0 for no limit")
    keys: Path | None = Field(default=None, description="file of API keys; without it no key is required")
    cors: tuple[str, ...] = Field(default=(), description="origins allowed to call the server; * for all")
    teach: bool = Field(default=True, description="let clients change the store")
