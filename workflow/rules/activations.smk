# Every state of every image, stored once.


# Write a_0..a_L of all images; the manifest is the output, the store lies beside it.
rule activations:
    input:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
        samples=results("data/samples.csv"),
    output:
        results("activations/{teacher}.json"),
    log:
        results("logs/activations/{teacher}.log"),
    benchmark:
        results("benchmarks/activations/{teacher}.tsv")
    priority: 10
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem=memory,
        runtime=growing(240),
        gpu=GPU,
    params:
        data=lambda wildcards: leaves(experiment.images(wildcards.teacher)),
        config=leaves(experiment.activations),
        code=script_code("activations"),
    message:
        "Extracting the states of {wildcards.teacher}"
    script:
        "../scripts/activations.py"
