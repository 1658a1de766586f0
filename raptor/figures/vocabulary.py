"""Names, order and colours of what is drawn: the same in every figure, table and caption."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Term(NamedTuple):
    """A display name and a colour: `C0` … `C9` of the palette, or a grey."""

    label: str
    colour: str = "0.4"


METHODS = {
    "maxcut": Term("Max-Cut", "C0"),
    "maxcut_exact": Term("exact Max-Cut", "C1"),
    "uniform": Term("uniform", "C2"),
    "random": Term("random contiguous", "C7"),
    "random_scattered": Term("random scattered", "C4"),
}
TOKENS = {
    "all": Term("all tokens", "0.15"),
    "cls": Term("cls", "C3"),
    "registers": Term("registers", "C4"),
    "patches": Term("patches", "C9"),
}
MARKERS = {"all": "o", "cls": "^", "registers": "s", "patches": "v"}  # of the tokens
MODELS = {
    "teacher": Term("teacher"),
    "raptor": Term("Raptor"),
}
CLASSES = {
    "within_angle": Term("own class", "C0"),
    "between_angle": Term("other classes", "C1"),
}
RANKS = {
    "stable_rank": Term("stable rank"),
    "effective_rank": Term("effective rank"),
    "participation_ratio": Term("participation ratio"),
}
KINDS = {
    "intra": Term("same phase", "C0"),
    "inter": Term("other phase", "C3"),
}
MEASURES = {
    "cosine": Term("cosine (cls + mean patch)"),
    "cosine_all_tokens": Term("cosine (all tokens)"),
    "cka": Term("linear CKA"),
    "mean_squared_difference": Term("mean squared difference"),
}
VERDICTS = {
    "supported": Term("supported", "C0"),
    "contradicted": Term("contradicted", "C3"),
    "inconclusive": Term("inconclusive", "0.35"),
    "not tested": Term("not tested", "0.65"),
}
SITES = {
    "block": Term("after the block"),
    "attention": Term("attention branch"),
    "mlp": Term("MLP branch"),
}
BASELINES = {
    "linear": Term("one linear map", "0.25"),
    "layer_mean": Term("mean per layer", "0.45"),
    "identity": Term("identity", "0.65"),
}
PARADIGMS = {
    "output": Term("output distillation", "C1"),
    "teacher_forcing": Term("teacher forcing", "C4"),
    "autoregressive": Term("autoregression", "C0"),
}
ADDED = {  # what one recipe has that the one before lacks (paper Table 1)
    "teacher_forcing": Term("teacher forcing only"),
    "autoregressive": Term("+ autoregressive (annealed)"),
    "depth_scaling": Term("+ depth scaling"),
    "token_weights": Term("+ cls weighting"),
    "stage2": Term("+ stage 2"),
    "probe": Term("+ fine-tuned probe"),
    "phase_mean": Term("start from the mean of each phase"),
}


def label(name: str) -> str:
    """A name of the configuration as text: no underscore, which reST would read as a link."""
    return " ".join(str(name).replace("_", " ").split())


def spans(segments: str) -> str:
    """Segments as they are read: `1-1 2-7` -> `1 2–7`."""
    ends = (segment.split("-") for segment in segments.split())
    return " ".join(first if first == last else f"{first}–{last}" for first, last in ends)


def term(vocabulary: dict[str, Term], name: str) -> Term:
    """The entry of `name`; a name that is not there is shown as it is, in grey."""
    return vocabulary.get(name, Term(label(name)))


def ordered(vocabulary: dict[str, Term], names: Iterable[str]) -> list[str]:
    """The distinct names in the order of the vocabulary, unknown ones last, by name."""
    order = {name: rank for rank, name in enumerate(vocabulary)}
    return sorted(set(names), key=lambda name: (order.get(name, len(order)), name))
