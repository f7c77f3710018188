"""Commands that save a store: backup, restore."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from knnmt import terminal
from knnmt.cli.app import JsonOption, StoreArgument, app

ArchiveArgument = Annotated[Path, typer.Argument(help="Backup file (tar).")]


@app.command()
def backup(store: StoreArgument, archive: ArchiveArgument, as_json: JsonOption = False) -> None:
    """Back up a store to one file. A server may use and teach the store meanwhile."""
    from knnmt.store.backup import backup as write

    done = write(store, archive)
    if as_json:
        typer.echo(json.dumps(asdict(done)))
    else:
        typer.echo(f"{archive}: {terminal.counted(done.files, 'file')}, {terminal.size(done.size)}, verified")


@app.command()
def restore(
    archive: ArchiveArgument,
    store: Annotated[Path, typer.Argument(help="Folder of the store; must not exist.")],
    as_json: JsonOption = False,
) -> None:
    """Restore a store from a backup. Everything is verified; nothing is overwritten."""
    import knnmt.systems.table  # noqa: F401  # declares the systems' arrays, so that their values are verified too
    from knnmt.store.backup import restore as read

    done = read(archive, store)
    if as_json:
        typer.echo(json.dumps(asdict(done)))
    else:
        typer.echo(f"{store}: {terminal.counted(done.segments, 'segment')} restored and verified")
