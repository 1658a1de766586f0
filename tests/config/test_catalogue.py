"""The catalogue of timm's plain Vision Transformers agrees with timm."""

from __future__ import annotations

import subprocess
import sys

import pytest
import timm

from raptor.config.catalogue import _catalogue, look_up
from raptor.teachers.catalogue import describe

FAMILIES = [
    "vit_small_patch14_dinov2",
    "vit_base_patch14_reg4_dinov2",
    "vit_giant_patch14_reg4_dinov2",  # SwiGLU
    "vit_small_patch16_dinov3",
    "vit_base_patch16_clip_224",
    "vit_base_patch16_siglip_224",
    "deit_tiny_distilled_patch16_224",
    "eva02_tiny_patch14_224",
    "aimv2_large_patch14_224",
    "test_vit",
]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_row_is_what_timm_builds(name):
    assert look_up(name) == describe(name)


def test_it_is_of_the_installed_timm_and_holds_every_model():
    catalogue = _catalogue()
    assert catalogue["timm"] == timm.__version__
    listed = {*catalogue["plain"], *(n for names in catalogue["refused"].values() for n in names)}
    assert listed == set(timm.list_models())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("swin_tiny_patch4_window7_224", "not a plain Vision Transformer, its tokens"),
        ("vit_small_patch16_18x2_224", "attention and MLP run side by side"),
        ("vit_smal_patch14_dinov2", "did you mean vit_small_patch14_dinov2?"),
    ],
)
def test_what_is_refused_says_why(name, said):
    with pytest.raises(ValueError, match=said):
        look_up(name)


def test_tags_of_weights_are_left_to_timm():
    assert look_up("vit_small_patch14_dinov2.lvd142m").depth == 12


def test_looking_up_imports_neither_torch_nor_timm():
    code = (
        "import sys; from raptor.config.catalogue import look_up; look_up('test_vit');"
        "print({'torch', 'timm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
