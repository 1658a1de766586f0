"""Probes: what a frozen teacher or student knows, and how near its states are to the teacher's."""
