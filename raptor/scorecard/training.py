"""Claims about how the teacher was trained: stochastic depth, overfitting."""

from __future__ import annotations

from raptor.scorecard.evidence import Evidence
from raptor.scorecard.intervals import mean, theil_sen
from raptor.scorecard.thresholds import OVERFITTED, SEEDS, TEACHERS
from raptor.scorecard.verdicts import Finding, NotTested, Part


def stochastic_depth_helps(evidence: Evidence) -> Finding:
    """Claim 6: with the rate p of stochastic depth the similarity of layers and R² rise.

    Theil–Sen slopes over teachers of different p (means over teachers and seeds at one p), with
    intervals from the exact permutation distribution of Kendall's S: of fewer than five p no
    order is rare enough, and the interval is unbounded.
    """
    table = evidence.table("stochastic_depth")
    by_p = table.groupby("p", sort=True)[["mean_similarity", "r2_mean"]].mean().dropna()
    if len(by_p) < TEACHERS:
        raise NotTested(f"{len(by_p)} rates of stochastic depth, at least {TEACHERS} are needed")
    rates = by_p.index.to_numpy()
    names = {"mean_similarity": "slope of the similarity", "r2_mean": "slope of R²"}
    return Finding(
        "Theil–Sen slope over p with the interval of an exact permutation test",
        tuple(Part(name, theil_sen(rates, by_p[column])) for column, name in names.items()),
        len(by_p),
        "values of p",
        f"with {len(by_p)} values of p no order is significant" if len(by_p) < 5 else "",
    )


def overfitting_lowers_r2(evidence: Evidence) -> Finding:
    """Claim 7: R² at the checkpoint of lowest validation loss exceeds that at the last one.

    Not tested where the validation loss has risen by less than OVERFITTED by then: nothing is
    overfitted. Paired by seed of the student, t interval; all are students of one training.
    """
    table = evidence.table("overfitting").dropna(subset=["r2_mean", "val_loss"])
    losses = table.groupby("epoch", sort=True)["val_loss"].mean()
    if len(losses) < 2:
        raise NotTested(f"R² is known at {len(losses)} checkpoint(s), at least 2 are needed")
    best, last = losses.idxmin(), losses.index[-1]
    rise = losses[last] / losses[best] - 1
    if rise < OVERFITTED:
        raise NotTested(
            f"the validation loss at the end lies {100 * rise:.1f} % above its lowest, less than "
            f"the {100 * OVERFITTED:.0f} % that count as overfitted"
        )
    by_seed = table.pivot_table(index="seed", columns="epoch", values="r2_mean")
    lost = (by_seed[best] - by_seed[last]).dropna()
    return Finding(
        f"R² at epoch {best} (lowest validation loss) minus R² at epoch {last} (loss higher by "
        f"{100 * rise:.0f} %), paired by seed, t interval",
        (Part("R² lost", mean(lost, SEEDS, "pairs of seeds")),),
        len(lost),
        "seeds of the student, of one training of the teacher",
    )
