# The paper's claims, each with an effect, an interval and a verdict.
# The subject: the first teacher and recipe of the study in which Raptors are compared by k.
SUBJECT = experiment.students[FIDELITY[0]]
JUDGED, BARE = targets.judged_teachers(experiment)  # and its control, untrained
PAIR = [name for name in (JUDGED, BARE) if name]
# What the claims are tested on, by the names in raptor/scorecard/tidy.py. A table that an
# experiment does not make is left out, and the claims that need it are not tested.
EVIDENCE = {
    "similarity": of_each([JUDGED], "similarity/{teacher}.csv"),
    "partitions": [
        path
        for method in experiment.partition.methods
        for k in experiment.partition.k
        for path in of_each(PAIR, f"partitions/{{teacher}}/{method}-k{k}.csv")
    ],
    "fidelity": table("fidelity"),
    "teachers": table("teachers"),
    "swaps": figure("layer_swaps", "csv"),
    **{
        name: table(f"table_{name}") for name in ("ablations", "cost") if f"table_{name}" in PRINTED
    },
    **{
        evidence: figure(name, "csv")
        for evidence, name in {
            "comparison": "partition_comparison",
            "stochastic_depth": "stochastic_depth",
            "overfitting": "overfitting",
        }.items()
        if name in FIGURES
    },
    **{
        name: results(f"dynamics/{JUDGED}/{name}.csv")
        for name in ("images", "perturbation", "dmd")
        if experiment.dynamics is not None and JUDGED in experiment.dynamics.teachers
    },
}


# Test every claim; a claim without the tables that it needs is not tested.
rule scorecard_data:
    input:
        **EVIDENCE,
        matrices=of_each(PAIR, "similarity/{teacher}.npz"),
    output:
        table("scorecard"),
    log:
        results("logs/tables/scorecard.log"),
    priority: 20
    localrule: True
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem=growing(1000, "MB"),
        runtime=growing(10),
    params:
        subject={
            "teacher": JUDGED,
            "untrained": BARE,
            "recipe": SUBJECT.recipes[0],
            "k": experiment.swaps.k,
            "min_size": experiment.partition.min_size,
            "measure": experiment.partition.measure,
        },
        code=script_code("scorecard"),
    message:
        "Testing the paper's claims"
    script:
        "../scripts/scorecard.py"
