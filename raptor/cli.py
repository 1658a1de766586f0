"""The command `raptor`; also `python -m raptor`."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from raptor.config.experiment import Experiment
from raptor.config.load import load_yaml
from raptor.errors import RaptorError
from raptor.flops import teacher_flops
from raptor.plan import TFLOPS, Plan, Work, plan

FREE = 0.8  # of the disk that is free: what a store may take of it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; a fault that a user can mend is one sentence on stderr and status 1."""
    parser = argparse.ArgumentParser(prog="raptor", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_plan(commands)
    _add_doctor(commands)
    _add_import(commands)
    _add_export(commands)
    given = parser.parse_args(arguments)
    try:
        given.run(given)
    except (RaptorError, OSError) as error:
        print(f"raptor: {error}", file=sys.stderr)
        return 1
    return 0


def _add_plan(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "plan", help="what an experiment will cost", description="What an experiment will cost."
    )
    command.add_argument("config", help="a YAML file such as config/laptop.yaml")
    speed = command.add_mutually_exclusive_group()
    speed.add_argument(
        "--tflops",
        type=_tflops,
        default=TFLOPS,
        help="effective 10¹² FLOP a second of the machine (%(default)s: an assumption for float32 "
        "on an H100)",
    )
    speed.add_argument(
        "--measure", action="store_true", help="measure it here, in some training steps"
    )
    command.set_defaults(run=_plan)


def _add_doctor(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "doctor",
        help="whether an experiment can run here",
        description="Look whether an experiment can run here: its images, weights, disk and "
        "device. One line for each check; status 1 if one is a fault.",
    )
    command.add_argument("config", help="a YAML file such as config/laptop.yaml")
    command.add_argument(
        "--profile", type=Path, help="a profile for SLURM, such as profiles/slurm, looked at too"
    )
    command.set_defaults(run=_doctor)


def _add_import(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "import",
        help="a Raptor or block that the authors' code saved",
        description="Make a Raptor of this project (.safetensors and .json) from one that the "
        "authors' code saved, a pickled raptor.Raptor or block.Block. No code from the file is "
        "run. A block alone becomes a Raptor of one block that makes all layers of the teacher; "
        "its method rollout(state, first, last) runs it over the layers it was trained for.",
    )
    command.add_argument("file", type=Path, help="a .pt file of the authors' code")
    command.add_argument(
        "--teacher",
        type=Path,
        required=True,
        help="the .safetensors of the teacher that it reconstructs: the file does not say how "
        "many layers that has; width and heads must be the same",
    )
    command.add_argument(
        "--output",
        type=Path,
        required=True,
        help="a file that ends in .safetensors, or a folder, where it keeps its name",
    )
    command.set_defaults(run=_import)


def _add_export(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "export",
        help="a Raptor as a program of torch.export or ONNX",
        description="Write a Raptor as a program that runs without this package: embedding states "
        "(images, tokens, width) in, all states (images, layers, tokens, width) out, for any "
        "number of images and tokens. The program is run and compared with the Raptor first.",
    )
    command.add_argument("student", type=Path, help="the .safetensors of a Raptor")
    command.add_argument(
        "--output",
        type=Path,
        required=True,
        help="a file that ends in .pt2 (torch.export) or .onnx (needs onnx, onnxscript and "
        "onnxruntime)",
    )
    command.set_defaults(run=_export)


def _tflops(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return value


def _plan(given: argparse.Namespace) -> None:
    config = load_yaml(given.config)
    tflops = _measured(config) if given.measure else given.tflops
    origin = "measured here" if given.measure else "assumed, --tflops"
    print(f"{config.experiment}:", *lines(plan(config), tflops, origin), sep="\n")


def _doctor(given: argparse.Namespace) -> None:
    from raptor.doctor import examine  # torch is loaded only where it is used

    config, checks = load_yaml(given.config), []
    for check in examine(config, Path("results", config.experiment), given.profile):
        print(check, flush=True)
        checks.append(check)
    faults = sum(not check.ok for check in checks)
    if faults:
        raise RaptorError(f"{faults} of {len(checks)} checks found a fault")


def _import(given: argparse.Namespace) -> None:
    from raptor.models.files import raptor_facts  # torch is loaded only where it is used
    from raptor.models.published import import_published

    output = given.output
    if output.suffix != ".safetensors":
        output = output / f"{given.file.stem}.safetensors"
    import_published(file=given.file, teacher=given.teacher, output=output)
    facts = raptor_facts(output)
    print("{0}: k = {k}, layers {segments} of {teacher}".format(output, **facts))


def _export(given: argparse.Namespace) -> None:
    from raptor.export import export_raptor  # torch is loaded only where it is used

    agreement = export_raptor(student=given.student, output=given.output)
    print(
        f"{given.output}: differs from {given.student} by at most {agreement.difference:.2g} "
        f"on random states, which are up to {agreement.largest:.2g}"
    )


def _measured(config: Experiment) -> float:
    """TFLOP/s in training steps of the teacher that costs most."""
    from raptor.device import resolve_device  # torch is loaded only where something is measured
    from raptor.throughput import training_flops

    shapes = map(config.shape, config.teachers)
    largest = max(shapes, key=lambda shape: teacher_flops(shape, config.data))
    return training_flops(largest, config.data, resolve_device(config.device)) / 1e12


def lines(found: Plan, tflops: float, origin: str) -> Iterator[str]:
    """The plan as text."""
    kinds = ", ".join(f"{n} {kind}" for kind, n in found.teachers.items() if n)
    yield f"  teachers {sum(found.teachers.values())}: {kinds}"
    recipes = ", ".join(f"{n} {recipe}" for recipe, n in found.students.items())
    yield f"  students {sum(found.students.values())}: {recipes}"
    yield ""
    yield _columns("stage", "jobs", "steps", "images", "PFLOP", "hours", "GB")
    for work in found.works:
        if work.jobs or work.flops:
            yield _row(work, tflops)
    jobs, steps, images, flops = (
        sum(getattr(work, name) for work in found.works)
        for name in ("jobs", "steps", "images", "flops")
    )
    largest = max(work.memory_bytes for work in found.works)
    yield _row(Work("total", jobs, steps, images, flops, largest), tflops)
    yield f"  hours at {tflops:.3g} TFLOP/s ({origin}), on one device, reading not counted"
    yield "  GB: peak memory of one job, estimated (activations: main memory)"
    yield "  jobs: as `snakemake -n` counts them, but for the target `figures` itself"
    yield ""
    form = "  {:<18}{:<36}{:<9}{:>10}{:>8}"
    yield form.format("store", "images x states x tokens x width", "dtype", "GB", "files")
    for one in found.stores:
        shape = " x ".join(f"{n:,}" for n in one.grid.shape)
        yield form.format(
            one.teacher, shape, one.grid.dtype, f"{one.bytes / 1e9:,.2f}", f"{one.files:,}"
        )
    files = sum(one.files for one in found.stores)
    yield form.format("total", "", "", f"{found.store_bytes / 1e9:,.2f}", f"{files:,}")
    yield from _modes(found, tflops)
    yield f"  weights of the students: {found.student_bytes / 1e9:,.2f} GB"


def _modes(found: Plan, tflops: float) -> Iterator[str]:
    """What activations.mode costs either way, and which is the better one on this disk."""
    free = shutil.disk_usage(".").free
    best = "store" if found.store_bytes < FREE * free else "stream"
    form = "    {:<16}{:>14}{:>10}{:>12}{:>12}"
    yield ""
    yield form.format("activations.mode", "GB of states", "files", "hours", "GPU GB")
    for name, mode in found.modes.items():
        yield form.format(
            name,
            f"{mode.bytes / 1e9:,.2f}" if mode.bytes else "–",
            f"{mode.files:,}",
            _short(Work("", 0, flops=mode.flops).hours(tflops)),
            _short(mode.memory_bytes / 1e9),
        )
    yield f"  it is {found.mode}; recommended where {free / 1e9:,.0f} GB are free, as here: {best}"


def _row(work: Work, tflops: float) -> str:
    return _columns(
        work.stage,
        f"{work.jobs:,}" if work.jobs else "–",
        f"{work.steps:,}" if work.steps else "–",
        f"{work.images:,}" if work.images else "–",
        _short(work.flops / 1e15),
        _short(work.hours(tflops)),
        _short(work.memory_bytes / 1e9),
    )


def _columns(stage: str, *numbers: str) -> str:
    widths = (7, 12, 15, 12, 11, 9)
    return f"  {stage:<18}" + "".join(f"{n:>{w}}" for n, w in zip(numbers, widths, strict=True))


def _short(value: float) -> str:
    """Three digits, or all of those before the point."""
    return "–" if not value else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
