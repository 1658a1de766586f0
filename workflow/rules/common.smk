# The experiment: read, validated before anything else, and turned into file names.
import os
import shutil
import sys
from glob import glob
from pathlib import Path

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

from raptor import slurm, targets
from raptor.config.dense import DenseProbe
from raptor.config.load import ConfigError, load, refuse_repeated_keys
from raptor.config.teachers import Architecture, TimmTeacher, TrainedTeacher, UntrainedTeacher
from raptor.errors import RaptorError, of_system
from raptor.files import digest, replacing
from raptor.plan import store_grid
from raptor.provenance import code_digest, git_commit
from raptor.student import Student
from raptor.targets import (
    partitioned_teachers,
    student_jobs,
    students_like,
    study_students,
)
from raptor.training.finished import remove_finished

os.environ.setdefault("RAPTOR_COMMIT", git_commit())

try:
    for file in workflow.configfiles:
        refuse_repeated_keys(file)
    experiment = load(config)
except ConfigError as error:
    raise WorkflowError(str(error))

RESULTS = f"results/{experiment.experiment}"
TEACHERS = list(experiment.teachers)
PRETRAINED = [name for name, spec in experiment.teachers.items() if isinstance(spec, TimmTeacher)]
OPTIONAL = targets.optional(experiment)


def covered(*names):
    """Those of these targets that the experiment describes."""
    return targets.covered(experiment, names)


FIGURES = covered(*targets.FIGURES)
# Tables with a page and a caption.
PRINTED = covered(*targets.PRINTED)
TABLES = [*targets.TABLES, *PRINTED]
# With `auto` a GPU that is there will be used, and must not be used by two jobs at once.
GPU = int(
    experiment.device == "cuda"
    or (experiment.device == "auto" and shutil.which("nvidia-smi") is not None)
)
# Whether each image is a file of its own, to be decoded.
READS_FILES = experiment.data.source in ("imagenet", "image_folder")
# With random crops a model runs over the images in each epoch, and files are decoded meanwhile.
RANDOM_CROPS = experiment.probes.classification.crops == "random"
PROBE_THREADS = 4 if READS_FILES and RANDOM_CROPS else 1
PROBE_MINUTES = 1440 if RANDOM_CROPS else 240
# Whether every stage that reads states runs the teacher for them.
STREAMED = experiment.activations.mode == "stream"


wildcard_constraints:
    teacher=r"\w+",
    study=r"\w+",
    part=r"\d+",
    parts=r"\d+",
    task="segmentation|depth",


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


def growing(amount, unit=None):
    """A resource of which each attempt at a job asks for more than the one before."""
    return lambda wildcards, attempt: f"{amount * attempt}{unit}" if unit else amount * attempt


# Images whose states are in memory at once: a batch, or a row of chunks.
IMAGES_AT_ONCE = max(
    experiment.activations.chunk_images,
    experiment.similarity.batch_images,
    experiment.dynamics.batch_images if experiment.dynamics else 1,
    *(
        stage.batch_size
        for recipe in experiment.recipes.values()
        for stage in (recipe.stage1, recipe.stage2)
        if stage is not None
    ),
)


def memory(wildcards, attempt):
    """Of a job that handles states: python and torch, and 16 times those of a batch in float32.

    Sixteen: batches made ahead, and what training keeps of a batch for the way back.
    """
    teacher = wildcards.get("teacher") or next(iter(experiment.teachers))
    images, states, tokens, width = store_grid(experiment, teacher).shape
    batch = 4 * IMAGES_AT_ONCE * states * tokens * width
    return f"{(1500 + 16 * batch // 10**6) * attempt}MB"


def leaves(section):
    """A section of the configuration as plain values, for `params`."""
    return section.model_dump(mode="json")


# What states are kept, and how; not where, which has a parameter of its own, or by how many jobs.
STATES = experiment.activations.model_dump(mode="json", exclude={"store", "jobs"})


def shard_records(wildcards):
    """What each job has written, where several share the shards of a store."""
    jobs = 0 if STREAMED or experiment.activations.jobs == 1 else experiment.activations.jobs
    parts = [f"part-{part}-of-{jobs}" for part in range(jobs)]
    return [results(f"activations/{wildcards.teacher}/{part}.json") for part in parts]


MADE_BY = targets.teachers_by_rule(experiment)


def teachers_of(rule):
    """A wildcard pattern that matches the teachers that a rule makes, or nothing."""
    return "|".join(MADE_BY[rule]) or "(?!)"


def architecture(teacher):
    """What the initial weights of a teacher follow from."""
    spec = experiment.origin(teacher)
    return spec.model_dump(mode="json", include=set(Architecture.model_fields))


def timm_spec(teacher):
    """A teacher from timm; an untrained one has random weights, and no head."""
    spec = experiment.origin(teacher)
    if teacher not in PRETRAINED:
        spec = spec.model_copy(update={"weights": "random", "head": "none"})
    return spec


def present(files):
    """Those that are there; of one that is not, the job says in a sentence what to do."""
    return [file for file in files if os.path.exists(file)]


def files_of(teacher):
    """The files that a teacher is made of, where it is timm's."""
    return present(timm_spec(teacher).files.values()) if teacher in MADE_BY["timm_teacher"] else []


def published_head(teacher):
    """The file of a linear head that a teacher from timm is given, or nothing."""
    files = timm_spec(teacher).files if teacher in MADE_BY["timm_teacher"] else {}
    return present([files["head"]]) if "head" in files else []


def head_of(teacher):
    """What classifies where a teacher has no head of its own: a published one, or its probe."""
    if teacher not in MADE_BY["timm_teacher"] or timm_spec(teacher).head == "own":
        return []
    return published_head(teacher) or [results(f"probes/{teacher}.safetensors")]


JOBS = {job.path: job for job in student_jobs(experiment)}


def student_job(wildcards):
    """The students that one job trains or probes."""
    return JOBS["{teacher}/{study}-{part}".format_map(wildcards)]


def training_steps(wildcards):
    """Optimiser steps of one job, over all its students."""
    recipes = [experiment.recipes[student.recipe] for student in student_job(wildcards).students]
    stages = [stage for recipe in recipes for stage in (recipe.stage1, recipe.stage2)]
    return sum(stage.steps for stage in stages if stage is not None)


def study_files(studies, stage, suffix):
    """The files of `stage` that hold the students of these studies, among others."""
    return files_with(study_students(experiment, studies), stage, suffix)


def study_rows(studies):
    """Teacher, recipe, method, k and seed of each student of these studies."""
    return rows_of(study_students(experiment, studies))


def files_with(students, stage, suffix):
    """The files of `stage` that hold these students, among others."""
    return [results(f"{stage}/{job.path}{suffix}") for job in student_jobs(experiment, students)]


def rows_of(students):
    """Teacher, recipe, method, k and seed of each of these students."""
    return [[teacher, *student] for teacher, some in students.items() for student in some]


def dynamics_student(wildcards):
    """The index that holds the Raptor whose dynamics are measured; nothing where none is trained."""
    asked = experiment.dynamics
    first = Student(asked.recipe, asked.partition, asked.k, seed=0)
    return files_with({wildcards.teacher: [first]}, "raptor", ".json")


def dynamics_phases(wildcards):
    """The partition with the phases; nothing where the teacher is too shallow to be cut."""
    asked = experiment.dynamics
    cut = wildcards.teacher in partitioned_teachers(experiment)
    path = f"partitions/{wildcards.teacher}/{asked.partition}-k{asked.k}.csv"
    return [results(path)] if cut else []


DENSE = experiment.dense
DENSE_JOBS = {job.path: job for job in targets.dense_jobs(experiment)}
# The images that a figure shows.
EXAMPLES = {
    f"{task}_panels": [results(f"dense/{task}/examples.npz")]
    for task in (DENSE.probes if DENSE else [])
}


def dense_job(wildcards):
    """The models whose heads one job trains."""
    return DENSE_JOBS["{task}/{teacher}/heads-{part}".format_map(wildcards)]


# The teacher and the Raptor of it whose dense probes are shown.
SHOWN_TEACHER, SHOWN_STUDENT = targets.dense_examples(experiment) if DENSE else (None, None)


def shown_tables(wildcards):
    """The tables of the jobs that train the heads of the two that are shown."""
    return [
        results(f"dense/{job.path}.csv")
        for job in DENSE_JOBS.values()
        if (job.task, job.teacher) == (wildcards.task, SHOWN_TEACHER)
        and not {None, SHOWN_STUDENT}.isdisjoint(job.models)
    ]


def dense_threads(task):
    """Images that are files are decoded while the model runs."""
    return 1 if DENSE.probes[task].source == "scenes" else 4


OF_TRAINING = set(DenseProbe.model_fields) - {"train_images"}


def dense_task(task, *, whole=True):
    """The parameters that say what a dense probe is, or only what it is asked of which images."""
    probe = DENSE.probes[task]
    composed = probe.source == "scenes"
    return {
        "name": task,
        "data": leaves(experiment.data.only("digits" if composed else probe.source)),
        "probe": probe.model_dump(mode="json", exclude=None if whole else OF_TRAINING),
        "scenes": leaves(DENSE.scenes) if composed else None,
    }


onsuccess:
    remove_finished(Path(results(".state")))


onstart:
    try:
        with replacing(results("config.resolved.yaml")) as temporary:
            temporary.write_text(yaml.safe_dump(leaves(experiment), sort_keys=False))
    except RaptorError as error:
        raise WorkflowError(str(error))
    except OSError as error:
        raise WorkflowError(str(of_system(error) or error))
    if workflow.executor_plugin.name == "slurm":
        scripts = sorted(glob("workflow/scripts/*.py", root_dir=workflow.basedir))
        try:
            slurm.take_over(
                workflow.scheduler._executor,
                experiment=experiment.experiment,
                content=digest([leaves(experiment), code_digest(*scripts)]),
                logs=results("logs/slurm"),
            )
        except RaptorError as error:
            raise WorkflowError(str(error))
