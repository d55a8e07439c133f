"""What lets the test suites of others run against our classes."""

import lowtide


class Counted:
    """Counts the maps that are adopted, so that a suite that runs past us is noticed."""

    def __init__(self):
        self.count = 0
        adopt = lowtide.mmap._adopt

        def counted(mapped, fileno):
            adopt(mapped, fileno)
            self.count += mapped.adopted

        lowtide.mmap._adopt = counted

    def __str__(self):
        return f"lowtide: {self.count} maps were ours"
