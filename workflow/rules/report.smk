# The report: one page, beside the one that `snakemake --report` makes.


# All figures, tables and captions on one page that asks nothing of the network.
rule report_page:
    input:
        figures=[figure(name, "png") for name in FIGURES],
        tables=[results(f"tables/{name}.html") for name in PRINTED],
        captions=[figure(name, "rst") for name in FIGURES]
        + [results(f"tables/{name}.rst") for name in PRINTED],
        front="workflow/report/workflow.rst",
        template="workflow/report/page.html.j2",
    output:
        results("report.html"),
    log:
        results("logs/report_page.log"),
    localrule: True
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem=growing(500, "MB"),
        runtime=growing(10),
    params:
        experiment={
            "experiment": experiment.experiment,
            "data": leaves(experiment.data),
            "teachers": {name: leaves(spec) for name, spec in experiment.teachers.items()},
            "students": {name: leaves(grid) for name, grid in experiment.students.items()},
            "n_students": sum(len(job.students) for job in JOBS.values()),
        },
        code=script_code("report"),
    message:
        "Writing the report"
    script:
        "../scripts/report.py"
