"""Target/mimic benchmarks: questions with H+, H- and passages known to be on target or mimic."""

from lib.benchmarks.base import Benchmark, load_benchmark

__all__ = ["Benchmark", "load_benchmark"]
