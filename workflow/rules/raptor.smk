# Raptors: one weight-tied block per phase.


# Train students of one teacher and recipe: several partitions and seeds in one job.
rule raptor:
    input:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
        activations=results("activations/{teacher}.json"),
        partitions=lambda wildcards: [
            results(f"partitions/{wildcards.teacher}/{name}.csv")
            for name in student_job(wildcards).partitions
        ],
    output:
        results("raptor/{teacher}/{recipe}/part{part}.json"),
    log:
        results("logs/raptor/{teacher}/{recipe}/part{part}.log"),
    benchmark:
        results("benchmarks/raptor/{teacher}/{recipe}/part{part}.tsv")
    # The longest first: what is left at the end keeps every core busy. No more than 1 in all.
    priority: lambda wildcards: training_steps(wildcards) / 1e9
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem="1500MB",
        runtime=lambda wildcards, attempt: 720 * attempt,
        gpu=GPU,
    params:
        recipe=lambda wildcards: leaves(experiment.recipes[wildcards.recipe]),
        students=lambda wildcards: [list(student) for student in student_job(wildcards).students],
        seed=experiment.seed,
        state=results(".state/raptor/{teacher}/{recipe}"),
        code=script_code("raptor"),
    message:
        "Training Raptors of {wildcards.teacher}: {wildcards.recipe}, part {wildcards.part}"
    script:
        "../scripts/raptor.py"
