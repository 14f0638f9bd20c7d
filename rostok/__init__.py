"""Rostok: a tiny GPT that a person trains, samples, measures and looks inside."""

__version__ = "0.1.0"
