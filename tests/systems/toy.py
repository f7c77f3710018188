"""A system as a stranger would write it: a source token selects the last stored token of its type, and no other.

Its array is made by a stage of its own. Nothing of the product is changed for it; `register` makes it known.
"""

import numpy as np

from knnmt.build import stages
from knnmt.build.context import Context
from knnmt.csr import offsets_of
from knnmt.search.entries import as_rows
from knnmt.search.nearest import runs
from knnmt.store.schema import Array, declare, offsets
from knnmt.systems.chosen import Nearest, linked
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Candidates, Source, System
from knnmt.systems.table import register
from knnmt.systems.view import View

ARRAYS = {
    "last_offsets": offsets("source_vocabulary", into="lasts"),
    "last_tokens": Array("int32", ("lasts",), below="tokens"),  # of each type that there is
}


def make_lasts(part: Context) -> None:
    """Write the last token of each type."""
    ends = part["type_offsets"]
    there = np.diff(ends) > 0
    part.write(last_offsets=offsets_of(there.astype(np.int64)), last_tokens=(ends[1:][there] - 1).astype(np.int32))


def select(view: View, source: Source, settings: RetrievalSettings) -> Candidates:
    """The entries linked to the last token of each source token's type, in the last part that has one."""
    sentence, types, _ = source.tokens(view)
    starts, stops = view.ranges("last_offsets", types)
    sizes = (stops - starts).flatten()
    numbers = runs((starts + view.first("lasts")).flatten(), sizes)
    owner = sentence[:, None].expand(starts.shape).flatten().repeat_interleave(sizes)
    owner, entries = linked(view, owner, view["last_tokens"][numbers])
    rows = as_rows(owner, entries, len(source.ids), view.count("entries"))
    return Nearest(view, rows, settings)


SYSTEM = System(
    name="toy",
    summary="compares with what the last token of each type links to",
    arrays=(*ARRAYS, "type_offsets", "link_offsets", "link_entries", "target_ids", "target_keys", "target_norms"),
    select=select,
)


def learn_of_it() -> None:
    """Make the system and its stage known."""
    declare(ARRAYS)
    stages.register(stages.Stage("toy", make_lasts, tuple(ARRAYS)))
    register(SYSTEM)
