"""The command `raptor`; also `python -m raptor`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from raptor.config.experiment import Experiment
from raptor.config.load import load_yaml
from raptor.errors import RaptorError
from raptor.plan import TFLOPS, Plan, Work, plan, teacher_work


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; a fault that a user can mend is one sentence on stderr and status 1."""
    parser = argparse.ArgumentParser(prog="raptor", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "plan", help="what an experiment will cost", description="What an experiment will cost."
    )
    command.add_argument("config", help="a YAML file such as config/laptop.yaml")
    speed = command.add_mutually_exclusive_group()
    speed.add_argument(
        "--tflops",
        type=_positive,
        default=TFLOPS,
        help="effective 10¹² FLOP a second of the machine (%(default)s: an assumption for float32 "
        "on an H100)",
    )
    speed.add_argument(
        "--measure", action="store_true", help="measure it here, in some training steps"
    )
    command.set_defaults(run=_plan)
    given = parser.parse_args(arguments)
    try:
        given.run(given)
    except RaptorError as error:
        print(f"raptor: {error}", file=sys.stderr)
        return 1
    return 0


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _plan(given: argparse.Namespace) -> None:
    config = load_yaml(given.config)
    tflops = _measured(config) if given.measure else given.tflops
    origin = "measured here" if given.measure else "assumed, --tflops"
    print(f"{config.experiment}:", *lines(plan(config), tflops, origin), sep="\n")


def _measured(config: Experiment) -> float:
    """TFLOP/s in training steps of the teacher that costs most."""
    from raptor.device import resolve_device  # torch is loaded only where something is measured
    from raptor.throughput import training_flops

    trained = [config.architecture(name) for name in config.teachers]
    largest = max(trained, key=lambda spec: teacher_work(spec, config.data).flops)
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
        if work.jobs:
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
    size = sum(one.bytes for one in found.stores)
    files = sum(one.files for one in found.stores)
    yield form.format("total", "", "", f"{size / 1e9:,.2f}", f"{files:,}")
    yield f"  weights of the students: {found.student_bytes / 1e9:,.2f} GB"


def _row(work: Work, tflops: float) -> str:
    return _columns(
        work.stage,
        f"{work.jobs:,}",
        f"{work.steps:,}" if work.steps else "–",
        f"{work.images:,}" if work.images else "–",
        _short(work.flops / 1e15),
        _short(work.hours(tflops)),
        _short(work.memory_bytes / 1e9),
    )


def _columns(stage: str, *numbers: str) -> str:
    widths = (7, 12, 15, 11, 9, 8)
    return f"  {stage:<18}" + "".join(f"{n:>{w}}" for n, w in zip(numbers, widths, strict=True))


def _short(value: float) -> str:
    """Three digits, or all of those before the point."""
    return "–" if not value else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
