# Every state of every image, stored once.


# Write some of the shards, where `activations.jobs` of these share them.
rule activation_shards:
    input:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
        samples=results("data/samples.csv"),
    output:
        results("activations/{teacher}/part-{part}-of-{parts}.json"),
    log:
        results("logs/activations/{teacher}/part-{part}-of-{parts}.log"),
    benchmark:
        results("benchmarks/activations/{teacher}/part-{part}-of-{parts}.tsv")
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
        config=STATES,
        store=lambda wildcards: experiment.store(wildcards.teacher),
        manifest=results("activations/{teacher}.json"),
        code=script_code("activation_shards"),
    message:
        "Extracting the states of {wildcards.teacher}, part {wildcards.part} of {wildcards.parts}"
    script:
        "../scripts/activation_shards.py"


# Write what is not written of a_0..a_L of all images; the manifest is the output, the store lies
# beside it.
rule activations:
    input:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
        samples=results("data/samples.csv"),
        parts=shard_records,
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
        config=STATES,
        store=lambda wildcards: experiment.store(wildcards.teacher),
        code=script_code("activations"),
    message:
        "Extracting the states of {wildcards.teacher}"
    script:
        "../scripts/activations.py"
