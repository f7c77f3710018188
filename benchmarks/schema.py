"""Requests of all kinds, made by schemathesis from the server's own description, for some minutes.

    python benchmarks/schema.py --config server.toml --key KEY

A server is started with the configuration, on a port of its own. It is taught, so give copies of stores. The key should
be an administrator's, so that every route can be reached. Every answer is checked: no server error, no answer that the
description does not have, no valid request refused, no invalid one accepted. Exit code 1 if schemathesis finds
anything. What a schema cannot say, such as a glossary inside a string, is generated here.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st
from load import server

ARGUMENTS = (
    "--continue-on-failure",
    "--suppress-health-check=all",
    "--warnings=off",
    "--no-color",
    "--request-timeout=60",
)
WORDS = st.lists(st.sampled_from(["Konto", "Datei", "speichern", "Größe", "#", "7"]), min_size=1, max_size=9)
TEXTS = WORDS.map(" ".join)
LESSON = 20  # characters
GLOSSARIES = ("/v2/glossaries", "/v3/glossaries")
VERSIONS: dict[str, str] = {}  # of glossaries, by id
CREATED = 201
KNOWN = "Der Hund schläft im Garten, und die Katze sitzt am Fenster."  # its language can be detected


def tmx(texts: list[str]) -> bytes:
    """A translation memory."""
    side = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'
    units = "".join(f"<tu>{side.format('de', text)}{side.format('en', text)}</tu>" for text in texts)
    header = (
        '<header creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en" srclang="de" '
    )
    return f'<tmx version="1.4">{header}datatype="plaintext"/><body>{units}</body></tmx>'.encode()


def entries(terms: list[str]) -> str:
    """A glossary that is valid as TSV and as CSV."""
    return "\n".join(f"{term},{term}\t{term}" for term in terms)


def acceptable(path: str, body: Any) -> None:
    """Change a body so that a server can accept it, where one of its values depends on another.

    A text whose language is to be detected is in one that the server knows; one with XML is well-formed. Which
    languages a glossary of another request has is not said, so it is one that does not exist. Lessons are short
    enough for any model. The format of a document's translation is that of the document.
    """
    if path.startswith("/v1/memory"):
        for lesson in body if isinstance(body, list) else [body]:
            for name in ("source", "target"):
                if isinstance(lesson, dict) and isinstance(lesson.get(name), str):
                    lesson[name] = lesson[name].strip()[:LESSON] or lesson[name]
    if not isinstance(body, dict):
        return
    if body.get("source") == "auto" and isinstance(body.get("q"), str | list):
        body["q"] = KNOWN
    detected = "target_lang" in body and not body.get("source_lang")
    if (detected or body.get("tag_handling") == "xml") and isinstance(body.get("text"), str | list):
        body["text"] = KNOWN
    if isinstance(body.get("output_format"), str):
        body["output_format"] = "txt"
    for name in ("glossary_id", "glossary_ids"):
        if isinstance(body.get(name), str | list) and body[name]:
            body[name] = "none"


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Change a body when it is made: schemathesis takes a form whose file it did not make itself for invalid later."""
    acceptable(context.operation.path, getattr(body, "body", body))
    return body


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Change a body that was made otherwise, from an example or with values of an earlier answer.

    Both versions of DeepL's interface show the same glossaries. One made with the one is not asked for with the
    other, as only a deletion under the same path is known to be the end of it.
    """
    acceptable(case.path, case.body)
    id = str((case.path_parameters or {}).get("id"))
    if case.path.startswith(GLOSSARIES) and VERSIONS.get(id, case.path[:3]) != case.path[:3]:
        case.path_parameters["id"] = "none"


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Note which version of the interface a glossary was made with."""
    if case.path in GLOSSARIES and case.method == "POST" and response.status_code == CREATED:
        VERSIONS[response.json()["glossary_id"]] = case.path[:3]


TMX = st.lists(TEXTS, min_size=1, max_size=3).map(tmx)
schemathesis.openapi.format("glossary-entries", st.lists(TEXTS, min_size=1, max_size=3, unique=True).map(entries))
schemathesis.openapi.format("binary", TMX)  # which is a memory, and a plain text
schemathesis.openapi.media_type("application/xml", TMX)


def main() -> None:
    """Start a server, and let schemathesis ask it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration of the server")
    parser.add_argument("--key", required=True, help="one of its keys, of an administrator")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given, others = parser.parse_known_args()
    here = Path(__file__)
    search = os.pathsep.join(filter(None, (str(here.parent), os.environ.get("PYTHONPATH"))))
    with server(["--config", str(given.config.resolve())]) as (port, _), tempfile.TemporaryDirectory() as folder:
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", f"http://127.0.0.1:{port}/openapi.json",
            f"--header=Authorization: Bearer {given.key}", f"--max-time={given.seconds}", f"--seed={given.seed}",
        ]  # fmt: skip
        environment = os.environ | {"SCHEMATHESIS_HOOKS": here.stem, "PYTHONPATH": search}
        code = subprocess.run([*command, *ARGUMENTS, *others], cwd=folder, env=environment).returncode
    raise SystemExit(code)


if __name__ == "__main__":
    main()
