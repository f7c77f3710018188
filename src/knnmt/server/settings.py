"""The settings of a server: where it listens, and how much it takes on."""

from pathlib import Path

from pydantic import Field

from knnmt.settings import Settings


class ServerSettings(Settings):
    """Limits are there so that one client cannot take the server from the others."""

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 is the whole network")
    port: int = Field(default=5000, ge=0, le=65535, description="port; 0 takes any that is free")
    beam: int = Field(default=5, ge=1, le=64, description="beams, where a request does not say")
    max_beam: int = Field(default=16, ge=1, le=64, description="most beams that a request may ask for")
    max_alternatives: int = Field(default=8, ge=0, le=63, description="most further translations of a text")
    max_segments: int = Field(default=512, ge=1, description="most texts in a request, each line of a text counted")
    max_characters: int = Field(default=50_000, ge=1, description="most characters in a request")
    max_tokens: int = Field(
        default=50_000, ge=1, description="most source tokens in a request, as the model's tokenizer counts them"
    )
    max_body: int = Field(default=1 << 20, ge=1, description="most bytes of a request")
    max_import: int = Field(default=256 << 20, ge=1, description="most bytes of an imported file")
    time_limit: float = Field(default=30, gt=0, description="seconds after which a request is given up")
    queue: int = Field(default=256, ge=1, description="most requests that wait for the model")
    batch_tokens: int = Field(default=4096, ge=1, description="most source tokens that are translated together")
    batch_size: int = Field(default=32, ge=1, description="texts that the model takes at a time, of those together")
    gather: float = Field(default=0.003, ge=0, le=1, description="seconds to wait for one more request to join a batch")
    rate_limit: int = Field(default=0, ge=0, description="requests a minute for each key; 0: no limit")
    keys: Path | None = Field(default=None, description="file of API keys; without one none is needed")
    cors: tuple[str, ...] = Field(default=(), description="origins whose pages may call the server; * for all")
    teach: bool = Field(default=True, description="whether clients may change the store")
