"""The lines of the README run."""

import re
from pathlib import Path

import lowtide
import numpy as np
import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_lines_of_the_readme_run(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    monkeypatch.chdir(tmp_path)
    np.random.default_rng(1).random((50_000, 128), "f4").tofile("vectors.f32")
    names = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)


def test_every_public_name_is_documented():
    text = README.read_text()
    for name in lowtide.__all__:
        value = getattr(lowtide, name)
        if not name.startswith("__"):
            assert value.__doc__, f"lowtide.{name} has no documentation"
    for name in ("memmap", "open", "rows", "patch", "adopt", "empty", "Pager", "tenant"):
        assert name in text, f"{name} is not in the README"


def test_classes_have_texts_for_what_they_do():
    for kind in (lowtide.Pager, lowtide.Tenant, lowtide.View, lowtide.memmap, lowtide.mmap):
        for name, value in vars(kind).items():
            if not name.startswith("_") and callable(value):
                inherited = any(getattr(base, name, None) for base in kind.__mro__[1:])
                assert value.__doc__ or inherited, f"{kind.__name__}.{name}"


if __name__ == "__main__":
    pytest.main([__file__])
