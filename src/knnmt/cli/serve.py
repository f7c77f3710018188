"""The command that serves: serve."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from knnmt import terminal
from knnmt.cli.app import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    LangsOption,
    ModelOption,
    SettingsOption,
    StoreOption,
    SystemOption,
    ThreadsOption,
    app,
    checked,
    load_model,
    retrieval_settings,
)
from knnmt.errors import MissingExtraError, UsageError


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    """Import what only servers need."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("knnmt"):
            raise
        raise MissingExtraError(f"serving needs {error.name}: pip install 'knnmt[server]'") from None


@app.command()
def serve(
    model: ModelOption = "mini-de-en",
    langs: LangsOption = None,
    store: StoreOption = None,
    system: SystemOption = None,
    settings_file: SettingsOption = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is the whole network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes any that is free.")] = 5000,
    keys: Annotated[Path | None, typer.Option(help="File of API keys; without one, everybody may ask.")] = None,
    new_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make a key, show it, add it to the file of keys, and end.")
    ] = None,
    rate_limit: Annotated[int, typer.Option(help="Requests a minute for each key; 0: no limit.")] = 0,
    read_only: Annotated[bool, typer.Option("--read-only", help="Clients may not change the store.")] = False,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Let pages of this origin call the server; * for all.")
    ] = None,
    beam: Annotated[int, typer.Option(help="Beams; 1 is greedy search.")] = 5,
    max_characters: Annotated[int, typer.Option(help="Most characters in a request.")] = 50_000,
    max_tokens: Annotated[int, typer.Option(help="Most source tokens in a request.")] = 50_000,
    max_segments: Annotated[int, typer.Option(help="Most texts in a request.")] = 512,
    max_import: Annotated[int, typer.Option(help="Most bytes of an imported file.")] = 256 << 20,
    time_limit: Annotated[float, typer.Option(help="Seconds after which a request is given up.")] = 30,
    queue: Annotated[int, typer.Option(help="Most requests that wait for the model.")] = 256,
    batch_tokens: Annotated[int, typer.Option(help="Most source tokens that are translated together.")] = 4096,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    threads: ThreadsOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log faults only, not each request.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve translations by HTTP, as LibreTranslate does, with a page. Ends by SIGTERM or Ctrl-C, work in hand done."""
    import logging

    with _extra():
        from knnmt.server.access import add_key
        from knnmt.server.settings import ServerSettings
    settings = checked(
        ServerSettings, host=host, port=port, keys=keys, rate_limit=rate_limit, teach=not read_only,
        cors=tuple(cors or ()), beam=beam, max_characters=max_characters, max_tokens=max_tokens,
        max_segments=max_segments, max_import=max_import, time_limit=time_limit, queue=queue, batch_tokens=batch_tokens,
    )  # fmt: skip
    if new_key is not None:
        if keys is None:
            raise UsageError("--new-key adds to a file of keys: name it (--keys)")
        key = add_key(keys, new_key)
        typer.echo(json.dumps({"name": new_key, "key": key}) if as_json else key)
        return
    with _extra():
        from knnmt.server.app import create_app, listening, run
        from knnmt.server.detection import languages_of
    from knnmt.translate import Translator

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("knnmt").setLevel(logging.WARNING if quiet else logging.INFO)
    loaded = load_model(model, langs, device, dtype, threads)
    retrieval = retrieval_settings(settings_file)
    translator = Translator(loaded, store, system=system, retrieval=retrieval)
    languages = languages_of(translator, langs)
    application = create_app(translator, settings, languages)
    place = listening(settings)
    translator.prepare()
    if keys is None and host not in ("127.0.0.1", "::1", "localhost"):
        terminal.note(f"everybody who reaches {host} may use this server and teach it: consider --keys")
    at = f"http://{f'[{host}]' if ':' in host else host}:{place.getsockname()[1]}"
    terminal.note(f"serving {languages} at {at}")
    if as_json:
        typer.echo(json.dumps({"url": at, "languages": str(languages)}))
    run(application, place)
