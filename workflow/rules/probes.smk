# What the students keep of their teacher.


# Fit the teacher's linear probe, and measure the trivial baselines of R².
rule probe_teacher:
    input:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
        activations=results("activations/{teacher}.json"),
        head=lambda wildcards: published_head(wildcards.teacher),
    output:
        table=results("probes/{teacher}.csv"),
        layers=results("probes/{teacher}.layers.csv"),
        weights=results("probes/{teacher}.safetensors"),
    log:
        results("logs/probe_teacher/{teacher}.log"),
    benchmark:
        results("benchmarks/probe_teacher/{teacher}.tsv")
    priority: 5
    conda:
        "../../environment.yml"
    threads: PROBE_THREADS
    resources:
        mem=memory,
        runtime=growing(PROBE_MINUTES),
        gpu=GPU,
    params:
        config=experiment.probes.model_dump(mode="json", exclude={"bootstrap"}),
        state=results(".state/probes/{teacher}/teacher"),
        code=script_code("probe_teacher"),
    message:
        "Probing teacher {wildcards.teacher}"
    script:
        "../scripts/probe_teacher.py"


# Accuracy, R² per layer and token type, and ε of the students of one job.
rule probe_students:
    input:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
        activations=results("activations/{teacher}.json"),
        probe=results("probes/{teacher}.safetensors"),
        head=lambda wildcards: head_of(wildcards.teacher),
        teacher_probe=results("probes/{teacher}.csv"),
        students=results("raptor/{teacher}/{study}-{part}.json"),
    output:
        table=results("probes/{teacher}/{study}-{part}.csv"),
        layers=results("probes/{teacher}/{study}-{part}.layers.csv"),
    log:
        results("logs/probe_students/{teacher}/{study}-{part}.log"),
    benchmark:
        results("benchmarks/probe_students/{teacher}/{study}-{part}.tsv")
    priority: 5
    conda:
        "../../environment.yml"
    threads: PROBE_THREADS
    resources:
        mem=memory,
        runtime=growing(PROBE_MINUTES),
        gpu=GPU,
    params:
        config=leaves(experiment.probes),
        state=results(".state/probes/{teacher}"),
        code=script_code("probe_students"),
    message:
        "Probing Raptors of {wildcards.teacher}: {wildcards.study}, part {wildcards.part}"
    script:
        "../scripts/probe_students.py"
