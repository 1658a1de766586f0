"""Dynamics of the states over depth: where they head, how they turn, and what becomes of noise."""
