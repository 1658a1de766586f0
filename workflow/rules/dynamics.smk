# How states move over depth, the teacher's and its Raptor's.
# Measured of all of these, also of those that no figure and no claim reads.
MOVING = experiment.dynamics.teachers if experiment.dynamics else []

if experiment.dynamics is not None:

    # Directions, updates, basins, perturbations and modes of one teacher and its Raptor.
    rule dynamics:
        input:
            weights=results("teachers/{teacher}.safetensors"),
            facts=results("teachers/{teacher}.json"),
            activations=results("activations/{teacher}.json"),
            students=dynamics_student,
            partition=dynamics_phases,
        output:
            images=results("dynamics/{teacher}/images.csv"),
            pooled=results("dynamics/{teacher}/pooled.csv"),
            basins=results("dynamics/{teacher}/basins.csv"),
            trajectories=results("dynamics/{teacher}/trajectories.csv"),
            perturbation=results("dynamics/{teacher}/perturbation.csv"),
            dmd=results("dynamics/{teacher}/dmd.csv"),
        log:
            results("logs/dynamics/{teacher}.log"),
        benchmark:
            results("benchmarks/dynamics/{teacher}.tsv")
        priority: 5
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem=memory,
            runtime=growing(240),
            gpu=GPU,
        params:
            config=lambda wildcards: leaves(experiment.dynamics) | {"teachers": [wildcards.teacher]},
            seed=experiment.seed,
            code=script_code("dynamics"),
        message:
            "Measuring the dynamics of {wildcards.teacher}"
        script:
            "../scripts/dynamics.py"
