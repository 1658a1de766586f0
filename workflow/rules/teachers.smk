# Images, and the Vision Transformers under study.


# Fix the order of every split, and check every image before hours are spent.
rule samples:
    output:
        results("data/samples.csv"),
    log:
        results("logs/samples.log"),
    benchmark:
        results("benchmarks/samples.tsv")
    priority: 10
    conda:
        "../../environment.yml"
    threads: 4 if READS_FILES else 1
    resources:
        mem=growing(3000 if READS_FILES else 1000, "MB"),
        runtime=growing(240 if READS_FILES else 30),
    params:
        data=leaves(experiment.data),
        code=script_code("samples"),
    message:
        "Reading and checking the images"
    script:
        "../scripts/samples.py"


# Train a ViT from scratch.
rule train_teacher:
    input:
        results("data/samples.csv"),
    output:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
        history=results("teachers/{teacher}.history.csv"),
    log:
        results("logs/train_teacher/{teacher}.log"),
    benchmark:
        results("benchmarks/train_teacher/{teacher}.tsv")
    wildcard_constraints:
        teacher=teachers_of("train_teacher"),
    priority: 10
    conda:
        "../../environment.yml"
    threads: experiment.gpus
    resources:
        mem=memory,
        runtime=growing(240),
        gpu=GPU * experiment.gpus,
    params:
        spec=lambda wildcards: leaves(experiment.teachers[wildcards.teacher]),
        data=leaves(experiment.data),
        autocast=experiment.autocast,
        state=results(".state/teachers/{teacher}"),
        code=script_code("train_teacher"),
    message:
        "Training teacher {wildcards.teacher}"
    script:
        "../scripts/train_teacher.py"


# Keep the initial weights of a ViT: the control that has no training.
rule untrained_teacher:
    input:
        results("data/samples.csv"),
    output:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
    log:
        results("logs/untrained_teacher/{teacher}.log"),
    benchmark:
        results("benchmarks/untrained_teacher/{teacher}.tsv")
    wildcard_constraints:
        teacher=teachers_of("untrained_teacher"),
    priority: 10
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem=memory,
        runtime=growing(30),
        gpu=GPU,
    params:
        spec=lambda wildcards: architecture(wildcards.teacher),
        data=leaves(experiment.data),
        code=script_code("untrained_teacher"),
    message:
        "Initialising teacher {wildcards.teacher}"
    script:
        "../scripts/untrained_teacher.py"


# Take a ViT as it was at an epoch of its training.
rule checkpoint_teacher:
    input:
        lambda wildcards: results(f"teachers/{experiment.teachers[wildcards.teacher].of}.json"),
    output:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
    log:
        results("logs/checkpoint_teacher/{teacher}.log"),
    benchmark:
        results("benchmarks/checkpoint_teacher/{teacher}.tsv")
    wildcard_constraints:
        teacher=teachers_of("checkpoint_teacher"),
    priority: 10
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem=memory,
        runtime=growing(30),
    params:
        epoch=lambda wildcards: experiment.teachers[wildcards.teacher].epoch,
        code=script_code("checkpoint_teacher"),
    message:
        "Taking teacher {wildcards.teacher} from a checkpoint"
    script:
        "../scripts/checkpoint_teacher.py"


# Take a ViT from timm: pretrained, from a file, or with random weights.
rule timm_teacher:
    input:
        samples=results("data/samples.csv"),
        files=lambda wildcards: files_of(wildcards.teacher),
    output:
        weights=results("teachers/{teacher}.safetensors"),
        facts=results("teachers/{teacher}.json"),
    log:
        results("logs/timm_teacher/{teacher}.log"),
    benchmark:
        results("benchmarks/timm_teacher/{teacher}.tsv")
    wildcard_constraints:
        teacher=teachers_of("timm_teacher"),
    priority: 10
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem=memory,
        runtime=growing(30),
    params:
        spec=lambda wildcards: leaves(timm_spec(wildcards.teacher)),
        data=leaves(experiment.data),
        code=script_code("timm_teacher"),
    message:
        "Taking teacher {wildcards.teacher} from timm"
    script:
        "../scripts/timm_teacher.py"
