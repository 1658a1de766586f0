# Pictures and printed tables, each from its own table alone.
for target in FIGURES:

    # Draw one figure and its caption.
    rule:
        name:
            target
        input:
            table=table(target) if target == "scorecard" else figure(target, "csv"),
            examples=EXAMPLES.get(target, []),
            style="raptor/figures/style.mplstyle",
            template=f"workflow/report/{target}.rst",
        output:
            pdf=figure(target, "pdf"),
            png=report(
                figure(target, "png"),
                caption=os.path.abspath(figure(target, "rst")),
                category="Figures",
                labels={"figure": target.replace("_", " ")},
            ),
            caption=figure(target, "rst"),
        log:
            results(f"logs/figures/{target}.log"),
        priority: 20
        localrule: True
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem=growing(1000, "MB"),
            runtime=growing(10),
        params:
            target=target,
            settings=leaves(getattr(experiment.figures, target)),
            palette=experiment.figures.palette,
            code=code_digest("workflow/scripts/draw.py", f"raptor/figures/{target}.py"),
        message:
            f"Drawing {target}"
        script:
            "../scripts/draw.py"


for target in PRINTED:

    # Print one table as a page, with its caption.
    rule:
        name:
            target
        input:
            table=table(target),
            template=f"workflow/report/{target}.rst",
        output:
            html=report(
                results(f"tables/{target}.html"),
                caption=os.path.abspath(results(f"tables/{target}.rst")),
                category="Tables",
                labels={"table": target.removeprefix("table_")},
            ),
            caption=results(f"tables/{target}.rst"),
        log:
            results(f"logs/tables/{target}.print.log"),
        priority: 20
        localrule: True
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem=growing(1000, "MB"),
            runtime=growing(10),
        params:
            target=target,
            code=code_digest("workflow/scripts/print_table.py", f"raptor/figures/{target}.py"),
        message:
            f"Printing {target}"
        script:
            "../scripts/print_table.py"
