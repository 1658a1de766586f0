"""Training: losses, schedules, the resumable loop and its checkpoints."""
