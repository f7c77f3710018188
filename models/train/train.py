"""Train a small translation model from parallel text, in minutes, on one GPU.

    python models/train/train.py --data general/*.tsv.xz --out models/mini-de-en --test newstest2018.{de,en}

`--data` are files of `source<TAB>target` lines (plain, .gz or .xz). What comes out is a folder in the Marian layout
that `MarianMTModel.from_pretrained` and `knnmt` load. The stages leave their results in `--work` and are skipped
when those are there, and training goes on from its last checkpoint: the same command resumes a stopped run. Other
options or text want another `--work`.

    prepare  clean the text, train a joint SentencePiece model, encode the text with noise (prepare.py, noise.py)
    train    AdamW and Muon, bf16, label smoothing, warm-up, linear decay over most of a budget of time
    export   average the last checkpoints, write fp16 safetensors, the tokenizer and the configuration
    evaluate translate a test set with knnmt and score it (with --test)

For another language pair: other `--data`, `--langs`, and a look at noise.py, whose quotation marks are German and
English. It needs torch, transformers and sentencepiece.
"""

import argparse
import copy
import json
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from prepare import EOS, MAX_TOKENS, SIDES, log, prepare
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import MarianConfig, MarianMTModel

CHECK_EVERY = 250


# ------------------------------------------------------------------------------------------------------ train


class Text:
    """Encoded pairs on the device, cut into padded batches of about the same number of tokens."""

    def __init__(self, path: Path, device: torch.device, pad: int) -> None:
        arrays = np.load(path)
        self.ends = {side: arrays[side + "_ends"] for side in SIDES}
        self.starts = {side: np.concatenate(([0], ends[:-1])) for side, ends in self.ends.items()}
        self.ids = {s: torch.from_numpy(arrays[s].astype(np.int16)).to(device) for s in self.ends}
        self.device, self.pad = device, pad

    def batches(self, tokens: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Source and target ids `(B, S)` and `(B, T)`; sorted by length inside, shuffled outside."""
        rng = np.random.default_rng(seed)
        lengths = {side: self.ends[side] - self.starts[side] for side in self.ends}
        longest = (np.maximum(lengths["source"], lengths["target"]) + 3) // 4
        order = np.lexsort((rng.random(len(longest)), lengths["source"], longest))
        cuts, width = [0], 4 * longest[order]
        while cuts[-1] < len(order):
            # rows are sorted by width, so the widest row that still fits fixes the height of the batch
            rows = max(1, tokens // int(width[min(cuts[-1] + tokens // int(width[cuts[-1]]), len(order)) - 1]))
            cuts.append(min(cuts[-1] + rows, len(order)))
        for batch in rng.permutation(len(cuts) - 1):
            rows = order[cuts[batch] : cuts[batch + 1]]
            yield self.padded("source", rows), self.padded("target", rows)

    def padded(self, side: str, rows: np.ndarray) -> Tensor:
        """Ids of some sentences, (B, longest rounded up to fours)."""
        start, end = (torch.from_numpy(a[side][rows]).to(self.device) for a in (self.starts, self.ends))
        width = -(-int((self.ends[side][rows] - self.starts[side][rows]).max()) // 4) * 4
        at = start[:, None] + torch.arange(width, device=self.device)
        return torch.where(at < end[:, None], self.ids[side][at.clamp_(max=len(self.ids[side]) - 1)].long(), self.pad)


def version(work: Path, epoch: int, device: torch.device, pad: int) -> Text:
    """The version of the text that an epoch reads, of those that are encoded by now."""
    there = sorted(work.glob("train-?.npz"))
    return Text(there[epoch % len(there)], device, pad)


def new_model(options: argparse.Namespace) -> MarianMTModel:
    """A Marian model whose residual branches start small, so that its post-norm layers train at a high rate.

    LN(αx + f(x)) = LN(x + f(x)/α): DeepNorm's scales of the residual can be put into the weights of the branch.
    """
    config = MarianConfig(
        vocab_size=options.vocabulary, decoder_vocab_size=options.vocabulary, d_model=options.width,
        encoder_layers=options.encoder_layers, decoder_layers=options.decoder_layers,
        encoder_attention_heads=options.heads, decoder_attention_heads=options.heads,
        encoder_ffn_dim=options.ffn, decoder_ffn_dim=options.ffn, dropout=options.dropout,
        attention_dropout=0.0, activation_dropout=0.0, activation_function="swish", scale_embedding=True,
        max_position_embeddings=512, static_position_embeddings=True, share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True, pad_token_id=options.vocabulary - 1, decoder_start_token_id=options.vocabulary - 1,
        eos_token_id=EOS, bos_token_id=None, forced_eos_token_id=EOS, use_cache=True,
    )  # fmt: skip
    model = MarianMTModel(config)
    n, m = options.encoder_layers, options.decoder_layers
    encoder = (0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16))
    decoder = ((3 * m) ** 0.25, (12 * m) ** -0.25)
    for name, weight in model.named_parameters():
        alpha, beta = encoder if ".encoder." in name else decoder
        if name.endswith("shared.weight"):
            nn.init.normal_(weight, std=options.width**-0.5)
        elif name.endswith(("out_proj.weight", "fc2.weight")):
            nn.init.xavier_normal_(weight, gain=beta / alpha)
        elif name.endswith(("v_proj.weight", "fc1.weight")):
            nn.init.xavier_normal_(weight, gain=beta)
        elif name.endswith(("q_proj.weight", "k_proj.weight")):
            nn.init.xavier_normal_(weight)
    return model


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal (Jordan et al. 2024), matrices of one shape in one stack."""

    def __init__(self, weights: list[nn.Parameter], momentum: float = 0.95, decay: float = 0.1) -> None:
        shapes = {weight.shape for weight in weights}
        groups = [{"params": [w for w in weights if w.shape == shape]} for shape in sorted(shapes)]
        super().__init__(groups, {"lr": 0.0, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the weights from their gradients."""
        for group in self.param_groups:
            weights = group["params"]
            gradient = torch.stack([w.grad for w in weights])
            state = self.state[weights[0]]
            mean = state.setdefault("mean", torch.zeros_like(gradient)).lerp_(gradient, 1 - group["momentum"])
            update = orthogonal(gradient.lerp(mean, group["momentum"]))
            scale = 0.2 * math.sqrt(max(update.shape[1:]))  # the size of an AdamW update, so that rates agree
            torch._foreach_mul_(weights, 1 - group["lr"] * group["decay"])
            torch._foreach_add_(weights, list(update.to(weights[0].dtype).unbind()), alpha=-group["lr"] * scale)


def orthogonal(matrices: Tensor) -> Tensor:
    """UVᵀ of each matrix, nearly: five Newton-Schulz steps in bf16. matrices: (n, a, b)."""
    x = matrices.bfloat16()
    if tall := x.size(1) > x.size(2):
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (2.0315 * gram @ gram - 4.7750 * gram) @ x
    return x.mT if tall else x


def loss_of(hidden: Tensor, embedding: Tensor, target: Tensor, pad: int, smoothing: float) -> Tensor:
    """Cross-entropy summed over the real tokens; the output projection is the embedding."""
    logits = F.linear(hidden, embedding.to(hidden.dtype)).float()
    options: dict[str, Any] = {"ignore_index": pad, "label_smoothing": smoothing, "reduction": "sum"}
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), **options)


def train(options: argparse.Namespace) -> None:
    """Train until the time is used up; the last tenth of it leaves the snapshots that `export` averages."""
    work, device = options.work, torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    pad, budget = options.vocabulary - 1, options.minutes * 60
    model = new_model(options)
    if options.start is not None:
        model.load_state_dict(MarianMTModel.from_pretrained(options.start, dtype=torch.float32).state_dict())
    model = model.to(device).train()
    matrices = [w for n, w in model.named_parameters() if w.ndim == 2 and "layers" in n and w.requires_grad]
    others = [w for w in model.parameters() if w.requires_grad and not any(w is m for m in matrices)]
    adam = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0, fused=device.type == "cuda")
    optimizers = [Muon(matrices), adam]
    body, loss_function = model.model, loss_of
    if options.compile:
        for layer in (*body.encoder.layers, *body.decoder.layers):
            layer.compile(dynamic=True)
        loss_function = torch.compile(loss_of, dynamic=True)
    watched = {path.stem: Text(path, device, pad) for path in sorted(work.glob("valid-*.npz"))}

    def forward(source: Tensor, target: Tensor, smoothing: float) -> Tensor:
        shifted = torch.cat((torch.full_like(target[:, :1], pad), target[:, :-1]), dim=1)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            states = body(
                input_ids=source, attention_mask=source != pad, decoder_input_ids=shifted, use_cache=False
            ).last_hidden_state
            return loss_function(states, body.shared.weight, target, pad, smoothing)

    def state() -> dict[str, Any]:
        parts = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers]}
        return {**parts, "step": step, "epoch": epoch, "spent": spent, "snapshots": snapshots, "rate": peak}

    def restore(saved: dict[str, Any]) -> None:
        model.load_state_dict(saved["model"])
        for optimizer, kept in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(kept)

    step, epoch, spent, snapshots, peak = 0, 0, 0.0, 0, options.rate
    checkpoint = work / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        restore(saved)
        step, epoch, spent, snapshots, peak = (saved[k] for k in ("step", "epoch", "spent", "snapshots", "rate"))
        log(f"going on from step {step}")
    lowest, good = math.inf, copy.deepcopy(state())
    began, reported = time.monotonic() - spent, time.monotonic()
    tokens, total = torch.zeros((), device=device), torch.zeros((), device=device)
    while spent < budget:
        for source, target in version(work, epoch, device, pad).batches(options.batch_tokens, seed=epoch):
            spent = time.monotonic() - began
            if spent >= budget:
                break
            rate = peak * min(1.0, (step + 1) / options.warmup) * min(1.0, (1 - spent / budget) / 0.8)
            count = (target != pad).sum()
            loss = forward(source, target, smoothing=0.1)
            (loss / count).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = rate
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            total += loss.detach()
            tokens += count
            step += 1
            if step % CHECK_EVERY == 0:
                mean, speed = (total / tokens).item(), tokens.item() / (time.monotonic() - reported)
                if not mean < 1.3 * lowest:  # it diverges, or is no number at all
                    peak /= 2
                    log(f"step {step}: the loss is {mean:.4f}; back to step {good['step']} with half the rate")
                    restore(good)
                else:
                    lowest, good = min(mean, lowest), copy.deepcopy(state())
                    watch = validate(model, watched, forward) if step % (12 * CHECK_EVERY) == 0 else ""
                    pace = f"rate {rate:.2e} {speed:,.0f} tokens/s"
                    log(f"step {step} epoch {epoch} {spent:.0f} s loss {mean:.4f} {pace} {watch}")
                    if step % (10 * CHECK_EVERY) == 0:
                        save(good, checkpoint)
                tokens.zero_()
                total.zero_()
                reported = time.monotonic()
            if spent > budget * (0.9 + 0.02 * snapshots):
                save(model.state_dict(), work / f"snapshot-{snapshots}.pt")
                snapshots += 1
        else:
            epoch += 1
    if not snapshots:  # a run too short for any
        save(model.state_dict(), work / "snapshot-0.pt")
    log(f"trained {step} steps, {epoch} epochs, {validate(model, watched, forward)}")


@torch.no_grad()
def validate(model: MarianMTModel, watched: dict[str, Text], forward: Any) -> str:
    """Mean negative log-likelihood of a token in texts never trained on, without smoothing."""
    model.eval()
    report = []
    torch.compiler.set_stance("force_eager")  # a few batches are not worth compiling for
    for name, text in watched.items():
        losses = [(forward(s, t, smoothing=0.0), (t != text.pad).sum()) for s, t in text.batches(16_000, seed=0)]
        report.append(f"{name} {float(sum(a for a, _ in losses) / sum(b for _, b in losses)):.4f}")
    torch.compiler.set_stance("default")
    model.train()
    return " ".join(report)


def save(state: Any, path: Path) -> None:
    """Write all of it or nothing."""
    torch.save(state, path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)


# ----------------------------------------------------------------------------------------------------- export


def export(options: argparse.Namespace) -> None:
    """Average the snapshots and write a folder that Hugging Face loads."""
    paths = sorted(options.work.glob("snapshot-*.pt"))
    states = [torch.load(path, map_location="cpu", weights_only=True) for path in paths]
    mean = {name: sum(s[name].float() for s in states) / len(states) for name in states[0]}
    model = new_model(options)
    model.load_state_dict(mean)
    model.generation_config.update(num_beams=5, max_length=256, bad_words_ids=[[options.vocabulary - 1]])
    model.half().save_pretrained(options.out)
    for side in SIDES:
        shutil.copyfile(options.work / "spm.model", options.out / f"{side}.spm")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(options.work / "spm.model"))
    vocabulary = {pieces.id_to_piece(i): i for i in range(len(pieces))} | {"<pad>": options.vocabulary - 1}
    (options.out / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    source, target = options.langs.split("-")
    tokenizer = {
        "source_lang": source, "target_lang": target, "model_max_length": MAX_TOKENS, "separate_vocabs": False,
        "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "tokenizer_class": "MarianTokenizer",
    }  # fmt: skip
    (options.out / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2) + "\n", encoding="utf-8")
    log(f"{len(states)} snapshots averaged into {options.out}")


def evaluate(options: argparse.Namespace) -> None:
    """BLEU of the exported model, where knnmt is installed beside this script."""
    from knnmt import Translator
    from knnmt.evaluate import bleu

    source, reference = (path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in options.test)
    score = bleu([found.text for found in Translator(options.out).translate(source)], reference)
    log(f"BLEU {score.value:.2f} {score.signature}")


def parse() -> argparse.Namespace:
    """The options; the defaults made mini-de-en."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--distilled", type=Path, nargs="*", default=[], help="`source<TAB>translation` by a teacher")
    parser.add_argument("--original", type=float, default=0.4, help="share of --data beside --distilled")
    parser.add_argument("--short", type=Path, nargs="*", default=[], help="labels and messages, as --data")
    parser.add_argument("--short-times", type=int, default=3, help="how often each short string is repeated")
    parser.add_argument("--swap", action="store_true", help="--data, --short and --valid have the target first")
    parser.add_argument("--pieces", type=Path, help="a SentencePiece model to take; default: train one")
    parser.add_argument("--start", type=Path, help="a model of the same size to start from; default: random weights")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--valid", type=Path, nargs="*", default=[], help="more texts to watch the loss of")
    parser.add_argument("--test", type=Path, nargs=2, metavar=("SOURCE", "REFERENCE"), help="score the result, beam 5")
    parser.add_argument("--langs", default="de-en")
    parser.add_argument("--minutes", type=float, default=8.2, help="training time; preparing takes two or three more")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--ffn", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--encoder-layers", type=int, default=8)
    parser.add_argument("--decoder-layers", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--batch-tokens", type=int, default=40_000)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--versions", type=int, default=4, help="noisy versions of the text, used in turn")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    if options.vocabulary > 32_767:
        parser.error("ids are kept in 16 bits: a vocabulary has at most 32,767 pieces")
    return options


def main() -> None:
    """Run the stages that are still to do."""
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    others = prepare(options)
    if not (options.work / "trained").exists():
        train(options)
        (options.work / "trained").touch()
    if others is not None:
        others.join()
    export(options)
    if options.test:
        evaluate(options)


if __name__ == "__main__":
    main()
