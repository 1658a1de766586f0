# Block-Recurrent Dynamics in Vision Transformers, from teachers to figures.
#
#   snakemake                    every figure and table of config/laptop.yaml
#   snakemake fidelity_by_k      one figure
#   snakemake --configfile config/mine.yaml
#
# The method, in the order in which it runs:


include: "workflow/rules/common.smk"  # the validated experiment, and the names of its files
include: "workflow/rules/teachers.smk"  # real images; Vision Transformers trained on them
include: "workflow/rules/activations.smk"  # every state a_0..a_L of every image, stored once
include: "workflow/rules/similarity.smk"  # how alike the layers are
include: "workflow/rules/partition.smk"  # phases: Max-Cut of depth into contiguous segments
include: "workflow/rules/raptor.smk"  # one weight-tied block per phase, trained in closed loop
include: "workflow/rules/probes.smk"  # what the students keep: accuracy, R², ε
include: "workflow/rules/dense.smk"  # and of every pixel: its class, its depth
include: "workflow/rules/interventions.smk"  # layer swaps inside and across phases
include: "workflow/rules/comparisons.smk"  # teachers and recipes side by side
include: "workflow/rules/dynamics.smk"  # how states move over depth, and what noise does
include: "workflow/rules/branches.smk"  # what attention and MLP add, beside the states
include: "workflow/rules/cost.smk"  # what a Raptor saves and what it does not
include: "workflow/rules/tables.smk"  # tidy tables over the whole experiment
include: "workflow/rules/scorecard.smk"  # the paper's claims, tested on these tables
include: "workflow/rules/figures.smk"  # and the pictures drawn from them
include: "workflow/rules/report.smk"  # one page with all of it


report: "workflow/report/workflow.rst"


# Every figure and table of the paper that this experiment covers.
rule figures:
    default_target: True
    input:
        [figure(name, "png") for name in FIGURES],
        [table(name) for name in TABLES],
        [results(f"tables/{name}.html") for name in PRINTED],
        [results(f"dynamics/{name}/images.csv") for name in MOVING],
