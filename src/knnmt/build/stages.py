"""The stages that make the arrays of systems, in their order; each runs only if a system that was asked for opens one.

They begin where a part has its content: texts, tokens, links by type, and states. That comes from a corpus (`cut`,
`represent`), or from parts that are merged (`merge`). A system with arrays of its own adds a file, and registers it
here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from knnmt.build.cluster import cluster_tokens
from knnmt.build.context import Context
from knnmt.build.index import index_keys
from knnmt.build.keys import finish_keys
from knnmt.build.prototypes import make_prototypes
from knnmt.build.settings import BuildSettings
from knnmt.build.similar import make_similar
from knnmt.store.manifest import INDEX
from knnmt.store.schema import QUANTIZED
from knnmt.systems import faster, proto, similar
from knnmt.systems.table import SYSTEMS

# kept whatever the systems: for evidence, for 100% matches, and, where links were given, for compaction
ALWAYS = (
    "text", "text_offsets", "source_digests", "source_order", "target_digests", "target_order",
    "target_ids", "target_offsets", "given_links", "given_offsets",
)  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """A stage: `makes` are the names of its arrays, or files; `beside` are those that are kept if another one is."""

    name: str
    run: Callable[[Context], None]
    makes: tuple[str, ...]
    beside: Mapping[str, str] = field(default_factory=dict)


STAGES: dict[str, Stage] = {}


def register(stage: Stage) -> None:
    """Add a stage behind all others."""
    STAGES[stage.name] = stage


register(Stage("cluster", cluster_tokens, tuple(faster.ARRAYS), {"cluster_members": "cluster_starts"}))
register(Stage("prototypes", make_prototypes, tuple(proto.ARRAYS)))
register(Stage("similar", make_similar, tuple(similar.ARRAYS), {"type_segments": "token_shares"}))
register(
    Stage(
        "keys",
        finish_keys,
        ("target_norms", "source_norms", *(name for names in QUANTIZED.values() for name in names)),
    )
)
register(Stage("index", index_keys, (INDEX,)))


def kept(settings: BuildSettings) -> set[str]:
    """The names of what a part keeps for the systems that were asked for."""
    names = {*ALWAYS, *(name for system in settings.systems or SYSTEMS for name in SYSTEMS[system].arrays)}
    if settings.keys == "pq":
        for whole in QUANTIZED.keys() & names:
            names = names - {whole} | {*QUANTIZED[whole]}
    if settings.index:
        names.add(INDEX)
    return names | {name for stage in STAGES.values() for name, other in stage.beside.items() if other in names}


def needed(settings: BuildSettings) -> list[Stage]:
    """The stages that make something that is kept."""
    names = kept(settings)
    return [stage for stage in STAGES.values() if names.intersection(stage.makes)]
