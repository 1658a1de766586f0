# What a teacher and its Raptors say of every pixel: which class it is of, and how far away.
if DENSE:

    # Check every image of a dense probe, and its target, before hours are spent; and find what
    # the same answer for every pixel would reach.
    rule dense_samples:
        output:
            samples=results("data/{task}.csv"),
            constant=results("data/{task}.constant.csv"),
        log:
            results("logs/dense_samples/{task}.log"),
        priority: 10
        conda:
            "../../environment.yml"
        threads: lambda wildcards: dense_threads(wildcards.task)
        resources:
            mem=growing(3000, "MB"),
            runtime=growing(240),
        params:
            task=lambda wildcards: dense_task(wildcards.task, whole=False),
            code=script_code("dense_samples"),
        message:
            "Reading and checking the images for {wildcards.task}"
        script:
            "../scripts/dense_samples.py"

    # Train linear heads on frozen models, a teacher or Raptors of it, and measure them.
    rule dense_probe:
        input:
            samples=results("data/{task}.csv"),
            weights=results("teachers/{teacher}.safetensors"),
            facts=results("teachers/{teacher}.json"),
            files=lambda wildcards: files_of(wildcards.teacher),
            students=lambda wildcards: files_with(dense_job(wildcards).students, "raptor", ".json"),
        output:
            results("dense/{task}/{teacher}/heads-{part}.csv"),
        log:
            results("logs/dense_probe/{task}/{teacher}-{part}.log"),
        benchmark:
            results("benchmarks/dense_probe/{task}/{teacher}-{part}.tsv")
        priority: 5
        conda:
            "../../environment.yml"
        threads: lambda wildcards: dense_threads(wildcards.task)
        resources:
            mem=memory,
            runtime=growing(1440),
            gpu=GPU,
        params:
            task=lambda wildcards: dense_task(wildcards.task),
            models=lambda wildcards: [list(model or ()) for model in dense_job(wildcards).models],
            seed=DENSE.seed,
            state=results(".state/dense/{task}/{teacher}"),
            code=script_code("dense_probe"),
        message:
            "Probing {wildcards.task} of {wildcards.teacher}, part {wildcards.part}"
        script:
            "../scripts/dense_probe.py"

    # A few images, their truth, and what a teacher and a Raptor say of them.
    rule dense_examples:
        input:
            weights=results(f"teachers/{SHOWN_TEACHER}.safetensors"),
            facts=results(f"teachers/{SHOWN_TEACHER}.json"),
            files=files_of(SHOWN_TEACHER),
            students=files_with({SHOWN_TEACHER: [SHOWN_STUDENT]}, "raptor", ".json"),
            heads=shown_tables,
        output:
            results("dense/{task}/examples.npz"),
        log:
            results("logs/dense_examples/{task}.log"),
        priority: 20
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem=growing(2000, "MB"),
            runtime=growing(30),
            gpu=GPU,
        params:
            task=lambda wildcards: dense_task(wildcards.task),
            student=list(SHOWN_STUDENT),
            images=DENSE.examples,
            code=script_code("dense_examples"),
        message:
            "Taking examples of {wildcards.task}"
        script:
            "../scripts/dense_examples.py"
