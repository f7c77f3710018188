"""The embedded models: which there are, which of them translates a pair of languages, and where they lie."""

from pathlib import Path

from knnmt.errors import ModelError, UsageError
from knnmt.languages import Languages, closeness

EMBEDDED = ("mini-de-en", "mini-en-de")
DEFAULT = "mini"  # the embedded model of the direction


def embedded(langs: Languages | None) -> str:
    """The name of the embedded model that translates languages; without any, of the first one."""
    for name in EMBEDDED if langs is not None else EMBEDDED[:1]:
        source, target = name.split("-")[1:]
        if langs is None or (closeness(source, langs.source) and closeness(target, langs.target)):
            return name
    raise UsageError(f"no embedded model translates {langs}: pass --model, such as Helsinki-NLP/opus-mt-{langs}")


def embedded_path(name: str = EMBEDDED[0]) -> Path:
    """The folder of an embedded model: inside the package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    for folder in (package / "models" / name, package.parent.parent / "models" / name):
        if (folder / "config.json").exists():
            return folder
    raise ModelError(f"the embedded model {name} is not part of this installation: reinstall knnmt, or pass --model")
