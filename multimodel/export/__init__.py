"""Trained models, to keep and to use."""
