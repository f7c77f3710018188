"""The file that says what an experiment is."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from knnmt.build.settings import BuildSettings
from knnmt.errors import UsageError
from knnmt.evaluate import METRICS
from knnmt.languages import Languages
from knnmt.model.embedded import DEFAULT
from knnmt.settings import refusal
from knnmt.systems.settings import Adapt, RetrievalSettings
from knnmt.systems.table import SYSTEMS

BASE = "base"
TM = "tm"  # a classic translation memory, a yardstick beside the systems
REFERENCE = "knn"  # the system whose gain over base MT is the whole of it
COMPARED = (REFERENCE, "faster")  # the systems that the others are compared with, besides base MT
NAME = r"^[a-z0-9][a-z0-9._-]*$"  # what may name a file


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Run(_Table):
    """A system that is tuned and translates; under another name it can stand there twice, tuned in another way."""

    name: str = Field(pattern=NAME)
    system: str
    adapt: tuple[Adapt, ...] | None = Field(
        default=None, min_length=1, description="the kinds of λ that are tried; default: those of [tune]"
    )
    retrieval: RetrievalSettings = Field(
        default=RetrievalSettings(), description="settings that are not searched for, such as index and nprobe"
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """A plain name is a system under its own name."""
        return {"name": given, "system": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _known(self) -> "Run":
        if self.system not in SYSTEMS and self.system != TM:
            known = ", ".join((*SYSTEMS, TM))
            raise ValueError(f"there is no system {self.system!r}: use {known} (base is always included)")
        if self.name == BASE:
            raise ValueError("base is always included, and cannot name another system")
        return self


class Domain(_Table):
    """Texts that belong together: a store is made of `train`. Paths are those of corpora, relative to the data."""

    name: str = Field(pattern=NAME)
    title: str = Field(default="", description="what tables call it; default: its name")
    train: tuple[str, ...] = Field(min_length=1, description="one or several corpora")
    dev: str
    test: str
    alignments: str | None = Field(
        default=None,
        description="word alignments of train in Pharaoh format: then it is not cleaned, and numba is not needed",
    )
    systems: tuple[str, ...] | None = Field(default=None, description="only these of the systems; default: all")
    build: dict[str, Any] = Field(default={}, description="settings of [build] that are others here")
    variant_of: str | None = Field(
        default=None, description="the domain that has the same dev and test, and another store"
    )
    note: str = Field(default="", description="what a reader of its figures should know")

    @field_validator("train", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @field_validator("build")
    @classmethod
    def _settings(cls, given: dict[str, Any]) -> dict[str, Any]:
        try:
            BuildSettings.model_validate(given)
        except ValidationError as error:
            raise ValueError(" ".join(refusal(BuildSettings, error))) from None
        return given

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.title or self.name


class Variant(_Table):
    """Another store for each of the domains. `{domain}` in its paths stands for the name of the domain."""

    name: str = Field(pattern=NAME, description="what is added to the name of the domain")
    title: str = ""
    systems: tuple[str, ...] | None = None
    build: dict[str, Any] = {}
    train: str | None = None
    alignments: str | None = None

    def of(self, domain: dict[str, Any]) -> dict[str, Any]:
        """A domain with this store."""
        name = domain.get("name", "")
        given = {key: getattr(self, key) for key in ("systems", "train", "alignments")}
        paths = {key: value.format(domain=name) if isinstance(value, str) else value for key, value in given.items()}
        return (
            domain
            | {key: value for key, value in paths.items() if value is not None}
            | {
                "name": f"{name}-{self.name}",
                "title": f"{domain.get('title') or name}, {self.title or self.name}",
                "variant_of": name,
                "build": domain.get("build", {}) | self.build,
            }
        )


class Tuning(_Table):
    """How each system's settings are found, on dev alone."""

    segments: int | None = Field(default=500, ge=1, description="the first N segments of dev; null: all")
    decoded: int = Field(
        default=6, ge=1, le=100, description="settings that are decoded with, and as many near the best"
    )
    adapt: tuple[Adapt, ...] = Field(default=("constant", "distance"), min_length=1)
    beam: int = Field(default=1, ge=1, le=64)
    batch_size: int = Field(default=64, ge=1)


class Translating(_Table):
    """How test is translated."""

    segments: int | None = Field(default=None, ge=1, description="the first N segments of test; null: all")
    beam: int = Field(default=5, ge=1, le=64)
    batch_size: int = Field(default=32, ge=1)


class Varying(_Table):
    """Dev is translated again with each of these values, everything else as tuning found it."""

    systems: tuple[str, ...] = Field(min_length=1, description="names of the systems that are varied")
    k: tuple[int, ...] = ()
    c: tuple[int, ...] = ()
    temperature: tuple[float, ...] = Field(default=(), description="as multiples of the tuned T")
    weight: tuple[float, ...] = Field(default=(), description="λ, or its maximum")


class Config(_Table):
    """An experiment: every domain with every system."""

    title: str = "Results"
    note: str = Field(default="", description="what a reader of its figures should know")
    model: str = Field(default=DEFAULT, description="mini (embedded), a folder, or a hub id")
    languages: str = Field(description="source and target, such as de-en")
    systems: tuple[Run, ...] = Field(min_length=1)
    domains: tuple[Domain, ...] = Field(min_length=1)
    build: BuildSettings = BuildSettings()
    tune: Tuning = Tuning()
    translate: Translating = Translating()
    vary: Varying | None = Field(default=None, description="quality against one setting at a time, on dev")
    decompose: int | None = Field(
        default=None, ge=2, description="segments of dev, behind those of [tune], that show where faster loses"
    )
    metrics: tuple[str, ...] = Field(default=tuple(METRICS), min_length=1, description="metrics of test; BLEU is one")
    resamples: int = Field(default=1000, ge=2, description="of the paired bootstrap")
    seed: int = 1

    @classmethod
    def load(cls, path: Path) -> "Config":
        """Read a TOML file; errors name the field."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not UTF-8") from None
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{path} is not TOML: {error}") from None
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            field, reason = refusal(cls, error)
            raise UsageError(f"{path}: {field or 'it'}: {reason}") from None

    @model_validator(mode="before")
    @classmethod
    def _each_variant(cls, given: Any) -> Any:
        """With `variants`, every domain stands for as many: one with each of these stores."""
        if not isinstance(given, dict) or "variants" not in given:
            return given
        variants = [Variant.model_validate(one) for one in given["variants"]]
        domains = [variant.of(domain) for domain in given.get("domains", ()) for variant in variants]
        return {key: value for key, value in given.items() if key != "variants"} | {"domains": domains}

    @field_validator("languages")
    @classmethod
    def _pair(cls, given: str) -> str:
        try:
            return str(Languages.parse(given))
        except UsageError as error:
            raise ValueError(str(error)) from None

    @field_validator("metrics")
    @classmethod
    def _measured(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if "BLEU" not in given or not set(given) <= set(METRICS):
            raise ValueError(f"name BLEU, and of the others any of {', '.join(METRICS)}")
        return given

    @model_validator(mode="after")
    def _agrees(self) -> "Config":
        for what, names in (("system", [run.name for run in self.systems]), ("domain", [d.name for d in self.domains])):
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise ValueError(f"the {what} {twice!r} is named twice")
        known = {run.name for run in self.systems}
        for domain in self.domains:
            if strange := set(domain.systems or ()) - known:
                raise ValueError(f"the domain {domain.name} asks for {min(strange)!r}, which is not among the systems")
        if any("seed" in given for given in (self.build.model_fields_set, *(domain.build for domain in self.domains))):
            raise ValueError("build.seed: there is one seed, at the top")
        for domain in self.domains:
            served = {*(self.building(domain).systems or SYSTEMS), TM}
            if lacking := next((run for run in self.runs(domain) if run.system not in served), None):
                raise ValueError(
                    f"the store of {domain.name} is built without what {lacking.system} needs: name it in "
                    f"build.systems too"
                )
            indexed = next((run for run in self.runs(domain) if run.retrieval.index), None)
            if indexed is not None and not self.building(domain).index:
                raise ValueError(
                    f"the store of {domain.name} is built without the index that {indexed.name} needs: set build.index"
                )
        return self

    def building(self, domain: Domain) -> BuildSettings:
        """How the store of a domain is built."""
        given = self.build.model_dump(exclude_unset=True) | domain.build | {"seed": self.seed}
        return BuildSettings.model_validate(given)

    def only(self, names: Sequence[str]) -> "Config":
        """The experiment with these systems alone, in this order, and stores that serve these alone."""
        known = {run.name: run for run in self.systems}
        if strange := next((name for name in names if name not in known), None):
            raise UsageError(f"there is no system {strange!r} among {', '.join(known)}")
        domains = []
        for domain in self.domains:
            mine = tuple(name for name in names if domain.systems is None or name in domain.systems)
            if mine:
                served = dict.fromkeys(known[name].system for name in mine if known[name].system != TM)
                if self.decompose is not None and "faster" in served:
                    served |= {"faster-exact": None}  # what the clusters hold is asked for too
                build = domain.build | ({"systems": list(served)} if served else {})
                domains.append(domain.model_copy(update={"systems": mine, "build": build}))
        return self.model_copy(update={"systems": tuple(known[name] for name in names), "domains": tuple(domains)})

    def runs(self, domain: Domain) -> list[Run]:
        """The systems of a domain, without base."""
        return [run for run in self.systems if domain.systems is None or run.name in domain.systems]
