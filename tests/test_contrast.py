"""Block contrast against plain loops and a regression."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from raptor.contrast import block_contrast


@pytest.mark.parametrize("labels", [(1, 1, 2, 2, 2, 3), (1, 2, 1, 3, 3, 2), (1, 2, 2, 2, 2, 2)])
def test_plain_contrast_by_loops(labels):
    stack = np.random.default_rng(1).random((4, 6, 6))
    stack += stack.swapaxes(1, 2)
    pairs = list(combinations(range(6), 2))
    for matrix, found in zip(stack, block_contrast(stack, labels), strict=True):
        within = [matrix[a, b] for a, b in pairs if labels[a] == labels[b]]
        across = [matrix[a, b] for a, b in pairs if labels[a] != labels[b]]
        assert found == pytest.approx(sum(within) / len(within) - sum(across) / len(across))


@pytest.mark.parametrize("labels", [(1, 1, 1), (1, 2, 3)])
def test_one_kind_of_pair_has_no_contrast(labels):
    for matched in (False, True):
        assert np.isnan(block_contrast(np.ones((3, 3)), labels, matched=matched))


def test_matched_contrast_is_the_coefficient_of_a_regression_on_phase_and_distance():
    matrix, labels = np.random.default_rng(2).random((7, 7)), (1, 1, 1, 2, 2, 3, 3)
    symmetric = matrix + matrix.T
    a, b = np.triu_indices(7, 1)
    same = np.equal(*(np.array(labels)[i] for i in (a, b)))
    design = np.column_stack([same, *(b - a == distance for distance in range(1, 7))])
    coefficient = np.linalg.lstsq(design.astype(float), symmetric[a, b], rcond=None)[0][0]
    assert block_contrast(symmetric, labels, matched=True) == pytest.approx(coefficient)
