"""The settings of a server: address, limits, access."""

from pathlib import Path

from pydantic import Field

from knnmt.settings import Settings


class ServerSettings(Settings):
    """Settings of a server. The limits keep one client from starving the others."""

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 for the whole network")
    port: int = Field(default=5000, ge=0, le=65535, description="port; 0 for any that is free")
    keys: Path | None = Field(default=None, description="file of API keys; without one, anyone may ask")
    rate_limit: int = Field(default=0, ge=0, description="requests per minute and key; 0 for no limit")
    teach: bool = Field(default=True, description="let clients change the store")
    cors: tuple[str, ...] = Field(default=(), description="origin whose pages may call, repeatable; * for all")
    allow_host: tuple[str, ...] = Field(
        default=(), description="name of this server, repeatable; only needed on localhost without keys"
    )
    beam: int = Field(default=5, ge=1, le=64, description="beam size; 1 is greedy search")
    max_beam: int = Field(default=16, ge=1, le=64, description="maximum beam size of a request")
    max_alternatives: int = Field(default=8, ge=0, le=63, description="maximum alternative translations per text")
    max_segments: int = Field(default=512, ge=1, description="maximum texts per request, lines counted")
    max_characters: int = Field(default=50_000, ge=1, description="maximum characters per request")
    max_tokens: int = Field(default=50_000, ge=1, description="maximum source tokens per request")
    max_body: int = Field(default=1 << 20, ge=1, description="maximum bytes per request")
    max_import: int = Field(default=256 << 20, ge=1, description="maximum bytes per imported file")
    max_file: int = Field(default=16 << 20, ge=0, description="maximum bytes per document; 0 to refuse documents")
    max_files: int = Field(default=64, ge=1, description="maximum documents kept at a time")
    file_lifetime: float = Field(default=3600, gt=0, description="seconds a translated document is kept")
    disk: int = Field(default=1 << 30, ge=1, description="maximum bytes on disk for uploads and results")
    time_limit: float = Field(default=30, gt=0, description="seconds until a request times out")
    queue: int = Field(default=256, ge=1, description="maximum requests waiting for the model")
    batch_tokens: int = Field(default=4096, ge=1, description="maximum source tokens per batch")
    batch_size: int = Field(default=32, ge=1, description="texts per call of the model")
    gather: float = Field(default=0.003, ge=0, le=1, description="seconds to wait for more requests to batch")
