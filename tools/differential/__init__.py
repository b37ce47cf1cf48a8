"""Machines that draw calls at random, make them on every driver, and compare each answer and what is stored.

python -m tools.differential [--examples 5000] [--seed 7] [--only locks] [arguments of pytest]
"""
