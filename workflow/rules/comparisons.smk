# What the figures read that set the same kind of student of several teachers or recipes side by side.
TRAINED = [name for name, spec in experiment.teachers.items() if isinstance(spec, TrainedTeacher)]
COMPARISON_INPUTS = {}
COMPARISON_PARAMS = {}


def compared(target):
    """The students that a figure sets side by side."""
    spec = OPTIONAL[target]
    of_teachers = hasattr(spec, "teachers")
    return students_like(
        experiment,
        teachers=spec.teachers if of_teachers else [spec.teacher],
        recipes=[spec.recipe] if of_teachers else spec.recipes,
        partition=spec.partition,
        k=spec.k,
    )


def of_teachers(target):
    """What is read of each teacher of a figure, and of its students."""
    spec = OPTIONAL[target]
    paths = {
        "similarity": "similarity/{teacher}.csv",
        "matrices": "similarity/{teacher}.npz",
        "partitions": f"partitions/{{teacher}}/{spec.partition}-k{spec.k}.csv",
        "probes": "probes/{teacher}.csv",
    }
    read = {
        name: [results(path.format(teacher=teacher)) for teacher in spec.teachers]
        for name, path in paths.items()
    }
    return read | {"students": files_with(compared(target), "probes", ".csv")}


for target in covered("stochastic_depth", "overfitting", "training_paradigms", "table_ablations"):
    COMPARISON_PARAMS[target] = {"study": rows_of(compared(target))}

if covered("stochastic_depth"):
    names = experiment.figures.stochastic_depth.teachers
    COMPARISON_INPUTS["stochastic_depth"] = of_teachers("stochastic_depth") | {
        "layers": files_with(compared("stochastic_depth"), "probes", ".layers.csv")
    }
    COMPARISON_PARAMS["stochastic_depth"] |= {
        "p": {name: experiment.origin(name).stochastic_depth for name in names},
        "untrained": [name for name in names if name not in TRAINED],
    }

if covered("overfitting"):
    names = experiment.figures.overfitting.teachers
    (trained,) = [name for name in names if name in TRAINED]
    COMPARISON_INPUTS["overfitting"] = of_teachers("overfitting") | {
        "facts": [results(f"teachers/{name}.json") for name in names],
        "history": results(f"teachers/{trained}.history.csv"),
    }

if covered("training_paradigms"):
    COMPARISON_INPUTS["training_paradigms"] = {
        "students": files_with(compared("training_paradigms"), "probes", ".csv"),
        "layers": files_with(compared("training_paradigms"), "probes", ".layers.csv"),
        "baselines": results(f"probes/{experiment.figures.training_paradigms.teacher}.layers.csv"),
    }
    COMPARISON_PARAMS["training_paradigms"] |= {
        "paradigms": {
            name: experiment.recipes[name].paradigm
            for name in experiment.figures.training_paradigms.recipes
        }
    }

if covered("table_ablations"):
    recipes = {
        name: experiment.recipes[name] for name in experiment.figures.table_ablations.recipes
    }
    COMPARISON_INPUTS["table_ablations"] = {
        "students": files_with(compared("table_ablations"), "probes", ".csv")
    }
    COMPARISON_PARAMS["table_ablations"] |= {
        "ingredients": {name: recipe.ingredients for name, recipe in recipes.items()},
        "starts": [
            name for name, recipe in recipes.items() if recipe.initialisation == "phase_mean"
        ],
    }

if covered("saturation"):
    spec = experiment.figures.saturation
    COMPARISON_INPUTS["saturation"] = {
        "students": study_files(spec.studies, "probes", ".csv"),
        "probes": [
            results(f"probes/{teacher}.csv")
            for teacher in dict.fromkeys(
                teacher for study in spec.studies for teacher in experiment.students[study].teachers
            )
        ],
    } | ({"reference": results(f"probes/{spec.reference}.csv")} if spec.reference else {})
    COMPARISON_PARAMS["saturation"] = {"study": study_rows(spec.studies)} | (
        {} if spec.reference else {"reference": None}
    )
