"""`raptor plan` against Snakemake's own count of the jobs of an experiment."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from raptor.config.load import load, load_yaml
from raptor.plan import plan

CONFIG = Path(__file__).parents[2] / "config"


def jobs_of_plan(config) -> dict[str, int]:
    return {work.stage: work.jobs for work in plan(config).works if work.jobs}


def by_stage(planned: dict[str, int], stages) -> dict[str, int]:
    """Jobs by the stages of the plan: each target is a rule that draws, and one that gathers."""
    counts: Counter[str] = Counter()
    for rule, jobs in planned.items():
        gathers = rule.endswith("_data") or rule in ("teachers", "fidelity", "layers")
        if rule != "figures":  # the target of all
            counts[rule if rule in stages else "tables" if gathers else "figures"] += jobs
    return counts


@pytest.mark.parametrize(
    "name", ["laptop", "smoke", "cifar100", "fashion", "dinov2", "vits14", "zoo", "my_vit.example"]
)
def test_a_dry_run_needs_no_data_and_has_the_jobs_of_the_plan(name, new_checkout):
    planned = new_checkout().planned("--configfile", f"config/{name}.yaml")
    jobs = jobs_of_plan(load_yaml(CONFIG / f"{name}.yaml"))
    assert by_stage(planned, jobs) == jobs
    assert planned["figures"] == 1


def test_jobs_of_teachers_that_only_some_stage_asks_for(new_checkout):
    """Without students, and shown in few figures or none: similarity and phases on demand alone."""
    checkout = new_checkout()
    raw = yaml.safe_load((CONFIG / "smoke.yaml").read_text())
    raw |= {"experiment": "some", "branches": None, "cost": None}
    del raw["figures"]["saturation"], raw["students"]["saturation"]
    raw["partition"]["k"] = [2, 3, 4]  # more than the shallow teacher has layers
    raw["swaps"]["k"] = 2
    raw["teachers"] |= {
        name: {"kind": "untrained", "like": "vit_p02"} for name in ("bare", "shown", "moving")
    }
    raw["figures"]["maxcut_partitions"] = {"teachers": ["vit"]}
    raw["figures"]["similarity_matrices"] = {"teachers": ["shown", "shallow"]}
    raw["dynamics"]["teachers"] += ["moving", "shallow"]
    raw["dynamics"]["perturbation"]["source_layers"] = [0]  # of a shallow teacher too
    (checkout.path / "config/some.yaml").write_text(yaml.safe_dump(raw))
    jobs = jobs_of_plan(load(raw))
    assert jobs["probe_teacher"] == 8
    assert (jobs["similarity"], jobs["partition"]) == (7, 6)  # not bare; nor shallow's phases
    planned = checkout.planned("--configfile", "config/some.yaml")
    assert by_stage(planned, jobs) == jobs


@pytest.mark.parametrize("mode", ["store", "stream"])
def test_jobs_that_share_a_store(mode, new_checkout):
    """Three for each teacher, and its manifest's; none where no state is stored."""
    checkout = new_checkout()
    raw = yaml.safe_load((CONFIG / "smoke.yaml").read_text())
    raw["activations"] = {"mode": mode, "chunk_images": 32, "shard_images": 64, "jobs": 3}
    (checkout.path / "config/shared.yaml").write_text(yaml.safe_dump(raw))
    jobs = jobs_of_plan(load(raw))
    planned = checkout.planned("--configfile", "config/shared.yaml")
    assert by_stage(planned, jobs) == jobs
    assert planned["activations"] == len(raw["teachers"])
    parts = 3 * len(raw["teachers"]) if mode == "store" else 0
    assert planned.get("activation_shards", 0) == parts


def test_the_folder_of_the_images_is_changed_alone(new_checkout):
    """As README says: `--config` replaces this key of the section and no other."""
    checkout = new_checkout()
    given = ["--configfile", "config/fashion.yaml", "--config", "data={root: /elsewhere}"]
    failed = checkout.snakemake("samples", *given, check=False)
    assert "data.root: folder /elsewhere does not exist" in failed.stdout + failed.stderr
    resolved = yaml.safe_load((checkout.path / "results/fashion/config.resolved.yaml").read_text())
    as_written = load_yaml(CONFIG / "fashion.yaml").data.model_dump(mode="json")
    assert resolved["data"] == as_written | {"root": "/elsewhere"}
