# Tidy tables, from the results of every stage. What each one reads:
CUT = partitioned_teachers(experiment)
UNTRAINED = [
    name
    for name, spec in experiment.teachers.items()
    if isinstance(spec, UntrainedTeacher) or getattr(spec, "weights", None) == "random"
]
STUDENTS = list(experiment.students)
REFERENCE = experiment.figures.fidelity_by_k.reference
PHASES = f"{experiment.swaps.partition}-k{experiment.swaps.k}"  # the cut that contrasts are about


def probes(studies):
    """The tables that hold all students of these studies."""
    return study_files(studies, "probes", ".csv")


def of_each(teachers, path):
    """One file for each of these teachers."""
    return [results(path.format(teacher=teacher)) for teacher in teachers]


MATRICES = experiment.figures.similarity_matrices.teachers or TEACHERS
# The contrast of blocks needs pairs of layers inside a phase and across.
CONTRASTED = [
    name
    for name in CUT
    if name in MATRICES and 1 < experiment.swaps.k < experiment.shape(name).depth
]
CUTS = experiment.figures.maxcut_partitions.teachers or CUT
PARTITIONS = [
    path
    for method in experiment.partition.methods
    for k in experiment.figures.maxcut_partitions.k or experiment.partition.k
    for path in of_each(CUTS, f"partitions/{{teacher}}/{method}-k{k}.csv")
]
REFERENCE_PROBE = {"reference": results(f"probes/{REFERENCE}.csv")} if REFERENCE else {}
FIDELITY = experiment.figures.fidelity_by_k.studies
CURVES = experiment.figures.training_curves.studies
STUDIED = sorted({teacher for grid in experiment.students.values() for teacher in grid.teachers})

TABLE_INPUTS = {
    "teachers": {"probes": of_each(TEACHERS, "probes/{teacher}.csv")},
    "fidelity": {"students": probes(STUDENTS)},
    "layers": {
        "students": [f.removesuffix(".csv") + ".layers.csv" for f in probes(STUDENTS)],
        "baselines": of_each(STUDIED, "probes/{teacher}.layers.csv"),
    },
    "table_partitions": {
        "partitions": PARTITIONS,
        "stability": of_each(CUTS, "partitions/{teacher}/stability.csv"),
        "epsilon": of_each(CUTS, "partitions/{teacher}/epsilon.csv"),
    },
    "table_probes": {
        "students": probes(FIDELITY),
        "probes": of_each(STUDIED, "probes/{teacher}.csv"),
        **REFERENCE_PROBE,
    },
    "similarity_matrices": {
        "similarity": of_each(MATRICES, "similarity/{teacher}.csv"),
        "matrices": of_each(MATRICES, "similarity/{teacher}.npz"),
        "partitions": of_each(CONTRASTED, f"partitions/{{teacher}}/{PHASES}.csv"),
    },
    "maxcut_partitions": {
        "similarity": of_each(CUTS, "similarity/{teacher}.csv"),
        "partitions": PARTITIONS,
        "stability": of_each(CUTS, "partitions/{teacher}/stability.csv"),
        "epsilon": of_each(CUTS, "partitions/{teacher}/epsilon.csv"),
    },
    "fidelity_by_k": {
        "students": probes(FIDELITY),
        "probes": of_each(STUDIED, "probes/{teacher}.csv"),
        **REFERENCE_PROBE,
    },
    "layer_swaps": {
        "swaps": of_each(experiment.swaps.teachers, "interventions/{teacher}.swaps.csv"),
        "samples": results("data/samples.csv"),
    },
    "training_curves": {"students": study_files(CURVES, "raptor", ".json")},
    **COMPARISON_INPUTS,
}
# What a table needs to know beside its files.
TABLE_PARAMS = {
    "similarity_matrices": {"untrained": UNTRAINED},
    "maxcut_partitions": {"measure": experiment.partition.measure},
    "layer_swaps": {"split": experiment.swaps.split},
    "training_curves": {"study": study_rows(CURVES)},
    "fidelity_by_k": {"study": study_rows(FIDELITY), **({} if REFERENCE else {"reference": None})},
    "table_probes": {"study": study_rows(FIDELITY), **({} if REFERENCE else {"reference": None})},
    **COMPARISON_PARAMS,
}

if covered("partition_comparison"):
    COMPARISON = experiment.figures.partition_comparison.studies
    TABLE_INPUTS["partition_comparison"] = {"students": probes(COMPARISON)}
    TABLE_PARAMS["partition_comparison"] = {"study": study_rows(COMPARISON)}

if experiment.branches:
    BRANCHED = experiment.branches.teachers
    SITES = {
        "block": of_each(BRANCHED, "similarity/{teacher}.csv"),
        "attention": of_each(BRANCHED, "branches/{teacher}/attention.csv"),
        "mlp": of_each(BRANCHED, "branches/{teacher}/mlp.csv"),
    }
    TABLE_INPUTS["branch_similarity"] = SITES | {
        "matrices": [
            f"{table.removesuffix('.csv')}.npz" for tables in SITES.values() for table in tables
        ]
    }
    TABLE_PARAMS["branch_similarity"] = {
        "measure": experiment.partition.measure,
        "method": experiment.branches.partition,
        "k": experiment.branches.k,
        "min_size": experiment.partition.min_size,
    }

if experiment.dynamics:
    MOVING = experiment.dynamics.teachers
    MOVEMENT = {
        name: of_each(MOVING, f"dynamics/{{teacher}}/{name}.csv")
        for name in ("images", "pooled", "basins", "trajectories", "perturbation", "dmd")
    }
    # A teacher that is too shallow to be cut is one phase.
    MOVEMENT["partitions"] = of_each(
        [name for name in MOVING if name in CUT],
        f"partitions/{{teacher}}/{experiment.dynamics.partition}-k{experiment.dynamics.k}.csv",
    )
    for target, needed in {
        "directional_convergence": ["images", "basins", "trajectories", "partitions"],
        "angular_speed": ["images", "partitions"],
        "low_rank_updates": ["images", "pooled", "partitions"],
        "dmd_spectrum": ["dmd"],
        "perturbation": ["perturbation", "partitions"],
    }.items():
        TABLE_INPUTS[target] = {name: MOVEMENT[name] for name in needed}
        TABLE_PARAMS[target] = {"untrained": UNTRAINED}

for task in DENSE.probes if DENSE else []:
    TABLE_INPUTS[f"{task}_panels"] = {"examples": EXAMPLES[f"{task}_panels"][0]}

if DENSE:
    TABLE_INPUTS["table_dense"] = {
        task: [results(f"data/{task}.constant.csv")]
        + [results(f"dense/{job.path}.csv") for job in DENSE_JOBS.values() if job.task == task]
        for task in DENSE.probes
    }
    # An untrained teacher -> the one whose architecture it has.
    LIKE = {name: getattr(experiment.teachers[name], "like", "") for name in UNTRAINED}
    TABLE_PARAMS["table_dense"] = {"untrained": LIKE, "reference": REFERENCE}

if experiment.cost:
    TABLE_INPUTS["table_cost"] = {
        "cost": results(f"cost/{experiment.cost.teacher}.csv"),
        "timing": results(f"cost/{experiment.cost.teacher}.timing.csv"),
    }

for target, inputs in TABLE_INPUTS.items():

    # Gather one table: of a figure beside the picture, any other in tables/.
    rule:
        name:
            f"{target}_data" if target in FIGURES + PRINTED else target
        input:
            **inputs,
        output:
            figure(target, "csv") if target in FIGURES else table(target),
        log:
            results(f"logs/tables/{target}.log"),
        priority: 20
        localrule: True
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem=growing(500, "MB"),
            runtime=growing(10),
        params:
            target=target,
            extra=TABLE_PARAMS.get(target, {}),
            code=script_code("table"),
        message:
            f"Gathering the table {target}"
        script:
            "../scripts/table.py"
