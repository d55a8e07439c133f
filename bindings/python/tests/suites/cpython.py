"""CPython's tests of its module `mmap`, with our class in the place of the standard one. Arguments:
tests to leave out."""

import sys
import unittest
from types import SimpleNamespace

from test import test_mmap

import lowtide
from suites import Counted

counted = Counted()
lowtide.set_default("8M")
standard = test_mmap.mmap
test_mmap.mmap = SimpleNamespace(**{**vars(standard), "mmap": lowtide.mmap})


def chosen(suite):
    """All tests but those that are left out."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from chosen(test)
        elif test.id().rsplit(".", 1)[1] not in sys.argv[1:]:
            yield test


if __name__ == "__main__":
    tests = unittest.TestSuite(chosen(unittest.defaultTestLoader.loadTestsFromModule(test_mmap)))
    result = unittest.TextTestRunner(verbosity=1).run(tests)
    print(counted)
    sys.exit(not result.wasSuccessful())
