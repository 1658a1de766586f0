"""Raptors: recurrent blocks, the student made of them, its first weights, and its files."""
