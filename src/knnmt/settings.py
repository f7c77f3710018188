"""What all settings have in common: they are checked when made, never change, and say in a line what they refuse."""

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from knnmt.errors import SettingsError

ALL = "all"  # how a TOML file, which has no null, says that a number has no limit
Metric = Literal["squared", "euclidean", "cosine"]
"""How two states are compared; `knnmt.search.metric` computes it."""


class Settings(BaseModel):
    """Base of the settings of a command or a call. What a caller gives wrong is a `SettingsError`.

    Settings that are read from a file are made by `model_validate`, whose errors whoever reads it tells with the file's
    name, by `refusal`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            field, reason = refusal(type(self), error)
            raise SettingsError(type(self).__name__, field, reason) from None

    # validation then makes settings inside others as it makes any model, and the outer ones name the whole path
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def refusal(settings: type[BaseModel], error: ValidationError) -> tuple[str, str]:
    """The field that a validation stumbled on first ("" for all together), and a phrase that says what it takes."""
    first = error.errors()[0]
    field, message = ".".join(map(str, first["loc"])), first["msg"]
    if first["type"] == "extra_forbidden":
        return field, f"is no setting: there are {', '.join(_names(settings, first['loc'][:-1]))}"
    if first["type"] == "missing":
        return field, "is needed"
    if message.startswith("Input should"):
        return field, f"{message.removeprefix('Input ')}, not {first['input']!r}"
    return field, message.removeprefix("Value error, ")


def _names(settings: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """The fields of settings, or of those inside them at a place; numbers of a list and names of a table have none."""
    for part in place:
        if part not in settings.model_fields:
            continue
        kind = settings.model_fields[str(part)].annotation
        settings = next(k for k in (kind, *get_args(kind)) if isinstance(k, type) and issubclass(k, BaseModel))
    return list(settings.model_fields)
