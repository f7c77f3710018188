"""Options are made of settings: help, defaults and bounds come from the model, values reach the command validated."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from knnmt import cli
from knnmt.build.settings import BuildSettings
from knnmt.cli.app import Commands
from knnmt.cli.options import Command, Fields, options
from knnmt.decode.settings import TranslateSettings
from knnmt.server.settings import ServerSettings
from knnmt.systems.settings import RetrievalSettings

MODELS = {
    "build": (BuildSettings,),
    "serve": (ServerSettings,),
    "translate": (RetrievalSettings, TranslateSettings),
    "explain": (TranslateSettings,),
}


def called(*arguments: str, **groups: Fields) -> tuple[int, str, dict[str, Any]]:
    """Run a command of these options: its exit code, its output, and what it was called with."""
    app, given = typer.Typer(cls=Commands, add_completion=False, rich_markup_mode=None), {}

    @app.callback()
    def before() -> None:
        pass

    def command(**settings: Any) -> None:
        given.update(settings)

    command.__signature__ = _signature(*groups)  # type: ignore[attr-defined]
    app.command("do", cls=Command)(options(**groups)(command))
    done = CliRunner().invoke(app, ["do", *arguments], env={"COLUMNS": "200"})
    return done.exit_code, " ".join((done.output).split()), given


def _signature(*names: str) -> Any:
    import inspect

    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names])


BUILD = Fields(
    "build.settings:BuildSettings", "systems", "k_max", "memory", "budget", "index", "clean.max_ratio", systems="--for"
)


def test_without_options_a_command_gets_the_defaults() -> None:
    assert called(settings=BUILD)[2] == {"settings": BuildSettings()}


def test_values_are_those_of_the_settings() -> None:
    line = "--for fast --for proto --k-max 0 --memory 16 --budget 3 --index --max-ratio 2"
    found = called(*line.split(), settings=BUILD)[2]["settings"]
    assert (found.systems, found.k_max, found.memory, found.budget) == (("fast", "proto"), None, 16 << 20, 3_000_000)
    assert found.index
    assert found.clean == BuildSettings().clean.model_copy(update={"max_ratio": 2.0})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--max-ratio 0.5", "knnmt: --max-ratio should be greater than or equal to 1, not 0.5"),
        ("--k-max -3", "knnmt: --k-max should be greater than or equal to 1, not -3"),
        ("--memory 1", "--memory"),
    ],
)
def test_what_the_settings_refuse_is_wrong_use_of_that_option(line: str, message: str) -> None:
    code, output, _ = called(*line.split(), settings=BUILD)
    assert code == 2
    assert message in output


def test_what_was_not_given_is_left_to_other_settings() -> None:
    fields = Fields("systems.settings:RetrievalSettings", "k", "weight", "index", given_only=True)
    assert called(settings=fields)[2] == {"settings": {"k": None, "lambda": None, "index": None}}
    given = called("-k", "3", "--lambda", "0.5", "--index", settings=fields)[2]
    assert given == {"settings": {"k": 3, "lambda": 0.5, "index": True}}


def test_help_is_that_of_the_settings() -> None:
    fields = Fields("server.settings:ServerSettings", "port", "keys", "cors", "teach")
    output = called("--help", settings=fields)[1]
    assert "Port; 0 for any that is free. [0 to 65535] [default: 5000]" in output
    assert "--teach / --no-teach" in output
    assert called("--keys", "x", "--cors", "a", "--no-teach", settings=fields)[2] == {
        "settings": ServerSettings(keys=Path("x"), cors=("a",), teach=False)
    }


@pytest.mark.parametrize("name", MODELS)
def test_no_command_restates_what_its_settings_say(name: str) -> None:
    command = typer.main.get_command(cli.app).commands[name]  # type: ignore[attr-defined]
    own = {param.name for param in command.params}
    assert not own & {field for model in MODELS[name] for field in model.model_fields} - {"system", "clean"}
