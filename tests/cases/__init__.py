"""Faults that people reported of compilers that do this job, as small programs."""
