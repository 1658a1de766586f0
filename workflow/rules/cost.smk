# What a Raptor saves and what it does not.
if experiment.cost:
    COSTED = experiment.cost

    # Parameters, FLOPs, time, memory and bits of one teacher and its Raptors.
    rule cost:
        input:
            weights=results(f"teachers/{COSTED.teacher}.safetensors"),
            facts=results(f"teachers/{COSTED.teacher}.json"),
            activations=results(f"activations/{COSTED.teacher}.json"),
            students=files_with(
                students_like(
                    experiment, [COSTED.teacher], [COSTED.recipe], COSTED.partition, COSTED.k
                ),
                "raptor",
                ".json",
            ),
        output:
            table=results(f"cost/{COSTED.teacher}.csv"),
            timing=results(f"cost/{COSTED.teacher}.timing.csv"),
        log:
            results(f"logs/cost/{COSTED.teacher}.log"),
        benchmark:
            results(f"benchmarks/cost/{COSTED.teacher}.tsv")
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem=memory,
            runtime=growing(60),
            gpu=GPU,
        params:
            config=leaves(COSTED),
            code=script_code("cost"),
        message:
            f"Measuring the cost of {COSTED.teacher} and its Raptors"
        script:
            "../scripts/cost.py"
