# What a teacher and its Raptors say of every pixel: which class it is of, and how far away.
if DENSE:

    # Check every image of a dense probe, and its target, before hours are spent.
    rule dense_samples:
        output:
            results("data/{task}.csv"),
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

    # Train a linear head on one frozen model, and measure it.
    rule dense_probe:
        input:
            samples=results("data/{task}.csv"),
            weights=results("teachers/{teacher}.safetensors"),
            facts=results("teachers/{teacher}.json"),
            files=lambda wildcards: files_of(wildcards.teacher),
            students=lambda wildcards: dense_of(dense_job(wildcards)),
        output:
            table=results("dense/{task}/{teacher}/{model}.csv"),
            head=results("dense/{task}/{teacher}/{model}.safetensors"),
            head_facts=results("dense/{task}/{teacher}/{model}.json"),
        log:
            results("logs/dense_probe/{task}/{teacher}/{model}.log"),
        benchmark:
            results("benchmarks/dense_probe/{task}/{teacher}/{model}.tsv")
        wildcard_constraints:
            model=r"teacher|\w+/\w+-k\d+/seed\d+",
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
            student=lambda wildcards: list(dense_job(wildcards).student or ()),
            seed=DENSE.seed,
            state=results(".state/dense/{task}/{teacher}/{model}.head"),
            code=script_code("dense_probe"),
        message:
            "Probing {wildcards.task} of {wildcards.teacher}, {wildcards.model}"
        script:
            "../scripts/dense_probe.py"

    # A few images, their truth, and what a teacher and a Raptor say of them.
    rule dense_examples:
        input:
            weights=lambda wildcards: results(f"teachers/{shown(wildcards)[0].teacher}.safetensors"),
            facts=lambda wildcards: results(f"teachers/{shown(wildcards)[0].teacher}.json"),
            files=lambda wildcards: files_of(shown(wildcards)[0].teacher),
            students=lambda wildcards: dense_of(shown(wildcards)[1]),
            heads=lambda wildcards: [
                results(f"dense/{job.path}.safetensors") for job in shown(wildcards)
            ],
            head_facts=lambda wildcards: [
                results(f"dense/{job.path}.json") for job in shown(wildcards)
            ],
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
            student=lambda wildcards: list(shown(wildcards)[1].student),
            images=DENSE.examples,
            code=script_code("dense_examples"),
        message:
            "Taking examples of {wildcards.task}"
        script:
            "../scripts/dense_examples.py"
