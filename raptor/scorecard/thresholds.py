"""Every number that a verdict depends on, with its source: the paper's claim, or our choice."""

from __future__ import annotations

from raptor.tables import published

# --- the paper's -------------------------------------------------------------------------------

KEPT_AT_LEAST = published.KEPT_AT_LEAST  # k -> share of the teacher's probe accuracy (claim 3)
SIGMAS = published.SIGMAS_ABOVE_RANDOM  # Max-Cut above random contiguous partitions (claim 2)
SPECTRAL_RADIUS = 1.0  # eigenvalues inside the unit circle (claim 17)

# --- ours: where the paper uses a word and no number --------------------------------------------

COLLAPSE = 0.5  # share of the teacher's accuracy lost by teacher forcing alone (claim 4)
REPAIR = 0.5  # share of that loss which autoregression regains (claim 4)
OVERFITTED = 0.05  # relative rise of the validation loss from its lowest (claim 7)
DIP = 0.02  # fall of γ from one layer to the next that still counts as rising (claim 9)
INFLECTION = 1.0  # layers between the inflection and either end of the depth (claim 9)
STEADY = 0.25  # sd of the speed inside phases over its mean: near-stationary (claim 12)
SMALL = 0.1  # largest size of a small perturbation, as a share of the token's norm (claim 15)
HARMLESS = 0.1  # share of the accuracy above chance that a harmless swap may cost (claim 16)
APPLICATIONS = 0.001  # relative difference at which block applications count as equal (claim 18)
# Relative distance from k / L at which block parameters count as k / L (claim 18): the paper's
# own block, with a SwiGLU of hidden width 4D in place of a plain MLP, has a third more.
PARAMETERS = 0.35
LATE = 1 / 3  # share of the layers, the last ones, that are late (claims 13 and 14)

# --- ours: what a test needs at least -----------------------------------------------------------

SEEDS = 3  # students that differ in nothing but the seed
PARTITIONS = 10  # distinct random partitions of one k: at least as many as the paper draws
TEACHERS = 5  # rates of stochastic depth: of fewer, no order is rarer than 2.5 %
IMAGES = 10
SWAPS = 3  # sets of layers swapped
FITS = 3  # linear fits (claim 17)

# --- ours: how intervals are made ---------------------------------------------------------------

CONFIDENCE = 0.95  # of every interval
LEVEL = 0.05  # of the permutation tests, on either side: with few partitions less is not reached
RESAMPLES = 2000  # of a bootstrap over rows of a table
