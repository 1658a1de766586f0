"""Teachers from timm: weights of the hub, of a file, or random ones."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timm.models import adapt_input_conv, eva, load_state_dict_from_hf, vision_transformer
from timm.models import load_state_dict as read_state_dict
from torch import nn

from raptor.config.data import DataConfig
from raptor.config.teachers import TimmTeacher
from raptor.data.split import open_split
from raptor.errors import RaptorError, first_line
from raptor.teachers.adapter import Teacher
from raptor.teachers.build import assemble
from raptor.teachers.files import save_teacher
from raptor.teachers.heads import feature_width, load_head
from raptor.weights import why_unreadable

log = logging.getLogger(__name__)

Weights = dict[str, torch.Tensor]


def make_timm(*, spec: TimmTeacher, data: DataConfig, output: Path) -> None:
    """Write the teacher of `spec` for images of `data`: its weights and facts.

    The facts name the classes of the data, which a probe is to tell apart; there is no accuracy
    among them, as a probe has to be fitted first.
    """
    class_names = open_split(data, "train").class_names
    teacher = load_timm(spec, data, len(class_names))
    if "head" in spec.files:  # later stages read it: refused now, or not at all
        load_head(Path(spec.head), feature_width(teacher), len(class_names))
    save_teacher(
        teacher,
        output,
        class_names=class_names,
        spec=spec.model_dump(mode="json"),
        data=data.model_dump(mode="json"),
    )


def load_timm(
    spec: TimmTeacher,
    data: DataConfig,
    num_classes: int,
    *,
    image_size: tuple[int, int] | None = None,
) -> Teacher:
    """The teacher of `spec` at the image size of `data`, or at another height and width.

    With the model's own head for `num_classes`, where `spec.head` asks for it, else without one.
    RaptorError for weights that cannot be had or do not fit.
    """
    architecture = {
        "model": spec.model,
        "image_size": image_size or data.image_size,
        "channels": data.channels,
        "num_classes": num_classes if spec.head == "own" else 0,
    }
    teacher = assemble(architecture, seed=spec.seed)
    if spec.weights == "random":
        return teacher
    model, origin = teacher.model, spec.weights
    weights = _from_hub(spec.model, model) if origin == "pretrained" else _from_file(Path(origin))
    _load(model, _fitted(weights, model, data.channels), f"{origin} weights of {spec.model}")
    log.info("%s: %s, %s", spec.model, origin, teacher.layout)
    return teacher


def _from_hub(name: str, model: nn.Module) -> Weights:
    hub = model.pretrained_cfg.get("hf_hub_id")
    if not hub:
        raise RaptorError(
            f"{name}: timm knows no weights on the hub for it; give weights: random or a file"
        )
    try:
        return load_state_dict_from_hf(hub, weights_only=True)
    except OSError as error:  # all errors of the hub are: offline, no such file, no permission
        raise RaptorError(
            f"{name}: its weights cannot be fetched ({first_line(error)}); download "
            f"https://huggingface.co/{hub}/resolve/main/model.safetensors on a machine that can "
            "(after accepting the licence there and setting HF_TOKEN, where it asks), and give "
            "the path of the file as the teacher's weights"
        ) from None


def _from_file(path: Path) -> Weights:
    if not path.is_file():
        raise RaptorError(f"{path}: no such file of weights; give the path of one, or pretrained")
    try:
        found = read_state_dict(str(path), use_ema=False, weights_only=True)
    except Exception as error:  # safetensors, torch and pickle each have their own
        raise RaptorError(
            f"{path}: cannot be read as weights ({why_unreadable(error)}); give a .safetensors or "
            ".pth file that holds tensors alone"
        ) from None
    return found


def _fitted(weights: Weights, model: nn.Module, channels: int) -> Weights:
    """The weights by timm's names, at the model's image size and number of channels."""
    weights = _from_transformers(weights)
    weights = _filter_of(model)(weights, model)
    if not model.num_classes:
        weights = {name: w for name, w in weights.items() if not re.match(r"head(_dist)?\.", name)}
    stem = "patch_embed.proj.weight"
    if stem in weights and weights[stem].shape[1] != channels:
        weights[stem] = adapt_input_conv(channels, weights[stem], base_chans=3)
    return weights


def _filter_of(model: nn.Module) -> Callable[[Weights, nn.Module], Weights]:
    """timm's own conversion of foreign layouts, which also resamples position embeddings."""
    if isinstance(model, eva.Eva):
        return eva.checkpoint_filter_fn
    return functools.partial(vision_transformer.checkpoint_filter_fn, adapt_layer_scale=True)


def _from_transformers(weights: Weights) -> Weights:
    """DINOv2 as the library transformers names it -> as its authors do; others as they are."""
    weights = {name.removeprefix("dinov2."): value for name, value in weights.items()}
    if "embeddings.patch_embeddings.projection.weight" not in weights:
        return weights
    renamed: dict[str, Any] = {}
    qkv: dict[str, dict[str, torch.Tensor]] = {}
    for name, value in weights.items():
        part = re.fullmatch(r"(.*)\.attention\.attention\.(query|key|value)\.(\w+)", name)
        if part:
            block, which, kind = part.groups()
            qkv.setdefault(f"{_renamed(block)}.attn.qkv.{kind}", {})[which] = value
        elif not name.startswith(("classifier.", "pooler.")):
            renamed[_renamed(name)] = value
    for name, parts in qkv.items():
        renamed[name] = torch.cat([parts[which] for which in ("query", "key", "value")])
    return renamed


_NAMES = (
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.", ""),  # cls_token, mask_token, register_tokens
    (r"^encoder\.layer\.(\d+)", r"blocks.\1"),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.layer_scale(\d)\.lambda1$", r".ls\1.gamma"),
    (r"\.mlp\.weights_in\.", ".mlp.w12."),
    (r"\.mlp\.weights_out\.", ".mlp.w3."),
    (r"^layernorm\.", "norm."),
)


def _renamed(name: str) -> str:
    return functools.reduce(lambda text, rule: re.sub(*rule, text), _NAMES, name)


def _load(model: nn.Module, weights: Weights, title: str) -> None:
    """All weights of the model and no others; RaptorError with the first that does not fit."""
    own = model.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        found, needed = (
            tuple(some[name].shape) if name in some else "absent" for some in (weights, own)
        )
        if found != needed:
            hint = "head: none" if name.startswith("head") else "the model that they were made for"
            raise RaptorError(f"{title}: {name} is {found}, the model has {needed}; give {hint}")
    model.load_state_dict(weights)
