#!/usr/bin/python3
"""Runs rdma-core's Python suite as its run_tests.py does, and writes a line of JSON for each test: its name, what
became of it (ok, skipped, failed) and why. By Debian's Python, for which pyverbs is built.

  suite.py DIRECTORY RESULTS --dev DEVICE [more options of the suite]

SUITE_ONLY in the environment: tests whose names match. SUITE_LIMIT_S: a test that takes longer fails.
"""
import importlib.machinery
import json
import os
import re
import signal
import sys
import time
import unittest

directory, results = sys.argv[1:3]
del sys.argv[1:3]
sys.path.insert(0, directory)
LIMIT_S = int(os.environ.get("SUITE_LIMIT_S", "0"))  # 0: none


class TooLong(Exception):
    """Of a test that has not ended within LIMIT_S."""


class Lines(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out = out
        self.begun = 0

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()
        signal.alarm(LIMIT_S)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

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


def too_long(*_):
    raise TooLong


def matching(tests, pattern):
    """Those of the tests whose names match."""
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from matching(test, pattern)
        elif re.search(pattern, test.id()):
            yield test


signal.signal(signal.SIGALRM, too_long)
suite = importlib.machinery.SourceFileLoader("tests", directory + "/__init__.py").load_module()
from args_parser import parser  # noqa: E402  of the suite

parser.parse_args()
with open(results, "w", encoding="utf-8") as lines:
    tests = unittest.defaultTestLoader.loadTestsFromModule(suite)
    unittest.TestSuite(matching(tests, os.environ.get("SUITE_ONLY", ""))).run(Lines(lines))
