"""Terms that a translation must have, or must not have: a beam search that makes room for those who have some of them.

Beams are allocated as by Post and Vilar (2018), in rounds over the banks as by Hu et al. (2019): the bank of
a beam is how many terms it has, and how many tokens of one more. Each beam may go on with the tokens that model and
retrieval like best, and with any token that begins or continues a term; the best of each bank stay, then the second
best, and so on. A beam may end when it has all terms. A term has several forms, of which any will do: the forms of a
sentence make a trie, and a beam is at a node of it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.decode.constraint_kernels import MUST_NOT
from knnmt.decode.ranking import NEVER, top

Ids = tuple[int, ...]
PADDING = MUST_NOT - 1  # instead of a node: no way leads there, either
FAR = 1 << 30  # a token that no translation reaches
TIGHT, LOOSE = 0, 1  # the roots of a trie: behind a word, and where a word may begin without a space
BY_SENTENCE = "tokens goto change below complete depth need longest earliest deadline begin".split()


class Edges(NamedTuple):
    """Where words begin and end. Both (V,) bool."""

    starts: NDArray[np.bool_]  # a token that may follow a whole word: it begins with a space, or with no letter
    loose: NDArray[np.bool_]  # a token behind which a word may begin without a space: it ends with no letter


@dataclass(frozen=True)
class Forms:
    """Token sequences of whole words. `joined` ones begin without a space, and stand only where a word may begin so."""

    spaced: frozenset[Ids] = frozenset()
    joined: frozenset[Ids] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.spaced or self.joined)

    def __or__(self, other: "Forms") -> "Forms":
        return Forms(self.spaced | other.spaced, self.joined | other.joined)

    def then(self, rests: Collection[Ids]) -> "Forms":
        """The same, each followed by one of the rests."""
        rests = list(rests)
        return Forms(
            *(frozenset(form + rest for form in some for rest in rests) for some in (self.spaced, self.joined))
        )

    def shares(self, other: "Forms") -> bool:
        """Whether a sequence is in both."""
        return bool(self.spaced & other.spaced or self.joined & other.joined)


@dataclass(frozen=True)
class Wishes:
    """What the translation of a sentence must have: of each `Forms` so many; and what it must not have."""

    wanted: tuple[tuple[Forms, int], ...]
    forbidden: Forms = Forms()
    prefix: Ids = ()  # tokens that it must begin with, whatever they hold
    earliest: int = 0  # the token with which the first term may begin: nothing before it counts
    deadline: int = FAR  # the token with which it must have begun

    @property
    def possible(self) -> bool:
        """Whether there is something to have or to avoid, and tokens for all that is wanted."""
        return all(forms for forms, _ in self.wanted) and bool(self.wanted or self.forbidden)

    @property
    def tokens(self) -> int:
        """The length of all that is wanted, in the longest forms."""
        return sum(count * max(map(len, forms.spaced | forms.joined), default=0) for forms, count in self.wanted)

    def merged(self) -> "Wishes":
        """The same with each sequence in one of the wanted forms only: those that share one become one."""
        groups: list[tuple[Forms, int]] = []
        for forms, count in self.wanted:
            for other in [group for group in groups if group[0].shares(forms)]:
                groups.remove(other)
                forms, count = forms | other[0], count + other[1]
            groups.append((forms, count))
        return replace(self, wanted=tuple(groups))


@dataclass
class _Node:
    token: int = -1
    depth: int = 0
    children: dict[int, int] = field(default_factory=dict)
    group: int = -1  # the wanted forms that are complete here
    forbidden: bool = False
    counted: int = -1  # the group that a beam at this node has counted on its way from the root
    gains: list[int] = field(default_factory=list)  # groups, of which one more is complete here
    loses: list[int] = field(default_factory=list)  # groups, of which one less is: the word goes on
    below: set[int] = field(default_factory=set)  # groups that can be completed from here on


class Trie:
    """The forms of a sentence: nodes, and the ways between them."""

    def __init__(self, wishes: Wishes, edges: Edges) -> None:
        self.edges, self.nodes = edges, [_Node(), _Node()]
        self.need = [count for _, count in wishes.wanted]
        for group, (forms, _) in enumerate(wishes.wanted):
            self._insert(forms, group)
        self._insert(wishes.forbidden, -1)
        self.longest = max(1, *(node.depth for node in self.nodes))
        self.tokens = sorted({node.token for node in self.nodes[2:]})
        for root in (TIGHT, LOOSE):
            for child in self.nodes[root].children.values():
                self._count(child, self.nodes[root])

    def _insert(self, forms: Forms, group: int) -> None:
        for roots, sequences in (((TIGHT, LOOSE), forms.spaced), ((LOOSE,), forms.joined)):
            for root in roots:
                for sequence in sequences:
                    at = root
                    for depth, token in enumerate(sequence, start=1):
                        at = self.nodes[at].children.setdefault(token, len(self.nodes))
                        if at == len(self.nodes):
                            self.nodes.append(_Node(token, depth))
                    self.nodes[at].group = max(self.nodes[at].group, group)
                    self.nodes[at].forbidden |= group < 0

    def _count(self, number: int, parent: _Node) -> set[int]:
        """What a beam gains and loses at a node and below. A longer term takes the place of the one it begins with."""
        node = self.nodes[number]
        node.counted = parent.counted
        if parent.group >= 0 and not self.edges.starts[node.token]:
            node.loses.append(parent.group)
            node.counted = -1
        if node.group >= 0:
            if node.counted >= 0:
                node.loses.append(node.counted)
            node.gains.append(node.group)
            node.counted = node.group
        for child in node.children.values():
            node.below |= self._count(child, node)
        return node.below | ({node.group} if node.group >= 0 else set())

    def ways(self) -> NDArray[np.int64]:
        """The node after each token at each node, or `MUST_NOT`. (N, A)."""
        tokens = np.array(self.tokens, np.int64)
        starts, loose = self.edges.starts[tokens], self.edges.loose[tokens].astype(np.int64)
        place = {token: number for number, token in enumerate(self.tokens)}
        found = np.tile(loose, (len(self.nodes), 1))
        for root in (TIGHT, LOOSE):
            self._branch(found, root, place)
        for number, node in enumerate(self.nodes[2:], start=2):
            found[number] = found[int(self.edges.loose[node.token])]  # as at a root
            if node.group >= 0:
                found[number, ~starts] = MUST_NOT  # the word would go on
            self._branch(found, number, place)
        return found

    def _branch(self, found: NDArray[np.int64], number: int, place: dict[int, int]) -> None:
        for token, child in self.nodes[number].children.items():
            found[number, place[token]] = MUST_NOT if self.nodes[child].forbidden else child


class Constraints:
    """The terms of a batch of sentences, and how far its beams are with them: at `node` (B, K) with `have` (B, K, G).

    tokens: (B, A) all tokens of the forms; goto: (B, N, A) the node after each of them; change: (B, N, G) what a beam
    gains and loses at a node; below: (B, N, G) what it may complete from there; complete: (B, N) whether it has just
    completed something; depth: (B, N) tokens from the root; need: (B, G); longest, earliest, deadline: (B,), of
    `Wishes`; begin: (B, P), their prefixes
    """

    tokens: Tensor
    goto: Tensor
    change: Tensor
    below: Tensor
    complete: Tensor
    depth: Tensor
    need: Tensor
    longest: Tensor
    earliest: Tensor
    deadline: Tensor
    begin: Tensor

    def __init__(self, wishes: Sequence[Wishes], edges: Edges, beams: int, device: torch.device) -> None:
        tries = [Trie(each.merged(), edges) for each in wishes]
        count = len(tries)
        nodes, tokens, groups = (
            max(map(len, some)) for some in zip(*((t.nodes, t.tokens, t.need) for t in tries), strict=True)
        )
        own = np.zeros((count, tokens), np.int64)
        goto = np.full((count, nodes, tokens), PADDING, np.int64)
        change = np.zeros((count, nodes, groups), np.int64)
        below = np.zeros((count, nodes, groups), np.bool_)
        complete, depth = np.zeros((count, nodes), np.bool_), np.zeros((count, nodes), np.int64)
        need = np.zeros((count, groups), np.int64)
        for row, trie in enumerate(tries):
            own[row] = trie.tokens[0]  # padded with a token of its own, to which no way leads
            own[row, : len(trie.tokens)] = trie.tokens
            need[row, : len(trie.need)] = trie.need
            goto[row, : len(trie.nodes), : len(trie.tokens)] = trie.ways()
            for number, node in enumerate(trie.nodes):
                np.add.at(change[row, number], node.gains, 1)
                np.add.at(change[row, number], node.loses, -1)
                below[row, number, list(node.below)] = number > LOOSE
                complete[row, number], depth[row, number] = node.group >= 0, node.depth
        longest = np.array([trie.longest for trie in tries])
        earliest, deadline = (np.array([getattr(each, name) for each in wishes]) for name in ("earliest", "deadline"))
        begin = np.full((count, max(len(each.prefix) for each in wishes)), -1, np.int64)
        for row, each in enumerate(wishes):
            begin[row, : len(each.prefix)] = each.prefix
        arrays = own, goto, change, below, complete, depth, need, longest, earliest, deadline, begin
        for name, array in zip(BY_SENTENCE, arrays, strict=True):
            setattr(self, name, torch.from_numpy(array).to(device))
        self.starts, self.loose = (torch.from_numpy(edge).to(device) for edge in edges)
        self.banks = int((need.sum(axis=1) * longest).max()) + 2
        self.node = torch.full((count, beams), LOOSE, device=device)
        self.have = torch.zeros((count, beams, groups), dtype=torch.int64, device=device)

    def tables(self) -> list[Any]:
        """What `extend_bound` reads and, the last two, changes in place."""
        edges = self.starts.numpy(), self.loose.numpy()
        return [
            *(getattr(self, name).numpy() for name in BY_SENTENCE),
            *edges,
            self.banks,
            self.node.numpy(),
            self.have.numpy(),
        ]

    def met(self, step: int) -> Tensor:
        """Which beams have all terms of their sentences, and are behind their given beginnings. (B, K)."""
        begun = (self.begin[:, step:] < 0).all(dim=1)
        return (self.have >= self.need[:, None]).all(dim=2) & begun[:, None]

    def extend(self, logits: Tensor, shift: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """The scores, parents and tokens of the beams after a step, the best first; all (B, K).

        logits: (B, K, V), changed in place; scores of tokens are logits + shift (B, K); step: its number
        """
        batch, beams, vocabulary = logits.shape
        beginning = torch.zeros((batch, 1), dtype=torch.bool, device=logits.device)
        if step < self.begin.size(1):
            wanted = self.begin[:, step, None]
            beginning = wanted >= 0
            others = torch.arange(vocabulary, device=logits.device) != wanted
            logits.masked_fill_((beginning & others)[:, None], -torch.inf)
        rows = torch.arange(batch, device=logits.device)[:, None]
        # tokens of terms, by the ways of the trie
        own = self.tokens[:, None].expand(-1, beams, -1)
        there = self.goto[rows, self.node]
        uncounted = beginning | (self.earliest > step)[:, None]
        possible = there >= torch.where(uncounted, MUST_NOT, TIGHT)[:, :, None]
        scores = logits.gather(2, own).add_(shift[:, :, None]).masked_fill_(~possible, -torch.inf)
        # all others, the best of each beam: they lead to a root; behind a whole term, a new word must begin
        logits.scatter_(2, own, -torch.inf)
        complete = self.complete[rows, self.node] & ~beginning
        if complete.any():
            logits.masked_fill_(complete[:, :, None] & ~self.starts, -torch.inf)
        best, token = top(logits.flatten(0, 1)[:, None], shift.view(-1, 1), beams)
        best, token = best.view(batch, beams, -1), token.view(batch, beams, -1)

        score = torch.cat((scores, best), dim=2).flatten(1)
        tokens = torch.cat((own, token), dim=2).flatten(1)
        node = torch.cat((there.clamp_min(0), self.loose[token].long()), dim=2).flatten(1)
        node = torch.where(uncounted, self.loose[tokens].long(), node)
        parent = torch.arange(score.size(1), device=logits.device) // (own.size(2) + beams)
        have = self.have[:, parent] + self.change[rows, node]
        unmet = self.need[:, None] > have
        begun = (self.below[rows, node] & unmet).any(dim=2) * self.depth[rows, node]
        bank = self.longest[:, None] * torch.minimum(have, self.need[:, None]).sum(dim=2) + begun
        score = score.masked_fill((bank == 0) & (self.deadline <= step)[:, None], -torch.inf)
        chosen = self._allocate(score, bank, beams)
        self.node, self.have = node.gather(1, chosen), have[rows, chosen]
        return score.gather(1, chosen).clamp_min(NEVER), parent[chosen], tokens.gather(1, chosen)

    def _allocate(self, score: Tensor, bank: Tensor, beams: int) -> Tensor:
        """Which candidates stay: the best of each bank, then the second best, …; by score. (B, M) both, to (B, K)."""
        order = score.argsort(dim=1, descending=True, stable=True)
        bank, possible = bank.gather(1, order), score.gather(1, order) > NEVER / 2
        bank = torch.where(possible, bank, self.banks - 1)
        of_bank = torch.nn.functional.one_hot(bank, self.banks)
        rank = of_bank.cumsum(dim=1).gather(2, bank[:, :, None])[:, :, 0]
        turn = torch.where(possible, rank * self.banks - bank, torch.iinfo(torch.int64).max)
        stay = turn.topk(beams, dim=1, largest=False).indices.sort(dim=1).values
        return order.gather(1, stay)

    def keep(self, rows: Tensor) -> None:
        """Keep only these sentences. rows: (N,) int64."""
        for name in (*BY_SENTENCE, "node", "have"):
            setattr(self, name, getattr(self, name)[rows])
