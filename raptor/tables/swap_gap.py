"""What weights from another phase cost more than weights from the same one, like with like.

Some layers can be replaced by none, and layers of one phase are nearer in depth. So swaps are
compared that replace the same layers, and the distance to the layers whose weights come in is
allowed for: the coefficient of `across` in the least squares fit

    drop = one constant for each set of replaced layers + gap · across + slope · distance.
"""

from __future__ import annotations

import numpy as np
import pandas as pd


def cross_products(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """(S, 2, 2) and (S, 2): products of (across, distance) with themselves and with the drop.

    Of each set of replaced layers, deviations from its own means; `table` has a row per swap
    with `size, targets, kind, distance, drop`. Sets are numbered as they first appear.
    """
    sets = table.groupby(["size", "targets"], sort=False)
    values = pd.DataFrame(
        {
            "across": (table["kind"] == "inter").astype(float),
            "distance": table["distance"],
            "drop": table["drop"],
        }
    )
    apart = values - values.groupby([table["size"], table["targets"]]).transform("mean")
    x_N2, number_N = apart[["across", "distance"]].to_numpy(), sets.ngroup().to_numpy()
    squares, products = np.zeros((sets.ngroups, 2, 2)), np.zeros((sets.ngroups, 2))
    np.add.at(squares, number_N, x_N2[:, :, None] * x_N2[:, None, :])
    np.add.at(products, number_N, x_N2 * apart["drop"].to_numpy()[:, None])
    return squares, products


def gap(squares: np.ndarray, products: np.ndarray) -> np.ndarray:
    """The coefficient of `across`, from products (…, 2, 2) and (…, 2) summed over sets.

    NaN where no set is replaced both from inside and from across.
    """
    own, shared, other = squares[..., 0, 0], squares[..., 0, 1], squares[..., 1, 1]
    alone = other <= 1e-12  # one distance only: nothing to allow for
    least = np.where(alone, own, own * other - shared**2)
    most = np.where(alone, products[..., 0], products[..., 0] * other - shared * products[..., 1])
    known = least > 1e-9 * np.maximum(own * np.where(alone, 1, other), 1e-300)
    return np.divide(most, least, out=np.full(np.shape(most), np.nan), where=known)
