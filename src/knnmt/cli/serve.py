"""The command that serves: serve."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    load_glossary,
    retrieval_settings,
    use_threads,
    weighted,
)
from knnmt.cli.options import Command, Fields, options
from knnmt.errors import UsageError
from knnmt.optional import require

if TYPE_CHECKING:
    from knnmt.server.settings import ServerSettings

LIBRARIES = ("fastapi", "language_data", "prometheus_client", "python_multipart", "uvicorn")


@app.command(cls=Command)
@options(
    settings=Fields(
        "server.settings:ServerSettings",
        "host", "port", "keys", "rate_limit", "cors", "allow_host", "beam", "max_characters", "max_tokens",
        "max_segments", "max_import", "max_file", "file_lifetime", "disk", "time_limit", "queue", "batch_tokens",
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
    settings: "ServerSettings",
    glossary: GlossaryOption = None,
    new_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Create an API key, print it, and exit; needs --keys.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Do not let clients change the store.")] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    shortlist: ShortlistOption = None,
    threads: ThreadsOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log warnings only, not every request.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve translations over HTTP. LibreTranslate's API and a web page; SIGTERM or Ctrl-C stops it gracefully."""
    for library in LIBRARIES:
        require(library, extra="server")
    from knnmt.server.access import add_key

    if new_key is not None:
        if settings.keys is None:
            raise UsageError("--new-key needs a key file: name it with --keys")
        key = add_key(settings.keys, new_key)
        typer.echo(json.dumps({"name": new_key, "key": key}) if as_json else key)
        return
    from knnmt.server.app import create_app
    from knnmt.server.detection import languages_of
    from knnmt.server.listener import listening, run
    from knnmt.translate import Translator

    settings = settings.model_copy(update={"teach": not read_only})
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("knnmt").setLevel(logging.WARNING if quiet else logging.INFO)
    use_threads(threads)
    translator = Translator(
        model, weighted(store, store_weights), system=system, retrieval=retrieval_settings(settings_file),
        device=device, precision=precision, langs=langs, shortlist=shortlist,
    )  # fmt: skip
    languages = languages_of(translator, langs)
    application = create_app(translator, settings, languages, load_glossary(glossary, translator))
    place = listening(settings)
    translator.prepare()
    host = settings.host
    if settings.keys is None and host not in ("127.0.0.1", "::1", "localhost"):
        terminal.note(f"anyone who can reach {host} may use this server and teach it: consider --keys")
    at = f"http://{f'[{host}]' if ':' in host else host}:{place.getsockname()[1]}"
    terminal.note(f"serving {languages} at {at}")
    if as_json:
        typer.echo(json.dumps({"url": at, "languages": str(languages)}))
    run(application, place)
