"""Datasets divided over workers."""
