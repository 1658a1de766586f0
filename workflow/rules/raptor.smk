# Raptors: one weight-tied block per phase.


# Train the students of one teacher, recipe and partition, one per seed.
rule raptor:
    input:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
        activations=results("activations/{teacher}.json"),
        partition=results("partitions/{teacher}/{method}-k{k}.csv"),
    output:
        results("raptor/{teacher}/{recipe}/{method}-k{k}/seeds{seeds}.json"),
    log:
        results("logs/raptor/{teacher}/{recipe}/{method}-k{k}/seeds{seeds}.log"),
    benchmark:
        results("benchmarks/raptor/{teacher}/{recipe}/{method}-k{k}/seeds{seeds}.tsv")
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem="1500MB",
        runtime=lambda wildcards, attempt: 720 * attempt,
        gpu=GPU,
    params:
        recipe=lambda wildcards: leaves(experiment.recipes[wildcards.recipe]),
        seed=experiment.seed,
        state=results(".state/raptor/{teacher}/{recipe}/{method}-k{k}/seeds{seeds}"),
        code=script_code("raptor"),
    message:
        "Training Raptors of {wildcards.teacher}: {wildcards.recipe}, "
        "{wildcards.method} k={wildcards.k}, seeds {wildcards.seeds}"
    script:
        "../scripts/raptor.py"
