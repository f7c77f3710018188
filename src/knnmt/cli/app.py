"""The group of commands, the options they share, and how settings and errors reach the user."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from knnmt import terminal
from knnmt.cli.options import checked
from knnmt.errors import KnnmtError, UsageError

if TYPE_CHECKING:
    from knnmt.model.checkpoint import Model
    from knnmt.retrieval.tuned import Tuned
    from knnmt.text.glossary import Glossary
    from knnmt.translate import Translator

ORDER = (
    "demo", "build", "translate", "explain", "serve", "add", "remove", "compact", "merge", "export",
    "check", "analyze", "glossary", "tune", "evaluate", "inspect", "verify", "backup", "restore", "stats", "align",
    "shortlist", "bench",
)  # fmt: skip

MOST_THREADS = 16  # by default: the matrices of a decoding step are too small for more


class Commands(TyperGroup):
    """The commands; an error with a known cause is one line on standard error."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order in which users need them."""
        return sorted(super().list_commands(ctx), key=lambda name: (*ORDER, name).index(name))

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KnnmtError as error:
            fail(str(error), error.exit_code)
        except KeyboardInterrupt:
            fail("interrupted", 130)
        except BrokenPipeError:  # the reader of our output is gone, as with `head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the last flush must not fail again
            raise SystemExit(141) from None
        except OSError as error:
            fail(terminal.told(error), 1)


app = typer.Typer(
    name="knnmt",
    cls=Commands,
    help="Machine translation that adapts to your own translations at once, without training.",
    epilog="Exit codes: 0 success, 1 failure, 2 wrong usage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ModelOption = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="mini (embedded), a model folder, or a hub id such as Helsinki-NLP/opus-mt-de-en."
    ),
]
LangsOption = Annotated[str | None, typer.Option("--langs", "-l", help="Languages, such as de-en.")]
PairOption = Annotated[str, typer.Option("--langs", "-l", help="Languages, such as de-en.")]
CorpusArgument = Annotated[
    list[Path],
    typer.Argument(help="TMX, PO, MO, TSV, JSONL or plain text (X.de and X.en), also .gz."),
]
FormatOption = Annotated[
    str | None, typer.Option("--format", help="Format of documents, such as po. [default: by name and content]")
]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", help="Columns of a table: source and target, such as en,de.")
]
StoreArgument = Annotated[Path, typer.Argument(help="Folder of the store.")]
StoresArgument = Annotated[list[Path], typer.Argument(help="Folders of the stores.")]
StoreOption = Annotated[Path | None, typer.Option("--store", "-s", help="Store to retrieve from.")]
StoreNeeded = Annotated[Path, typer.Option("--store", "-s", help="Store to retrieve from.")]
StoresOption = Annotated[
    list[Path] | None, typer.Option("--store", "-s", help="Store to retrieve from; repeatable.", metavar="<path>")
]
StoresNeeded = Annotated[
    list[Path], typer.Option("--store", "-s", help="Store to retrieve from; repeatable.", metavar="<path>")
]
StoreWeightsOption = Annotated[
    str | None, typer.Option(help="Weights of the stores, such as 1,2; 0 ignores a store. [default: all 1]")
]
# systems are not listed: importing them imports torch, and --help is to be quick
SystemOption = Annotated[
    str | None, typer.Option(help="Retrieval system, as `knnmt inspect` lists; or base. [default: auto]")
]
SettingsOption = Annotated[Path | None, typer.Option("--settings", help="Settings file from `knnmt tune`.")]
IndexOption = Annotated[bool | None, typer.Option("--index", help="Search the store's FAISS index.")]
NprobeOption = Annotated[
    int | None, typer.Option(help="Lists to search, in a FAISS index or type of many clusters. [default: 32]")
]
DeviceOption = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")]
PrecisionOption = Annotated[str, typer.Option(help="Precision: auto, float32, float16, bfloat16 or int8.")]
ShortlistOption = Annotated[Path | None, typer.Option(help="Shortlist file from `knnmt shortlist`: speed on a CPU.")]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="CPU threads. [default: all cores, at most 16]")]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Worker threads. [default: all cores]")]
GlossaryOption = Annotated[
    Path | None, typer.Option("--glossary", "-g", help="Glossary to use: TSV, CSV or TBX.", metavar="<path>")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def show_version(asked: bool) -> None:
    """Answer `--version`."""
    if asked:
        from knnmt import __version__

        typer.echo(f"knnmt {__version__}")
        raise typer.Exit


@app.callback()
def before(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


def retrieval_settings(path: Path | None, **given: Any) -> "Tuned | None":
    """A settings file, or the defaults, overridden by the command line; None if neither was given."""
    from knnmt.retrieval.tuned import Tuned
    from knnmt.systems.settings import RetrievalSettings

    named = {name: value for name, value in given.items() if value is not None}
    if path is None and not named:
        return None
    base = Tuned.load(path) if path is not None else Tuned(RetrievalSettings())
    settings = base.settings
    if "lambda" in named and "adapt" not in named:
        settings = settings.without_gate()  # an explicit weight disables the gate
    return Tuned(checked(RetrievalSettings, **settings.model_dump(by_alias=True) | named), base.gate)


def weighted(stores: list[Path] | None, weights: str | None) -> "list[Path] | dict[Path, float] | None":
    """The stores that a command names, with their weights if these are given, one for each --store in order."""
    stores = stores or []
    if weights is None:
        return stores or None
    try:
        numbers = [float(number) for number in weights.split(",")]
    except ValueError:
        raise UsageError(f"--store-weights takes numbers separated by commas, such as 1,2, not {weights!r}") from None
    if len(numbers) != len(stores):
        raise UsageError(f"--store-weights needs one weight for each --store: {len(stores)}, not {len(numbers)}")
    made = dict(zip(stores, numbers, strict=True))
    return made if len(made) == len(stores) else stores  # a store given twice is refused where they are opened


def load_model(
    name: str, langs: str | None, device: str, precision: str, threads: int | None, shortlist: Path | None = None
) -> "Model":
    """Load the model that a command names."""
    from knnmt.model.checkpoint import load

    use_threads(threads)
    return load(name, device=device, precision=precision, langs=langs, shortlist=shortlist)


def load_glossary(path: Path | None, translator: "Translator") -> "Glossary | None":
    """Read the glossary that a command names, for the languages of a translator."""
    from knnmt.languages import Languages
    from knnmt.text.glossary import Glossary

    if path is None:
        return None
    source, target = translator.languages
    return Glossary.read(path, Languages(source, target) if source and target else None)


def use_threads(threads: int | None) -> None:
    """Compute with so many threads; by default with those of OMP_NUM_THREADS or all cores, but at most 16."""
    import torch

    from knnmt.host import cores

    torch.set_num_threads(threads or min(torch.get_num_threads(), cores(), MOST_THREADS))


def fail(message: str, code: int) -> NoReturn:
    """End with one line on standard error."""
    typer.echo(f"knnmt: {message}", err=True)
    raise SystemExit(code)
