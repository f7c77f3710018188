"""The command that serves: serve."""

import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from knnmt import terminal
from knnmt.cli.app import (
    DeviceOption,
    GlossaryOption,
    JsonOption,
    LangsOption,
    ModelOption,
    PrecisionOption,
    SettingsOption,
    ShortlistOption,
    StoreWeightsOption,
    SystemOption,
    ThreadsOption,
    app,
    use_threads,
    weighted,
)
from knnmt.cli.options import Command, Fields, checked, options
from knnmt.errors import UsageError
from knnmt.model.embedded import DEFAULT
from knnmt.optional import require

LIBRARIES = ("fastapi", "language_data", "prometheus_client", "python_multipart", "uvicorn")


@app.command(cls=Command)
@options(
    settings=Fields(
        "server.settings:ServerSettings",
        "host", "port", "keys", "rate_limit", "cors", "allow_host", "beam", "max_characters", "max_tokens",
        "max_segments", "max_import", "max_file", "file_lifetime", "disk", "time_limit", "queue", "batch_tokens",
        given_only=True,
    )
)  # fmt: skip
def serve(
    *,
    model: ModelOption = "mini",
    langs: LangsOption = None,
    store: Annotated[
        list[Path] | None,
        typer.Option("--store", "-s", help="Store to use; repeatable, the last learns.", metavar="<path>"),
    ] = None,
    store_weights: StoreWeightsOption = None,
    system: SystemOption = None,
    settings_file: SettingsOption = None,
    settings: dict[str, Any],
    glossary: GlossaryOption = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="TOML file of pairs, memories and keys.")] = None,
    state: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for review queue and audit log.")] = None,
    new_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Create an API key, print it, and exit; needs --keys.")
    ] = None,
    role: Annotated[
        str, typer.Option(help="Role of the new key: translate, teach, review or admin.", metavar="ROLE")
    ] = "teach",
    expires: Annotated[
        datetime | None, typer.Option(help="Last day of the new key.", formats=["%Y-%m-%d"], metavar="YYYY-MM-DD")
    ] = None,
    key_memories: Annotated[
        str | None, typer.Option(help="Memories of the new key, the most specific first.", metavar="A,B")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Do not let clients change the store.")] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    shortlist: ShortlistOption = None,
    threads: ThreadsOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log warnings only, not every request.")] = False,
    log_format: Annotated[str, typer.Option(help="Format of the log: text or json.", metavar="FORMAT")] = "text",
    as_json: JsonOption = False,
) -> None:
    """Serve translations over HTTP. LibreTranslate's and DeepL's APIs and a web page; SIGTERM or Ctrl-C stops it."""
    for library in LIBRARIES:
        require(library, extra="server")
    given = {name: value for name, value in settings.items() if value not in (None, ())}
    if new_key is not None:
        if "keys" not in given:
            raise UsageError("--new-key needs a key file: name it with --keys")
        key = _new_key(given["keys"], new_key, role, expires, key_memories)
        typer.echo(json.dumps({"name": new_key, "key": key}) if as_json else key)
        return
    from knnmt.server.app import create_team_app
    from knnmt.server.config import PairConfig, ServerConfig, read_config
    from knnmt.server.listener import listening, run
    from knnmt.server.model_pool import in_passing
    from knnmt.server.people import ANYONE
    from knnmt.server.settings import ServerSettings

    _log_as(log_format, quiet=quiet)
    use_threads(threads)
    given |= {"teach": False} if read_only else {}
    if config is not None:
        others: dict[str, object] = {"--model": model != DEFAULT, "--langs": langs, "--store": store}
        others |= {"--system": system, "--settings": settings_file, "--glossary": glossary, "--shortlist": shortlist}
        others |= {"--store-weights": store_weights, "--device": device != "auto", "--precision": precision != "auto"}
        if taken := [name for name, value in others.items() if value]:
            raise UsageError(f"{' and '.join(taken)} cannot be combined with --config: put them into {config}")
        chosen = read_config(config)
        chosen = chosen.model_copy(update={"state": state or chosen.state})
    else:
        pair = PairConfig(
            langs=langs, model=model, glossary=glossary, system=system, settings=settings_file, device=device,
            precision=precision, shortlist=shortlist,
        )  # fmt: skip
        chosen = ServerConfig.of_stores(weighted(store, store_weights) or [], pair, state=state)
    chosen = chosen.model_copy(
        update={"server": checked(ServerSettings, **(chosen.server.model_dump(exclude_unset=True) | given))}
    )
    application = create_team_app(chosen, config)
    place = listening(chosen.server)
    server = application.state.server
    in_passing(lambda: server.desk(ANYONE).translator.prepare())
    host = chosen.server.host
    if not server.doorkeeper.needs_key and host not in ("127.0.0.1", "::1", "localhost"):
        terminal.note(f"anyone who can reach {host} may use this server and teach it: consider --keys")
    at = f"http://{f'[{host}]' if ':' in host else host}:{place.getsockname()[1]}"
    pairs = ", ".join(map(str, server.pairs()))
    terminal.note(f"serving {pairs} at {at}")
    if as_json:
        typer.echo(json.dumps({"url": at, "languages": pairs}))
    run(application, place)


def _new_key(path: Path, name: str, role: str, expires: datetime | None, memories: str | None) -> str:
    from knnmt.server.access import add_key
    from knnmt.server.people import ROLES

    if role not in ROLES:
        raise UsageError(f"--role should be one of {', '.join(ROLES)}, not {role!r}")
    named = tuple(filter(None, memories.split(","))) if memories is not None else None
    return add_key(path, name, role=role, expires=expires.date() if expires else None, memories=named)


def _log_as(log_format: str, *, quiet: bool) -> None:
    from knnmt.server.logs import JsonFormatter

    if log_format not in ("text", "json"):
        raise UsageError(f"--log-format should be text or json, not {log_format!r}")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    if log_format == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())
    logging.getLogger("knnmt").setLevel(logging.WARNING if quiet else logging.INFO)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every form that a client gets wrong
