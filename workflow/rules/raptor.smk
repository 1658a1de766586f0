# Raptors: one weight-tied block per phase.


# Train students of one teacher: several recipes, partitions and seeds in one job.
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
        results("raptor/{teacher}/{study}-{part}.json"),
    log:
        results("logs/raptor/{teacher}/{study}-{part}.log"),
    benchmark:
        results("benchmarks/raptor/{teacher}/{study}-{part}.tsv")
    # The longest first: what is left at the end keeps every core busy. No more than 1 in all.
    priority: lambda wildcards: training_steps(wildcards) / 1e9
    conda:
        "../../environment.yml"
    threads: experiment.gpus
    resources:
        mem=memory,
        runtime=growing(720),
        gpu=GPU * experiment.gpus,
    params:
        recipes=lambda wildcards: {
            name: leaves(experiment.recipes[name]) for name in student_job(wildcards).recipes
        },
        students=lambda wildcards: [list(student) for student in student_job(wildcards).students],
        seed=experiment.seed,
        autocast=experiment.autocast,
        state=results(".state/raptor/{teacher}"),
        code=script_code("raptor"),
    message:
        "Training Raptors of {wildcards.teacher}: {wildcards.study}, part {wildcards.part}"
    script:
        "../scripts/raptor.py"
