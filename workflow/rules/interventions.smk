# What a teacher does when its layers are exchanged.


# Replace 1, 2, 3 layers by others of the same phase or of another one.
rule swaps:
    input:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
        activations=results("activations/{teacher}.json"),
        head=lambda wildcards: head_of(wildcards.teacher),
        partition=results(
            f"partitions/{{teacher}}/{experiment.swaps.partition}-k{experiment.swaps.k}.csv"
        ),
    output:
        results("interventions/{teacher}.swaps.csv"),
    log:
        results("logs/swaps/{teacher}.log"),
    benchmark:
        results("benchmarks/swaps/{teacher}.tsv")
    priority: 5
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem=memory,
        runtime=growing(240),
        gpu=GPU,
    params:
        config=lambda wildcards: leaves(experiment.swaps) | {"teachers": [wildcards.teacher]},
        seed=experiment.seed,
        code=script_code("swaps"),
    message:
        "Swapping layers of {wildcards.teacher}"
    script:
        "../scripts/swaps.py"
