"""What figures share, where a picture alone would not show that it is wrong."""

import matplotlib.pyplot as plt
import pytest

from raptor.figures.panels import open_towards_one


@pytest.mark.parametrize("looked_at", [False, True])
def test_the_scale_of_r2_ends_near_its_data(looked_at):
    """Also where limits were made before, on a linear scale, with margins beyond 1."""
    figure, axes = plt.subplots()
    axes.plot([1, 8], [0.8, 0.99])
    if looked_at:
        assert axes.get_ylim()[1] > 0.999
    open_towards_one(axes)
    low, high = axes.get_ylim()
    assert 0.75 < low < 0.8
    assert 0.99 < high < 0.995
    plt.close(figure)
