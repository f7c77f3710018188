"""Weblate's own classes for LibreTranslate, DeepL and tmserver against a server; skipped where it is not installed.

Only their modules are loaded: the parts of Weblate that need a database are replaced. Its settings form is what calls
`validate_settings`, which translates from English to German.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from knnmt.corpus import Segment

from .real import serving
from .standin import StandIn, Store

needs_weblate = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("weblate", "django", "asgiref", "dateutil", "requests")),
    reason="Weblate is not installed",
)
SCRIPT = """
import json, sys, types
import requests
from django.conf import settings
settings.configure(USE_I18N=False, CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}})
import django
from django import forms
django.setup()

def stand_in(name, **content):
    module = types.ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module

def request(method, url, headers=None, raise_for_status=True, **more):
    return requests.request(method, url, headers={"User-Agent": "Weblate/5.14", **(headers or {})}, **more)

stand_in("weblate.checks", __path__=[])
stand_in("weblate.checks.utils", highlight_string=lambda *_, **__: [])
stand_in("weblate.lang", __path__=[])
stand_in("weblate.lang.models", Language=object, PluralMapper=object)
stand_in("weblate.glossary", __path__=[])
stand_in("weblate.glossary.models", get_glossary_tsv=lambda _: "")
stand_in("weblate.utils", __path__=[])
stand_in("weblate.utils.errors", report_error=lambda *_, **__: None)
stand_in("weblate.utils.hash", calculate_dict_hash=lambda _: 1, calculate_hash=lambda *_: 1, hash_to_checksum=str)
stand_in("weblate.utils.requests", request=request)
stand_in("weblate.utils.similarity", Comparer=object)
stand_in("weblate.utils.site", get_site_url=lambda *_: "http://weblate.example")
stand_in("weblate.utils.forms", WeblateServiceURLField=forms.URLField)

from weblate.machinery.deepl import DeepLTranslation
from weblate.machinery.libretranslate import LibreTranslateTranslation
from weblate.machinery.tmserver import TMServerTranslation

url = sys.argv[1]
found = {}
libre = LibreTranslateTranslation({"key": "", "url": url})
libre.validate_settings()
found["libre"] = libre.download_multiple_translations("en", "de", [("Save", None), ("My %(name)s", None)])
found["languages"] = sorted(libre.supported_languages)
deepl = DeepLTranslation({"key": "x", "url": url + "v2/"})
deepl.validate_settings()
found["pairs"] = sorted(deepl.supported_languages)
found["deepl"] = deepl.download_multiple_translations("EN", "DE", [('Open <x id="5"></x> &amp; save', None)])
found["glossaries"] = [deepl.is_glossary_supported("EN", "DE"), deepl.is_glossary_supported("DE", "EN")]
for name in ("one", "two"):
    deepl.create_glossary("EN", "DE", name, "account\\tKonto\\n")
deepl.delete_oldest_glossary()
found["listed"] = list(deepl.list_glossaries())
memory = TMServerTranslation({"url": url + "tmserver/"})
found["memory"] = list(memory.download_translations("en", "de", "Save", None, None))
found["tm_pairs"] = sorted(memory.supported_languages)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    store = Store()
    store.manifest.languages = "en-de"
    standin = StandIn(store=store)
    standin.add([Segment("Save", "Speichern", "", "s-1")])
    with serving(standin.as_translator()) as number:
        yield number


@needs_weblate
def test_weblates_own_classes_work(port: int) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SCRIPT, f"http://127.0.0.1:{port}/"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert [found["libre"][text][0]["text"] for text in ("Save", "My %(name)s")] == ["Speichern", "My' %(name)s'"]
    assert found["languages"] == ["de", "en"]
    assert found["pairs"] == [["EN", "DE"], ["EN", "EN"]]
    ((translated,),) = found["deepl"].values()
    assert '<x id="5"></x>' in translated["text"]
    assert "&amp;" in translated["text"]
    assert found["glossaries"] == [True, False]
    assert found["listed"] == ["two"]
    assert [(each["text"], each["quality"]) for each in found["memory"]] == [("Speichern", 100)]
    assert found["tm_pairs"] == [["en", "de"]]
