"""Requests of all kinds, made by schemathesis from the server's own description, for some minutes.

    python benchmarks/schema.py --config server.toml --key KEY

A server is started with the configuration, on a port of its own. It is taught, so give copies of stores, and set
`max_files = 10000` under `[server]`, as a document that finds no room is answered 503. The key should be an
administrator's, so that every route can be reached. Every answer is checked: no server error, no answer that the
description does not have, no valid request refused, no invalid one accepted. Exit code 1 if schemathesis finds
anything. What a schema cannot say, such as a glossary inside a string, is generated here.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st
from load import server

ARGUMENTS = ("--continue-on-failure", "--suppress-health-check=all", "--warnings=off", "--no-color")
WORDS = st.lists(st.sampled_from(["Konto", "Datei", "speichern", "Größe", "#", "7"]), min_size=1, max_size=9)
TEXTS = WORDS.map(" ".join)
LESSON = 20  # characters
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


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Bodies that a server can accept, where their values depend on each other.

    A text whose language is to be detected is in one that the server knows; which languages a glossary has, which was
    made in another request, is not said, so it is one that does not exist. Lessons are short enough for any model, and
    imports wait for each other.
    """
    body = case.body
    if case.path == "/v1/memory/import":
        time.sleep(0.2)
    if case.path.startswith("/v1/memory"):
        for lesson in body if isinstance(body, list) else [body]:
            for name in ("source", "target"):
                if isinstance(lesson, dict) and isinstance(lesson.get(name), str):
                    lesson[name] = lesson[name].strip()[:LESSON] or lesson[name]
    if isinstance(body, dict):
        if body.get("source") == "auto" and isinstance(body.get("q"), str | list):
            body["q"] = KNOWN
        if "target_lang" in body and not body.get("source_lang") and isinstance(body.get("text"), str | list):
            body["text"] = KNOWN
        if isinstance(body.get("output_format"), str):
            body["output_format"] = "txt"  # it must be that of the file
        for name in ("glossary_id", "glossary_ids"):
            if isinstance(body.get(name), str | list) and body[name]:
                body[name] = "none"


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
