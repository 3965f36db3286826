#!/usr/bin/python3
"""Runs rdma-core's Python suite as its run_tests.py does, and writes a line of JSON for each test: its name, what
became of it (ok, skipped, failed) and why. By Debian's Python, for which pyverbs is built.

  suite.py DIRECTORY RESULTS --dev DEVICE [more options of the suite]
"""
import importlib.machinery
import json
import sys
import time
import unittest

directory, results = sys.argv[1:3]
del sys.argv[1:3]
sys.path.insert(0, directory)


class Lines(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out = out
        self.begun = 0

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()

    def line(self, test, outcome, why=""):
        name = test.id().removeprefix("tests.")
        took = time.monotonic() - self.begun
        self.out.write(json.dumps({"name": name, "outcome": outcome, "why": why, "seconds": round(took, 1)}) + "\n")
        self.out.flush()

    def addSuccess(self, test):
        self.line(test, "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line(test, "skipped", reason)

    def addError(self, test, err):
        super().addError(test, err)
        self.line(test, "failed", self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line(test, "failed", self.failures[-1][1])


suite = importlib.machinery.SourceFileLoader("tests", directory + "/__init__.py").load_module()
from args_parser import parser  # noqa: E402  of the suite

parser.parse_args()
with open(results, "w", encoding="utf-8") as lines:
    unittest.defaultTestLoader.loadTestsFromModule(suite).run(Lines(lines))
