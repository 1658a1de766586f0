"""The paper's small-scale study, without its data: what would run, and whether the plan knows."""

from raptor.config.load import load_yaml
from raptor.plan import plan


def test_a_dry_run_needs_no_data_and_has_the_jobs_of_the_plan(new_checkout):
    checkout = new_checkout()
    planned = checkout.planned("--configfile", "config/cifar100.yaml")
    assert planned["samples"] == planned["figures"] == 1
    works = {work.stage: work.jobs for work in plan(load_yaml("config/cifar100.yaml")).works}
    assert {stage: planned[stage] for stage in works} == works
    assert planned["checkpoint_teacher"] == 5
    assert {"branch_similarity", "table_cost", "fidelity_by_k"} < set(planned)
