"""Trainings with one planted cause of lost time each, and clean ones."""
