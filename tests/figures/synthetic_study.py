"""The files that the stages leave behind, made up but shaped as they are, for the figures."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from raptor import tables
from raptor.config.analysis import PartitionConfig
from raptor.files import sha256
from raptor.phases import write_partitions
from raptor.scorecard import scorecard

STUDENT = ["teacher", "recipe", "partition", "k", "seed"]
METHODS = ("maxcut", "maxcut_exact", "uniform", "random", "random_scattered")
MEASURES = ("cosine", "cosine_all_tokens", "mean_squared_difference", "cka")
QUALITY = dict(zip(METHODS, (0.005, 0.008, 0.0, -0.004, -0.02), strict=True))
MOVEMENT = {  # what the figures of the dynamics are drawn from
    "directional_convergence": ["images", "basins", "trajectories"],
    "angular_speed": ["images"],
    "low_rank_updates": ["images", "pooled"],
    "dmd_spectrum": ["dmd"],
    "perturbation": ["perturbation"],
}
IMAGES, TEST_IMAGES, CLASSES = 3750, 1000, 10


@dataclass
class Study:
    """Where everything is, below `root`; call the methods in the order of the pipeline."""

    root: Path
    teachers: tuple[str, ...] = ("vit", "vit_p02", "untrained")
    depth: int = 8
    k: tuple[int, ...] = (2, 3, 4)
    seeds: int = 3
    registers: bool = True
    recipe: str = "phase_mean"
    measures: tuple[str, ...] = MEASURES

    def path(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def paths(self, pattern: str) -> list[Path]:
        """Files of the pattern, in the order of the teachers."""
        found = [
            path
            for teacher in self.teachers
            for path in sorted(self.root.glob(pattern.format(teacher=teacher)))
        ]
        assert found, pattern
        return found

    def similarity(self) -> None:
        for rank, teacher in enumerate(self.teachers):
            rng = np.random.default_rng(rank)
            steps = np.full(self.depth, 0.02 if teacher == "untrained" else 0.08)
            if teacher != "untrained":
                steps[[1, self.depth // 2, self.depth - 2]] = 0.3
            arrays, rows = {}, []
            for scale, measure in enumerate(self.measures, start=2):
                draws = [_matrix(scale / 2 * steps * rng.normal(1, s, self.depth), measure)
                         for s in [0.0, *[0.2] * 40]]  # fmt: skip
                arrays[measure], arrays[f"{measure}_bootstrap"] = draws[0], np.stack(draws[1:])
                low, high = np.percentile(draws[1:], [2.5, 97.5], axis=0)
                rows += [
                    (teacher, measure, a + 1, b + 1, draws[0][a, b], low[a, b], high[a, b], IMAGES)
                    for a, b in itertools.product(range(self.depth), repeat=2)
                ]
            np.savez(self.path(f"similarity/{teacher}.npz"), **arrays)
            keys = ["teacher", "measure", "layer_a", "layer_b"]
            columns = [*keys, "value", "ci_low", "ci_high", "n"]
            table = pd.DataFrame(rows, columns=columns).assign(n_units=IMAGES)
            table.to_csv(self.path(f"similarity/{teacher}.csv"), index=False)

    def branches(self) -> None:
        """Like the states', with boundaries elsewhere; `similarity` comes first."""
        for teacher in self.teachers:
            for rank, branch in enumerate(("attention", "mlp"), start=5):
                draws = {}
                rng = np.random.default_rng(rank)
                steps = rng.uniform(0.05, 0.4, self.depth)
                rows = []
                for measure in self.measures:
                    some = [_matrix(steps * rng.normal(1, s, self.depth), measure)
                            for s in [0.0, *[0.2] * 40]]  # fmt: skip
                    draws |= {measure: some[0], f"{measure}_bootstrap": np.stack(some[1:])}
                    rows += [
                        (teacher, measure, a + 1, b + 1, value, value - 0.01, value + 0.01, IMAGES)
                        for (a, b), value in np.ndenumerate(some[0])
                    ]
                np.savez(self.path(f"branches/{teacher}/{branch}.npz"), **draws)
                keys = ["teacher", "measure", "layer_a", "layer_b"]
                columns = [*keys, "value", "ci_low", "ci_high", "n"]
                table = pd.DataFrame(rows, columns=columns).assign(n_units=IMAGES)
                table.to_csv(self.path(f"branches/{teacher}/{branch}.csv"), index=False)

    def tabulate_branches(self, ks: list[int]) -> None:
        sites = {
            "block": self.paths("similarity/{teacher}.csv"),
            "attention": self.paths("branches/{teacher}/attention.csv"),
            "mlp": self.paths("branches/{teacher}/mlp.csv"),
        }
        tables.branch_similarity(
            **sites,
            matrices=[path.with_suffix(".npz") for paths in sites.values() for path in paths],
            measure="cosine",
            method="maxcut",
            k=ks,
            min_size=1,
            output=self.path("figures/branch_similarity.csv"),
        )

    def cost(self) -> None:
        """The teacher `vit` and its Raptors; `tables.table_cost` joins the two files."""
        fixed, timed = [], []
        for k in (None, *self.k):
            share = 1.0 if k is None else 1.33 * k / self.depth
            names = {"model": "teacher" if k is None else "raptor", "teacher": "vit"}
            names |= {"recipe": None, "partition": None, "k": k}
            names |= {} if k is None else {"recipe": self.recipe, "partition": "maxcut"}
            bits = int(32 * 150_000 * share)
            row = {"depth": self.depth, "parameters": int(150_000 * share)}
            row |= {"parameters_share": share, "block_applications": self.depth, "flops": 8.1e6}
            row |= {"description_bits": bits, "levin_bits": bits + np.log2(self.depth)}
            fixed.append(names | row | {"training_steps": 1298, "images": 64})
            row = {"latency_ms": 12.3, "latency_sd": 0.4, "activation_memory_mb": 3.1}
            row |= {
                "peak_memory_mb": 3.1 + bits / 8 / 2**20,
                "device": "cpu",
                "threads": 1,
                "n": 50,
            }
            row |= {"training_seconds": np.nan if k is None else 61.2, "n_trained": self.seeds}
            row |= {"training_seconds_sd": 1.5 if k and self.seeds > 1 else np.nan}
            timed.append(names | row)
        paths = {"cost": self.path("cost/vit.csv"), "timing": self.path("cost/vit.timing.csv")}
        pd.DataFrame(fixed).to_csv(paths["cost"], index=False)
        pd.DataFrame(timed).to_csv(paths["timing"], index=False)
        tables.table_cost(**paths, output=self.path("figures/table_cost.csv"))

    def partitions(self) -> None:
        config = PartitionConfig(
            methods=list(METHODS), k=list(self.k), min_size=1, epsilon=[0.2, 0.1, 0.05]
        )
        for teacher in self.teachers:
            write_partitions(
                matrices=self.path(f"similarity/{teacher}.npz"),
                config=config,
                teacher=teacher,
                outputs={
                    (method, k): self.path(f"partitions/{teacher}/{method}-k{k}.csv")
                    for method in METHODS
                    for k in self.k
                },
                stability=self.path(f"partitions/{teacher}/stability.csv"),
                epsilon=self.path(f"partitions/{teacher}/epsilon.csv"),
                seed=0,
            )

    def probes(self, shallow: bool = True) -> None:
        names = [*self.teachers, *(["shallow"] if shallow else [])]
        for rank, teacher in enumerate(names):
            accuracy = {"shallow": 0.925, "untrained": 0.31}.get(teacher, 0.962 - 0.003 * rank)
            row = {"teacher": teacher, "accuracy": accuracy, "accuracy_head": accuracy - 0.004}
            row |= {"n_test": TEST_IMAGES, "parameters": 160_000, "blocks_parameters": 150_000}
            row |= {"r2_identity": -1.7, "r2_layer_mean": 0.21, "r2_linear": 0.58}
            pd.DataFrame([row]).to_csv(self.path(f"probes/{teacher}.csv"), index=False)
            layers = [
                (teacher, baseline, layer, tokens, row[f"r2_{baseline}"] - 0.01 * layer)
                for baseline in ("identity", "layer_mean", "linear")
                for tokens in ("all", *self.tokens)
                for layer in range(1, self.depth + 1)
            ]
            columns = ["teacher", "baseline", "layer", "tokens", "r2"]
            table = pd.DataFrame(layers, columns=columns)
            table.to_csv(self.path(f"probes/{teacher}.layers.csv"), index=False)

    def dynamics(self, raptors: tuple[str, ...] = ("vit",), images: int = 12) -> None:
        """Six tables per teacher, of its Raptor too where it is one of `raptors`."""
        for teacher in self.teachers:
            rng, tables = np.random.default_rng(len(teacher)), {}
            for model in ("teacher", *(["raptor"] if teacher in raptors else [])):
                for name, rows in self._movement(rng, images).items():
                    rows = rows.assign(teacher=teacher, model=model)
                    tables.setdefault(name, []).append(rows)
            for name, parts in tables.items():
                path = self.path(f"dynamics/{teacher}/{name}.csv")
                pd.concat(parts).to_csv(path, index=False)

    def _movement(self, rng, images: int) -> dict[str, pd.DataFrame]:
        layers, half = range(self.depth + 1), self.depth / 2
        by_image = pd.MultiIndex.from_product(
            [range(images), layers, ("all", *self.tokens)], names=["image", "layer", "tokens"]
        ).to_frame(index=False)
        n, layer = len(by_image), by_image["layer"]
        rise = 1 / (1 + np.exp(half - layer))
        by_image["label"] = by_image["image"] % CLASSES
        by_image["direction"] = rise + rng.normal(0, 0.02, n)
        by_image["norm"] = np.exp(0.3 * layer) * rng.uniform(0.9, 1.1, n)
        moving = {"speed": 0.3 + 0.4 * (layer == 1), "coherence": 0.4 + 0.5 * rise}
        moving |= {"stable_rank": 2 - rise, "effective_rank": 4 - 2 * rise}
        moving |= {"participation_ratio": 3 - 1.5 * rise}
        for column, mean in moving.items():
            by_image[column] = (mean + rng.normal(0, 0.03, n)).where(layer > 0)
        ranks = ["stable_rank", "effective_rank", "participation_ratio"]
        by_image.loc[by_image["tokens"] == "cls", ranks] = np.nan
        pooled = by_image[layer > 0].groupby(["layer", "tokens"], as_index=False)[ranks].mean()
        basins = pd.DataFrame({"layer": layers, "within_angle": 0.3, "n_train": 60})
        basins["between_angle"] = 0.3 + 0.1 * basins["layer"]
        basins["nearest_centroid_accuracy"] = 0.5 + 0.4 * basins["layer"] / self.depth
        paths = pd.MultiIndex.from_product([range(CLASSES), layers], names=["label", "layer"])
        paths = paths.to_frame(index=False).assign(n=2)
        paths["x"] = np.cos(paths["label"]) * paths["layer"] / self.depth
        paths["y"] = np.sin(paths["label"]) * paths["layer"] / self.depth
        return {
            "images": by_image,
            "pooled": pooled.fillna(1.2).assign(n=images),
            "basins": basins.assign(n_test=images),
            "trajectories": paths,
            "perturbation": self._noise(rng, images),
            "dmd": self._modes(rng, images),
        }

    def _noise(self, rng, images: int) -> pd.DataFrame:
        rows = [
            (image, source, layer, size, tokens, size * np.exp(-0.1 * (layer - source)))
            for source in range(self.depth)
            for size in (0.01, 0.1)
            for layer in range(source, self.depth + 1)
            for image in range(images)
            for tokens in self.tokens
        ]
        columns = ["image", "source_layer", "layer", "relative_size", "tokens", "deviation"]
        table = pd.DataFrame(rows, columns=columns)
        table["deviation"] *= rng.lognormal(0, 0.02, len(table))
        return table

    def _modes(self, rng, images: int) -> pd.DataFrame:
        rows = []
        for tokens, phase in itertools.product(self.tokens, range(1, self.k[-1] + 1)):
            modulus = np.sort([2.5, *rng.uniform(0.3, 1.1, 3)])[::-1]
            turn = rng.uniform(-0.3, 0.3, 4)
            names = {"tokens": tokens, "phase": phase, "first": 2 * phase - 1, "last": 2 * phase}
            for mode, (size, angle) in enumerate(zip(modulus, turn, strict=True), start=1):
                half_life = np.log(0.5) / np.log(size) if size < 1 else np.inf
                row = {"mode": mode, "real": size * np.cos(angle), "imag": size * np.sin(angle)}
                rows.append(names | row | {"modulus": size, "half_life": half_life})
        fit = {
            "spectral_radius": 2.5,
            "nearest_to_one": 0.1,
            "residual": 0.02,
            "residual_persistence": 0.4,
            "rank": 4,
        }
        return pd.DataFrame(rows).assign(**fit, n_train=60, n_test=images)

    def tabulate_dynamics(self, phases: bool = True) -> None:
        shared = {"untrained": ["untrained"]}
        cuts = self.paths(f"partitions/{{teacher}}/maxcut-k{self.k[-1]}.csv") if phases else []
        for target, names in MOVEMENT.items():
            given = {name: self.paths(f"dynamics/{{teacher}}/{name}.csv") for name in names}
            given |= {} if target == "dmd_spectrum" else {"partitions": cuts}
            output = self.path(f"figures/{target}.csv")
            getattr(tables, target)(**given, **shared, output=output)

    @property
    def tokens(self) -> tuple[str, ...]:
        return ("cls", "registers", "patches") if self.registers else ("cls", "patches")

    def students(
        self, methods: tuple[str, ...] = ("maxcut",), *, seeds: int | None = None,
        teachers: tuple[str, ...] = ("vit",), stages: tuple[str, ...] = ("stage1", "stage2"),
    ) -> None:  # fmt: skip
        for teacher in teachers:
            rows, entries = [], []
            for method, k in itertools.product(methods, self.k):
                rng = np.random.default_rng(k + 10 * METHODS.index(method))
                own = range(seeds or self.seeds)
                rows += [self._student(rng, teacher, method, k, seed) for seed in own]
                for seed in own:
                    entry = {"teacher": teacher, "recipe": self.recipe, "method": method, "k": k}
                    entry |= {"seed": seed, "file": f"{method}-k{k}/seed{seed}.safetensors"}
                    history = self.path(
                        f"raptor/{teacher}/{self.recipe}/{entry['file']}"
                    ).with_suffix(".history.csv")
                    self._history(rng, k, stages).to_csv(history, index=False)
                    entries.append(entry | {"history_sha256": sha256(history)})
            part = f"{teacher}/{self.recipe}/part1"
            pd.DataFrame(rows).to_csv(self.path(f"probes/{part}.csv"), index=False)
            layers = pd.concat([self._layers(row) for row in rows])
            layers.to_csv(self.path(f"probes/{part}.layers.csv"), index=False)
            self.path(f"raptor/{part}.json").write_text(json.dumps({"students": entries}))

    def comparison(self, recipes: tuple[str, ...], k: int = 3) -> None:
        """Students of one partition, of each teacher and recipe: one file each."""
        for teacher, recipe in itertools.product(self.teachers, recipes):
            rng = np.random.default_rng([len(teacher), len(recipe)])
            rows = [self._student(rng, teacher, "maxcut", k, seed) for seed in range(self.seeds)]
            rows = [row | {"recipe": recipe} for row in rows]
            pd.DataFrame(rows).to_csv(self.path(f"probes/{teacher}/{recipe}/part1.csv"))
            layers = pd.concat([self._layers(row, rng) for row in rows])
            layers.to_csv(self.path(f"probes/{teacher}/{recipe}/part1.layers.csv"))

    def facts(self, epochs: dict[str, int]) -> None:
        """What the JSON beside each teacher says of it, and the history of the last."""
        for teacher, epoch in epochs.items():
            train = 2.3 * np.exp(-epoch / 15)
            loss = {"train": train, "val": train + 0.2 + 0.01 * epoch, "test": train + 0.3}
            accuracy = {split: float(np.exp(-value)) for split, value in loss.items()}
            found = {"epoch": epoch, "loss": loss, "accuracy": accuracy}
            found["images"] = {"train": 300, "val": 250, "test": TEST_IMAGES}
            self.path(f"teachers/{teacher}.json").write_text(json.dumps(found))
        rows = [
            {"step": 4 * epoch, "epoch": epoch, "loss": 2.3 * np.exp(-epoch / 15)}
            | {"val_loss": 2.3 * np.exp(-epoch / 15) + 0.2 + 0.01 * epoch}
            | {"val_accuracy": 0.8 - 0.7 * np.exp(-epoch / 15)}
            for epoch in range(3, max(epochs.values()) + 1, 3)
        ]
        pd.DataFrame(rows).to_csv(self.path(f"teachers/{teacher}.history.csv"), index=False)

    def _student(self, rng, teacher, method, k, seed) -> dict[str, object]:
        quality = 0.93 + 0.045 * (1 - 2.0 ** (2 - k)) + QUALITY[method] + rng.normal(0, 0.003)
        share = min(1.0, quality + 0.02)
        row = {"teacher": teacher, "recipe": self.recipe, "partition": method, "k": k, "seed": seed}
        row |= {"segments": "1-4 5-8", "parameters": 19_000 * k, "steps": 800}
        row |= {"r2_mean": quality + 0.02, "r2_cls": quality - 0.03, "r2_patch": quality + 0.025}
        row["r2_registers"] = quality + 0.03 if self.registers else np.nan
        row |= {"accuracy": 0.962 * share, "accuracy_head": 0.958 * (share - 0.03)}
        row |= {"accuracy_probe_frozen": 0.95 * share, "recovered": share}
        row |= {"accuracy_teacher": 0.962, "accuracy_teacher_head": 0.958}
        row |= {"recovered_head": share - 0.03, "epsilon_max": 9.1, "epsilon_relative": 0.31}
        return row | {"n_test": TEST_IMAGES}

    def _layers(self, row: dict[str, object], rng=None) -> pd.DataFrame:
        rng = rng or np.random.default_rng(0)
        keys = {key: row[key] for key in ["teacher", "recipe", "partition", "k", "seed"]}
        return pd.DataFrame(
            [
                keys
                | {
                    "layer": layer,
                    "tokens": tokens,
                    "r2": 0.99 - 0.01 * layer * rng.uniform(0.9, 1.1),
                }
                | {
                    "epsilon": rng.uniform(0.9, 1.1) * layer,
                    "epsilon_low": 0.9 * layer,
                    "epsilon_high": 1.1 * layer,
                }
                | {"norm": 10.0 * layer}
                for tokens in ("all", *self.tokens)
                for layer in range(1, self.depth + 1)
            ]
        )

    def _history(self, rng, k: int, stages: tuple[str, ...]) -> pd.DataFrame:
        rows = []
        for stage in stages:
            for step in range(50, 801, 50):
                done = step / 800
                start = 0.3 if stage == "stage1" else 0.9
                loss = (start * np.exp(-4 * done) + 0.05 / k) * rng.lognormal(0, 0.1)
                forcing = max(0.0, 1 - done / 0.25) if stage == "stage1" else 0.0
                r2 = 0.98 - 0.1 / k - start * 1.2 * np.exp(-5 * done) + rng.normal(0, 0.004)
                rows += [
                    (stage, step, "loss", "", "", loss),
                    (stage, step, "lambda", "", "", forcing),
                ]
                rows += [(stage, step, "r2", "", "", r2)]
                rows += [
                    (stage, step, "error", layer, tokens, loss * layer)
                    for layer in range(1, self.depth + 1)
                    for tokens in self.tokens
                ]
        return pd.DataFrame(rows, columns=["stage", "step", "metric", "layer", "tokens", "value"])

    def swaps(self, teachers: tuple[str, ...] = ("vit",), samples: int = 60) -> None:
        half = self.depth // 2
        for teacher in teachers:
            rng, rows = np.random.default_rng(7), []
            for size, kind in itertools.product((1, 2, 3), ("intra", "inter")):
                for _ in range(min(samples, 40 * size)):
                    first = int(rng.integers(1, half))
                    far = (
                        1
                        + int(rng.integers(0, 2))
                        + (2 if kind == "inter" else 0) * int(rng.integers(0, 2))
                    )
                    loss = size * (0.06 if kind == "intra" else 0.2) * rng.gamma(2, 0.5)
                    accuracy = max(0.08, 0.958 - loss)
                    rows.append(
                        {"teacher": teacher, "partition": "maxcut", "k": 3}
                        | {"segments": "1-2 3-4 5-8", "size": size, "kind": kind}
                        | {"targets": str([first]), "sources": str([first + far])}
                        | {
                            "accuracy": accuracy,
                            "accuracy_teacher": 0.958,
                            "drop": 0.958 - accuracy,
                        }
                        | {"relative_error": loss, "distance": float(far), "n": TEST_IMAGES}
                    )
            table = pd.DataFrame(rows)
            table.to_csv(self.path(f"interventions/{teacher}.swaps.csv"), index=False)
        samples_table = pd.DataFrame({"split": ["train"] * 20 + ["test"] * 40})
        samples_table["index"] = range(60)
        samples_table["label"] = [0] * 20 + [i % CLASSES for i in range(40)]
        samples_table.to_csv(self.path("data/samples.csv"), index=False)


def _matrix(steps: np.ndarray, measure: str) -> np.ndarray:
    """Similarity that falls with the distance walked from layer to layer."""
    walked = np.cumsum(np.abs(steps))
    apart = np.abs(walked[:, None] - walked)
    return apart if measure == "mean_squared_difference" else np.exp(-apart)


def tabulate(study: Study) -> None:
    """Every table of `study`, as the rules make them."""
    study.cost()
    study.branches()
    study.tabulate_branches([k for k in study.k if k > 1])  # one phase has no boundary to share
    study.dynamics()
    study.tabulate_dynamics()
    other = Study(study.root / "partitions_study", k=study.k, depth=study.depth)
    other.students(METHODS, seeds=4 if study.seeds > 1 else 1)
    phases = {
        "partitions": study.paths("partitions/{teacher}/*-k*.csv"),
        "stability": study.paths("partitions/{teacher}/stability.csv"),
        "epsilon": study.paths("partitions/{teacher}/epsilon.csv"),
    }
    fidelity = {
        "students": students_of(study),
        "study": study_of(study),
        "probes": [study.path("probes/vit.csv")],
        "reference": study.path("probes/shallow.csv"),
    }
    similarity = study.paths("similarity/{teacher}.csv")
    cuts = study.paths(f"partitions/{{teacher}}/maxcut-k{study.k[-1]}.csv")
    matrices = study.paths("similarity/{teacher}.npz")
    inputs = {
        "similarity_matrices": {"similarity": similarity, "matrices": matrices}
        | {"partitions": cuts, "untrained": ["untrained"]},
        "maxcut_partitions": {"similarity": similarity, "measure": "cosine", **phases},
        "partition_comparison": {"students": students_of(other), "study": study_of(other)},
        "fidelity_by_k": fidelity,
        "layer_swaps": {"swaps": study.paths("interventions/{teacher}.swaps.csv")}
        | {"samples": study.path("data/samples.csv"), "split": "test"},
        "training_curves": {"students": study.paths("raptor/{teacher}/*/part*.json")}
        | {"study": study_of(study)},
        "table_partitions": phases,
        "table_probes": fidelity,
    }
    inputs |= side_by_side(study)
    for target, given in inputs.items():
        getattr(tables, target)(**given, output=study.path(f"figures/{target}.csv"))
    scorecard(
        teacher="vit",
        untrained="untrained" if "untrained" in study.teachers else None,
        recipe=study.recipe,
        k=study.k[-1],
        min_size=1,
        measure=study.measures[0],
        matrices=matrices,
        tables={
            "similarity": study.path("figures/similarity_matrices.csv"),
            "partitions": phases["partitions"],
            "fidelity": students_of(study),
            "teachers": [study.path("probes/vit.csv")],
            "comparison": study.path("figures/partition_comparison.csv"),
            "swaps": study.path("figures/layer_swaps.csv"),
        },
        output=study.path("figures/scorecard.csv"),
    )


LADDER = {
    "forcing": [],
    "annealed": ["autoregressive"],
    "scaled": ["autoregressive", "depth_scaling"],
    "start": ["autoregressive", "depth_scaling", "stage2"],
}
PARADIGMS = {"distilled": "output", "forcing": "teacher_forcing", "annealed": "autoregressive"}


def side_by_side(study: Study) -> dict[str, dict]:
    """The inputs of the tables that compare teachers and recipes, in a study of their own."""
    own = Study(
        study.root / "side_by_side",
        teachers=("vit", "vit_p03", "untrained"),
        k=(3,),
        depth=study.depth,
        seeds=study.seeds,
        registers=study.registers,
        measures=study.measures,
    )
    own.similarity()
    own.partitions()
    own.probes()
    own.comparison(tuple(dict.fromkeys([*LADDER, *PARADIGMS])))
    own.facts({"untrained": 0, "vit": 20, "vit_p03": 60})

    def students(recipes, teachers=own.teachers) -> dict:
        files = [own.path(f"probes/{t}/{r}/part1.csv") for t in teachers for r in recipes]
        rows = pd.concat(pd.read_csv(file) for file in files)
        return {"students": files} | {"study": rows[STUDENT].to_numpy().tolist()}

    def layers(found: dict) -> dict:
        return found | {"layers": [file.with_suffix(".layers.csv") for file in found["students"]]}

    teachers = {
        "similarity": own.paths("similarity/{teacher}.csv"),
        "matrices": own.paths("similarity/{teacher}.npz"),
        "partitions": own.paths("partitions/{teacher}/maxcut-k3.csv"),
        "probes": own.paths("probes/{teacher}.csv"),
        **students(["start"]),
    }
    facts = {"facts": own.paths("teachers/{teacher}.json")}
    return {
        "stochastic_depth": layers(teachers)
        | {"p": {"vit": 0.0, "vit_p03": 0.3, "untrained": 0.0}, "untrained": ["untrained"]},
        "overfitting": teachers | facts | {"history": own.path("teachers/vit_p03.history.csv")},
        "training_paradigms": layers(students(PARADIGMS, ["vit"]))
        | {"paradigms": PARADIGMS, "baselines": own.path("probes/vit.layers.csv")},
        "table_ablations": students(LADDER, ["vit"]) | {"ingredients": LADDER, "starts": ["start"]},
        "saturation": {
            "students": students_of(study),
            "study": study_of(study),
            "probes": [study.path("probes/vit.csv")],
            "reference": study.path("probes/shallow.csv"),
        },
    }


def students_of(study: Study):
    found = study.paths("probes/{teacher}/*/part*.csv")
    return [path for path in found if not path.name.endswith(".layers.csv")]


def study_of(study: Study) -> list[list]:
    """All of its students."""
    table = pd.concat(pd.read_csv(path) for path in students_of(study))
    return table[STUDENT].to_numpy().tolist()
