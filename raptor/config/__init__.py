"""The configuration: one strict model, `experiment.Experiment`, made by `load.load`.

Nothing is imported here, so that a stage's code digest covers only the sections that it uses.
"""
