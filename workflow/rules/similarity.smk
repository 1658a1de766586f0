# How alike the layers of a teacher are.


# Four measures of layer-by-layer similarity, with a bootstrap over images.
rule similarity:
    input:
        results("activations/{teacher}.json"),
    output:
        table=results("similarity/{teacher}.csv"),
        matrices=results("similarity/{teacher}.npz"),
    log:
        results("logs/similarity/{teacher}.log"),
    benchmark:
        results("benchmarks/similarity/{teacher}.tsv")
    priority: 10
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem=memory,
        runtime=growing(120),
        gpu=GPU * STREAMED,
    params:
        config=leaves(experiment.similarity),
        streamed=STREAMED,
        code=script_code("similarity"),
    message:
        "Comparing the layers of {wildcards.teacher}"
    script:
        "../scripts/similarity.py"
