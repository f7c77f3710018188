"""Load a Hugging Face checkpoint, from a folder or by its hub id, into our own encoder-decoder."""

import contextlib
import logging
import socket
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from knnmt.errors import ModelError, UsageError
from knnmt.languages import Languages, closeness
from knnmt.model.embedded import DEFAULT, EMBEDDED, embedded, embedded_path
from knnmt.model.lexicon import Lexicon
from knnmt.model.linear import DTYPES, Precision
from knnmt.model.shortlist import Shortlists
from knnmt.model.tokenizer import SpecialTokens, Tokenizer, language_codes
from knnmt.model.transformer import Architecture, Transformer

_log = logging.getLogger(__name__)

SAMPLES, SAMPLE = 64, 1 << 16  # of a weights file, for the fingerprint: count, and bytes of each


@dataclass(frozen=True)
class Family:
    """How a family of checkpoints differs from plain Marian."""

    norm_first: bool = False
    norm_embedding: bool = False
    norm_final: bool = False
    first_position: Callable[[Any], int] = lambda config: 0  # row of the embedding table for position 0


FAMILIES = {
    "marian": Family(),
    "fsmt": Family(first_position=lambda config: int(config.pad_token_id) + 1),
    "m2m_100": Family(norm_first=True, norm_final=True, first_position=lambda config: int(config.pad_token_id) + 1),
    "bart": Family(norm_embedding=True, first_position=lambda config: 2),
    "mbart": Family(norm_first=True, norm_embedding=True, norm_final=True, first_position=lambda config: 2),
}


@dataclass(frozen=True)
class Model:
    """A loaded translation model: the network, its tokenizer and special tokens."""

    name: str
    transformer: Transformer
    tokenizer: Tokenizer
    special: SpecialTokens
    max_source: int  # maximum source tokens
    length_penalty: float
    files: tuple[Path, ...]  # weights on disk
    langs: Languages | None = None  # as they were asked for
    shortlists: Shortlists | None = None  # None: every step computes the whole vocabulary

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.transformer.device

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the weights, independent of the precision they are loaded in.

        It covers samples of the files: training changes every weight.
        """
        running = blake2b(repr(self.transformer.architecture).encode(), digest_size=16)
        for path in self.files:
            size = path.stat().st_size
            running.update(f"{size} ".encode())
            with path.open("rb") as file:
                for start in range(0, size, max(SAMPLE, size // SAMPLES)):
                    file.seek(start)
                    running.update(file.read(SAMPLE))
        return running.hexdigest()


def load(
    name: str | Path = DEFAULT,
    *,
    device: str = "auto",
    precision: str = "auto",
    langs: Languages | str | None = None,
    shortlist: str | Path | None = None,
) -> Model:
    """Load a checkpoint: `mini` (embedded), a folder, or a hub id such as `Helsinki-NLP/opus-mt-de-en`.

    `mini` is the embedded model of langs, `mini-de-en` or `mini-en-de`; without langs it is `mini-de-en`.
    device is `cpu`, `cuda`, `cuda:1` or `auto`; precision is `float32`, `float16`, `bfloat16`, `int8` (on a CPU) or
    `auto`: float16 on CUDA, float32 elsewhere. Multilingual models need langs (`de-en`).
    shortlist: a file of `knnmt shortlist`; not used on a GPU, or where lists would have half of the vocabulary.
    """
    lexicon = Lexicon.load(shortlist) if shortlist is not None else None
    pair = Languages.parse(langs) if isinstance(langs, str) else langs
    name = embedded(pair) if str(name) == DEFAULT else name
    place = _device(device)
    chosen = _precision(precision, place)
    with _quiet_transformers():
        import transformers

        path, offline = _locate(str(name))
        options: dict[str, Any] = {"local_files_only": offline}
        try:
            config = transformers.AutoConfig.from_pretrained(path, **options)
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(_cannot_load(name, error)) from error
        family = FAMILIES.get(config.model_type)
        if family is None or not config.is_encoder_decoder:
            known = ", ".join(FAMILIES)
            raise ModelError(f"{name}: unsupported model type {config.model_type!r}; knnmt supports {known}")
        try:
            hf, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                path, dtype=DTYPES[chosen], output_loading_info=True, **options
            )
            hf_tokenizer = transformers.AutoTokenizer.from_pretrained(path, **options)
        except (
            OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, ImportError, SafetensorError,
        ) as error:  # fmt: skip
            raise ModelError(_cannot_load(name, error)) from error
    if missing := sorted(report["missing_keys"]):
        raise ModelError(f"{name}: {len(missing)} weights missing ({missing[0]}, …); download or save the model again")
    source, target = direction(pair, config, hf_tokenizer)
    tokenizer = Tokenizer(hf_tokenizer, source, target)
    transformer, special = convert(hf, family).to(place), special_tokens(hf, tokenizer, hf_tokenizer)
    shortlists = None
    if lexicon is not None and shortlist is not None:
        sizes = transformer.architecture.source_vocabulary, transformer.architecture.target_vocabulary
        lexicon.check(tokenizer.fingerprint, sizes, shortlist, str(name))
        head = transformer.projection
        if place.type == "cpu" and lexicon.shortens(sizes[1]):  # rows are taken before they are packed
            shortlists = Shortlists(lexicon, special, head.weight.detach(), head.bias, chosen)
        else:
            _log.info("%s is not used: here, the whole vocabulary is as fast", shortlist)
    if place.type == "cpu":
        transformer.pack(chosen)
    return Model(
        name=str(name),
        transformer=transformer,
        tokenizer=tokenizer,
        special=special,
        max_source=min(transformer.architecture.max_positions, tokenizer.max_length),
        length_penalty=float(getattr(hf.generation_config, "length_penalty", None) or 1.0),
        files=_weights(path),
        langs=pair,
        shortlists=shortlists,
    )


def convert(hf: Any, family: Family) -> Transformer:
    """Our encoder-decoder with the weights of a Hugging Face model; only concatenated weights are copied."""
    config = hf.config
    activation = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}.get(config.activation_function)
    if activation is None:
        raise ModelError(f"unsupported activation {config.activation_function!r}; knnmt supports swish, relu, gelu")
    first = family.first_position(config)
    encoder, decoder = hf.model.encoder, hf.model.decoder
    head = decoder.output_projection if config.model_type == "fsmt" else hf.lm_head
    tables = [_positions(stack.embed_positions)[first:] for stack in (encoder, decoder)]
    architecture = Architecture(
        width=config.d_model,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_heads=config.encoder_attention_heads,
        decoder_heads=config.decoder_attention_heads,
        encoder_ffn=config.encoder_ffn_dim,
        decoder_ffn=config.decoder_ffn_dim,
        source_vocabulary=encoder.embed_tokens.weight.size(0),
        target_vocabulary=decoder.embed_tokens.weight.size(0),
        activation=activation,  # type: ignore[arg-type]
        norm_first=family.norm_first,
        norm_embedding=family.norm_embedding,
        norm_final=family.norm_final,
        scale_embedding=config.d_model**0.5 if config.scale_embedding else 1.0,
        max_positions=min(len(tables[0]), int(config.max_position_embeddings)),
    )
    weights: dict[str, Tensor] = {}
    for name, stack, table in (("encoder", encoder, tables[0]), ("decoder", decoder, tables[1])):
        weights[f"{name}.embedding.weight"] = stack.embed_tokens.weight
        weights[f"{name}.positions"] = table[: architecture.max_positions]
        for ours, theirs in (("embedding_norm", "layernorm_embedding"), ("final_norm", "layer_norm")):
            if hasattr(stack, theirs):
                weights.update(_both(f"{name}.{ours}", getattr(stack, theirs)))
        for index, layer in enumerate(stack.layers):
            weights.update((f"{name}.layers.{index}.{key}", value) for key, value in _layer(layer, name))
    weights["projection.weight"] = head.weight
    weights["projection.bias"] = getattr(hf, "final_logits_bias", head.weight.new_zeros(len(head.weight))).flatten()
    with torch.device("meta"):
        transformer = Transformer(architecture)
    transformer.load_state_dict(weights, assign=True)
    if not weights["projection.bias"].any():
        transformer.projection.bias = None  # adding zeros would cost time at every step
    return transformer.requires_grad_(False).eval()


def _layer(layer: Any, side: str) -> Iterator[tuple[str, Tensor]]:
    """The weights of one layer, under our names."""
    attention, prefix = layer.self_attn, "self_" if side == "decoder" else ""
    name = f"{prefix}attention"
    yield from _joined(f"{name}.inputs", attention.q_proj, attention.k_proj, attention.v_proj)
    yield from _both(f"{name}.output", attention.out_proj)
    yield from _both("self_norm" if side == "decoder" else "attention_norm", layer.self_attn_layer_norm)
    if side == "decoder":
        cross = layer.encoder_attn
        yield from _both("cross_attention.query", cross.q_proj)
        yield from _joined("cross_attention.inputs", cross.k_proj, cross.v_proj)
        yield from _both("cross_attention.output", cross.out_proj)
        yield from _both("cross_norm", layer.encoder_attn_layer_norm)
    yield from _both("ffn.first", layer.fc1)
    yield from _both("ffn.second", layer.fc2)
    yield from _both("ffn_norm", layer.final_layer_norm)


def _both(name: str, module: Any) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", module.weight
    yield f"{name}.bias", module.bias


def _joined(name: str, *modules: Any) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", torch.cat([module.weight for module in modules])
    yield f"{name}.bias", torch.cat([module.bias for module in modules])


def _positions(module: Any) -> Tensor:
    """The table of position embeddings: a weight, or a buffer in M2M100."""
    table: Tensor = module.weight if hasattr(module, "weight") else module.weights
    return table.detach()


def special_tokens(hf: Any, tokenizer: Tokenizer, hf_tokenizer: Any) -> SpecialTokens:
    """The special tokens of decoding, from the generation config and, in multilingual models, the target's tag."""
    settings, config = hf.generation_config, hf.config

    def setting(name: str) -> Any:
        value = getattr(settings, name, None)
        return getattr(config, name, None) if value is None else value

    start, prefix = setting("decoder_start_token_id"), setting("forced_bos_token_id")
    if tokenizer.tag_id is not None:
        # most models force the tag as first token; mbart-large-cc25 starts with it, whatever its config says
        if start in (hf_tokenizer.eos_token_id, hf_tokenizer.bos_token_id, hf_tokenizer.pad_token_id):
            prefix = tokenizer.tag_id
        else:
            start, prefix = tokenizer.tag_id, None
    end = setting("eos_token_id")
    end = end[0] if isinstance(end, list) else end
    pad = setting("pad_token_id")
    banned = {words[0] for words in setting("bad_words_ids") or [] if len(words) == 1}
    return SpecialTokens(
        start=int(end if start is None else start),
        end=int(end),
        pad=int(pad),
        prefix=() if prefix is None else (int(prefix),),
        forced_end=setting("forced_eos_token_id") is not None,
        banned=tuple(sorted(banned | {int(pad)})),
    )


def direction(langs: Languages | None, config: Any, tokenizer: Any) -> tuple[str | None, str | None]:
    """Source and target language: as asked, or the model's own pair; a bilingual model accepts no other."""
    own = getattr(config, "langs", None) or [getattr(tokenizer, side, None) for side in ("source_lang", "target_lang")]
    several = language_codes(tokenizer) or getattr(tokenizer, "supported_language_codes", None)
    if several or not all(isinstance(code, str) for code in own):
        return (langs.source, langs.target) if langs else (None, None)
    if langs and not (closeness(own[0], langs.source) and closeness(own[1], langs.target)):
        pair = "-".join(own)
        raise UsageError(
            f"this is a {pair} model, it does not translate {langs}: use --langs {pair}, or another --model"
        )
    return own[0], own[1]


def _locate(name: str) -> tuple[str, bool]:
    """Where to load from, and whether to stay offline."""
    if name in EMBEDDED and not Path(name).is_dir():
        return str(embedded_path(name)), True
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise ModelError(
                f"{name}: no config.json in this folder; pass the folder of a Hugging Face translation model"
            )
        return str(folder), True
    if folder.exists() or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise UsageError(
            f"no model at {name}: pass a folder with config.json, a hub id such as Helsinki-NLP/opus-mt-de-en, "
            f"or {DEFAULT} (embedded)"
        )
    from huggingface_hub import constants, try_to_load_from_cache

    weights = [stem + end for stem in ("model.safetensors", "pytorch_model.bin") for end in ("", ".index.json")]
    config, *parts = (isinstance(try_to_load_from_cache(name, file), str) for file in ("config.json", *weights))
    cached = config and any(parts)  # an incomplete download is resumed
    if not cached and (constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT)):
        raise ModelError(
            f"{name}: neither a local folder nor a downloaded model, and the hub cannot be reached; pass a local "
            f"folder, or run `hf download {name}` while online"
        )
    return name, cached


def _weights(path: str) -> tuple[Path, ...]:
    """The weight files of a model, in its folder or in the hub cache."""
    folder = Path(path)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(path, local_files_only=True))
    found = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    return tuple(file.resolve() for file in found)


def _reachable(address: str) -> bool:
    """Whether a server accepts connections: the hub's client would retry for half a minute."""
    if urllib.request.getproxies():
        return True  # the proxy decides
    parts = urllib.parse.urlsplit(address)
    port = parts.port or {"http": 80}.get(parts.scheme, 443)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=5).close()
    except OSError:
        return False
    return True


def _cannot_load(name: str | Path, error: Exception) -> str:
    """A one-line error message."""
    reason = " ".join(str(error).split())
    return f"cannot load the model {name}: {reason[:200]}{'…' if len(reason) > 200 else ''}"


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"unsupported device {name!r}: use auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"CUDA device {name!r} is not available: use --device cpu")
    return device


def _precision(name: str, device: torch.device) -> Precision:
    if name == "auto":
        return "float16" if device.type == "cuda" else "float32"
    if name not in DTYPES:
        raise UsageError(f"unknown precision {name!r}: use auto, {', '.join(DTYPES)}")
    if name == "int8" and device.type != "cpu":
        raise UsageError(f"int8 runs on a CPU, not on {device.type}: use --precision float16, or --device cpu")
    return name


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Suppress progress bars and warnings of transformers."""
    from transformers.utils import logging as theirs

    hub = logging.getLogger("huggingface_hub")
    levels, bar = (theirs.get_verbosity(), hub.level), theirs.is_progress_bar_enabled()
    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        theirs.set_verbosity(levels[0])
        hub.setLevel(levels[1])
        if bar:
            theirs.enable_progress_bar()
