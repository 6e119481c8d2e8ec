"""Verbs of `Dataset`, one mixin class for each subject."""
