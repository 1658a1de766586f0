# What a teacher and its Raptors say of every pixel: which class it is of, and how far away.
DENSE = experiment.dense
DENSE_JOBS = {job.path: job for job in targets.dense_jobs(experiment)}
# The images that a figure shows.
EXAMPLES = {
    f"{task}_panels": [results(f"dense/{task}/examples.npz")]
    for task in (DENSE.probes if DENSE else [])
}


def dense_of(student):
    """The index that holds a student; nothing for the teacher itself."""
    return (
        files_with({student.teacher: [student.student]}, "raptor", ".json")
        if student.student
        else []
    )


def dense_job(wildcards):
    """The model whose head one job trains."""
    return DENSE_JOBS["{task}/{teacher}/{model}".format_map(wildcards)]


def dense_task(task):
    """The parameters that say what a dense probe is and which images it reads."""
    probe = DENSE.probes[task]
    return {
        "data": leaves(experiment.data),
        "probe": leaves(probe),
        "scenes": leaves(DENSE.scenes) if probe.source == "scenes" else None,
    }


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
        threads: 4 if READS_FILES else 1
        resources:
            mem="3GB" if READS_FILES else "1GB",
            runtime=240,
        params:
            task=lambda wildcards: dense_task(wildcards.task),
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
        threads: 1
        resources:
            mem="2GB",
            runtime=lambda wildcards, attempt: 720 * attempt,
            gpu=GPU,
        params:
            task=lambda wildcards: dense_task(wildcards.task),
            student=lambda wildcards: list(dense_job(wildcards).student or ()),
            seed=DENSE.seed,
            state=results(".state/dense/{task}/{teacher}/{model}"),
            code=script_code("dense_probe"),
        message:
            "Probing {wildcards.task} of {wildcards.teacher}, {wildcards.model}"
        script:
            "../scripts/dense_probe.py"


for task in DENSE.probes if DENSE else []:
    SHOWN = targets.dense_examples(experiment, task)

    # A few images, their truth, and what a teacher and a Raptor say of them.
    rule:
        name:
            f"{task}_examples"
        input:
            weights=results(f"teachers/{SHOWN[0].teacher}.safetensors"),
            facts=results(f"teachers/{SHOWN[0].teacher}.json"),
            files=files_of(SHOWN[0].teacher),
            students=dense_of(SHOWN[1]),
            heads=[results(f"dense/{job.path}.safetensors") for job in SHOWN],
            head_facts=[results(f"dense/{job.path}.json") for job in SHOWN],
        output:
            results(f"dense/{task}/examples.npz"),
        log:
            results(f"logs/dense_examples/{task}.log"),
        priority: 20
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem="2GB",
            runtime=30,
            gpu=GPU,
        params:
            task=dense_task(task),
            student=list(SHOWN[1].student),
            images=DENSE.examples,
            code=script_code("dense_examples"),
        message:
            f"Taking examples of {task}"
        script:
            "../scripts/dense_examples.py"
