# What the two branches of each block add.


# Similarity of the attention outputs, and of the MLP outputs, of every two layers.
rule branches:
    input:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
        activations=results("activations/{teacher}.json"),
    output:
        attention=results("branches/{teacher}/attention.csv"),
        attention_matrices=results("branches/{teacher}/attention.npz"),
        mlp=results("branches/{teacher}/mlp.csv"),
        mlp_matrices=results("branches/{teacher}/mlp.npz"),
    log:
        results("logs/branches/{teacher}.log"),
    benchmark:
        results("benchmarks/branches/{teacher}.tsv")
    priority: 5
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem=memory,
        runtime=growing(240),
        gpu=GPU,
    params:
        config=leaves(experiment.similarity),
        code=script_code("branches"),
    message:
        "Comparing the branches of {wildcards.teacher}"
    script:
        "../scripts/branches.py"
