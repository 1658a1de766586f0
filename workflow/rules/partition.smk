# Phases: depth cut into segments.


# Every method and k at once, with the stability of each boundary over resamples.
rule partition:
    input:
        results("similarity/{teacher}.npz"),
    output:
        partitions=[
            results(f"partitions/{{teacher}}/{method}-k{k}.csv")
            for method in experiment.partition.methods
            for k in experiment.partition.k
        ],
        stability=results("partitions/{teacher}/stability.csv"),
        epsilon=results("partitions/{teacher}/epsilon.csv"),
    log:
        results("logs/partition/{teacher}.log"),
    benchmark:
        results("benchmarks/partition/{teacher}.tsv")
    priority: 10
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem=growing(1000, "MB"),
        runtime=growing(30),
    params:
        config=leaves(experiment.partition),
        seed=experiment.seed,
        code=script_code("partition"),
    message:
        "Finding the phases of {wildcards.teacher}"
    script:
        "../scripts/partition.py"
