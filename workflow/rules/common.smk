# The experiment: read, validated before anything else, and turned into file names.
import os
import sys

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.0")

# The package is used from this checkout, here and in every job, installed or not.
sys.path.insert(0, workflow.basedir)
os.environ.update(
    PYTHONPATH=os.pathsep.join(filter(None, [str(workflow.basedir), os.getenv("PYTHONPATH")]))
)

if not workflow.configfiles:

    configfile: "config/laptop.yaml"


import yaml

from raptor.config.load import ConfigError, load
from raptor.config.teachers import CheckpointTeacher, TrainedTeacher, UntrainedTeacher
from raptor.provenance import code_digest
from raptor.targets import partitioned_teachers, student_groups

try:
    experiment = load(config)
except ConfigError as error:
    raise WorkflowError(str(error))

RESULTS = f"results/{experiment.experiment}"
TEACHERS = list(experiment.teachers)
FIGURES = [
    "similarity_matrices",
    "maxcut_partitions",
    "partition_comparison",
    "fidelity_by_k",
    "layer_swaps",
    "training_curves",
]
PRINTED = ["table_partitions", "table_probes"]  # tables with a page and a caption
TABLES = ["teachers", "fidelity", "layers", *PRINTED]
GPU = int(experiment.device == "cuda")


wildcard_constraints:
    teacher=r"\w+",
    recipe=r"\w+",
    method=r"\w+",
    k=r"\d+",
    seeds=r"\d+-\d+",


def results(path):
    """A path of this experiment; wildcards in it stay."""
    return f"{RESULTS}/{path}"


def figure(name, suffix):
    return results(f"figures/{name}.{suffix}")


def table(name):
    return results(f"tables/{name}.csv")


def script_code(name):
    """Digest of an adapter in workflow/scripts and of all the code that it runs."""
    return code_digest(f"workflow/scripts/{name}.py")


def leaves(section):
    """A section of the configuration as plain values, for `params`."""
    return section.model_dump(mode="json")


def is_kind(kind):
    """A wildcard pattern that matches the teachers of one kind, or nothing."""
    names = [name for name, spec in experiment.teachers.items() if isinstance(spec, kind)]
    return "|".join(names) or "(?!)"


def study_files(study, stage, suffix):
    """The files of `stage` that hold the students of a study."""
    return [results(f"{stage}/{group.path}{suffix}") for group in student_groups(experiment, study)]


def dynamics_student(wildcards):
    """The index that holds the Raptor whose dynamics are measured; nothing where none is trained."""
    asked = experiment.dynamics
    wanted = (wildcards.teacher, asked.recipe, asked.partition, asked.k)
    return [
        results(f"raptor/{group.path}.json")
        for group in student_groups(experiment)
        if (group.teacher, group.recipe, group.method, group.k) == wanted and group.first == 0
    ]


def dynamics_phases(wildcards):
    """The partition with the phases; nothing where the teacher is too shallow to be cut."""
    asked = experiment.dynamics
    cut = wildcards.teacher in partitioned_teachers(experiment)
    path = f"partitions/{wildcards.teacher}/{asked.partition}-k{asked.k}.csv"
    return [results(path)] if cut else []


onstart:
    os.makedirs(RESULTS, exist_ok=True)
    with open(results("config.resolved.yaml"), "w") as file:
        yaml.safe_dump(leaves(experiment), file, sort_keys=False)
