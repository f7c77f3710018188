"""Options of a command from the fields of its settings, so that help, default and bounds live in the model alone.

    @command()
    @options(settings=Fields("server.settings:ServerSettings", "host", "port", "beam"))
    def serve(*, settings: "ServerSettings", quiet: ... = False) -> None:

`serve` has `--host`, `--port` and `--beam` where `settings` stands among its parameters, and is called with the
settings they make, validated. The model is imported when a command runs or shows its help, not for `knnmt --help`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import typer
from typer.core import TyperCommand

from knnmt.errors import SettingsError, UsageError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Made = TypeVar("Made")
UNITS = {"": 1, "MB": 10**6, "MiB": 1 << 20}  # of sizes, which the settings hold in bytes


class Fields:
    """Fields of settings as options; `clean.max_ratio` is the field of a field.

    `flags` are the names of options that are not called like their field. With `given_only` the command gets a dict of
    what was given (None: it was not), to put on top of other settings; otherwise the settings themselves.
    """

    def __init__(self, model: str, *names: str, given_only: bool = False, **flags: str) -> None:
        self.model = model  # module:class, below knnmt
        self.names, self.given_only, self.flags = names, given_only, flags

    @cached_property
    def parser(self) -> TyperCommand:
        """A command of these options alone, whose callback makes the settings of their values."""
        module, _, name = self.model.partition(":")
        model = getattr(import_module(f"knnmt.{module}"), name)
        defaults = model()
        found = [_Option.of(defaults, path, self.flags, self.given_only) for path in self.names]

        def make(**given: Any) -> Any:
            content: dict[str, Any] = {}
            for option in found:
                inner = content
                if option.outer:
                    inner = content.setdefault(option.outer, getattr(defaults, option.outer).model_dump())
                inner[option.alias] = option.value(given[option.name])
            return content if self.given_only else checked(model, **content)

        make.__signature__ = inspect.Signature([option.parameter for option in found])  # type: ignore[attr-defined]
        holder = typer.Typer(add_completion=False)
        holder.command()(make)
        made = typer.main.get_command(holder)
        assert isinstance(made, TyperCommand)
        return made


@dataclass(frozen=True)
class _Option:
    """A field as an option: how typer declares it, and what its value means."""

    outer: str
    name: str
    alias: str
    scale: int
    many: bool
    zero_is_none: bool  # where the default is a number, nothing else can say that there is to be none
    parameter: inspect.Parameter

    @classmethod
    def of(cls, defaults: Any, path: str, flags: dict[str, str], given_only: bool) -> "_Option":
        """The option of a field; `defaults` are settings with all defaults."""
        outer, _, name = path.rpartition(".")
        holder = getattr(defaults, outer) if outer else defaults
        info, default = type(holder).model_fields[name], getattr(holder, name)
        kind, optional = _kind(info.annotation)
        alias = info.serialization_alias or info.alias or name
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        unit = str(extra.get("unit", ""))
        scale, least = UNITS[unit], _bound(info, "ge")
        if default is not None and scale > 1:
            default //= scale
        shown = None if given_only or default == () else default
        option = typer.Option(
            flags.get(name, _flag(alias) + (f"/--no-{alias.replace('_', '-')}" if default is True else "")),
            help=_help(info, str(default or "") if given_only else ""),
            metavar=unit or None,
            min=max(1, int(least or 0) // scale) if scale > 1 else None,
        )
        annotation = Annotated[kind if shown is not None else kind | None, option]
        parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=annotation)
        return cls(outer, name, alias, scale, kind == list[str], optional and type(shown) is int, parameter)

    def value(self, given: Any) -> Any:
        """What the settings hold for a value of the command line."""
        if self.zero_is_none and given == 0:
            return None
        if self.many:
            return tuple(given or ())
        return given * self.scale if self.scale > 1 and given is not None else given


class Command(TyperCommand):
    """A command with options from settings, which are imported when its parameters are asked for."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, in the order in which the command declares them."""
        groups: dict[str, Fields] = getattr(self.callback, "fields", {})
        named = {param.name: param for param in self.params}
        for name in getattr(self.callback, "order", ()):
            for param in groups[name].parser.params if name in groups else [named[name]]:
                named.pop(param.name, None)
                named[param.name] = param
        self.params = list(named.values())
        return super().get_params(ctx)

    def invoke(self, ctx: Any) -> Any:
        """Run the command with the settings that its options make."""
        for name, group in getattr(self.callback, "fields", {}).items():
            values = {param.name: ctx.params.pop(param.name) for param in group.parser.params}
            ctx.meta[f"{__name__}.{name}"] = group.parser.callback(**values)
        return super().invoke(ctx)


def options(**groups: Fields) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command settings as parameters of these names."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(function).parameters

        def run(context: typer.Context, **own: Any) -> None:
            function(**own, **{name: context.meta[f"{__name__}.{name}"] for name in groups})

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        own = [param for name, param in parameters.items() if name not in groups]
        vars(run).update(fields=groups, order=tuple(parameters), __signature__=inspect.Signature([context, *own]))
        return run

    return decorate


def checked(settings: Callable[..., Made], **given: Any) -> Made:
    """Settings of a command from its options; an invalid value is reported by the option's name."""
    try:
        return settings(**given)
    except SettingsError as error:
        names = [part for part in error.field.split(".") if part and not part.isdigit()]
        raise UsageError(" ".join([*map(_flag, names[-1:]), error.reason])) from error


def _kind(annotation: Any) -> tuple[Any, bool]:
    """The type that an option of a field parses, and whether the field may be None."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    if NoneType in get_args(annotation):
        return kinds[0], True
    return (list[str] if get_origin(annotation) is tuple else annotation), False


def _help(info: "FieldInfo", default: str) -> str:
    """A field's description as the help of an option; what None stands for is the end of it, or `default`."""
    text, _, otherwise = (info.description or "").partition("; default: ")
    text = text[:1].upper() + text[1:].replace("null", "0") + "."
    least, most = _bound(info, "ge"), _bound(info, "le")
    bounds = f" [{least:g} to {most:g}]" if least is not None and most is not None else ""
    otherwise = otherwise or default
    return text + bounds + (f" [default: {otherwise}]" if otherwise else "")


def _bound(info: "FieldInfo", name: str) -> float | None:
    return next((getattr(each, name) for each in info.metadata if hasattr(each, name)), None)


def _flag(name: str) -> str:
    return ("-" if len(name) == 1 else "--") + name.replace("_", "-")
