"""Maps that others make: `patch`, `adopt`, regions, and the command."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import lowtide
import numpy as np
import pytest
from conftest import MIB, cached_bytes, python, settled, uncache
from lowtide import _adopt


def test_numpy_maps_within_the_budget_while_it_is_patched(tmp_path, numbers):
    saved = tmp_path / "saved.npy"
    np.save(saved, np.arange(8 * MIB, dtype="u4").reshape(-1, 64))
    uncache(saved)
    with lowtide.patch(budget="8M") as patched:
        loaded = np.load(saved, mmap_mode="r")
        assert type(loaded) is lowtide.memmap and loaded.budget is patched.budget
        assert loaded.shape == (131_072, 64) and int(loaded[77, 5]) == 77 * 64 + 5
        loaded.sum()
        # numpy reads the header before it maps the file.
        most = 8 * MIB + 4096
        assert settled(lambda: cached_bytes(saved), most) <= most
        made = np.lib.format.open_memmap(tmp_path / "new.npy", "w+", "f4", (1000, 10))
        made[5] = 1
        made.flush()
        plain = np.memmap(numbers, "u4", "r")
        assert type(plain) is lowtide.memmap and isinstance(plain, np.memmap)

        class Mine(np.memmap):
            pass

        assert type(Mine(numbers, "u4", "r")) is Mine, "classes of the program stay what they are"
    assert type(np.load(saved, mmap_mode="r")) is np.memmap
    assert np.load(tmp_path / "new.npy")[5].sum() == 10


def test_patches_end_in_any_order(numbers):
    plain, made = vars(np.memmap)["__new__"], lambda: np.memmap(numbers, "u4", "r")
    one, two = lowtide.patch(budget="2M"), lowtide.patch(budget="4M")
    assert made().budget is two.budget, "the latest pays"
    one.undo()
    assert made().budget is two.budget
    two.undo()
    two.undo()
    assert type(made()) is np.memmap and vars(np.memmap)["__new__"] is plain
    with lowtide.patch(budget="2M") as one:
        with lowtide.patch(budget="4M"):
            pass
        assert made().budget is one.budget
    assert vars(np.memmap)["__new__"] is plain


def test_what_others_patched_since_stays_theirs(numbers, monkeypatch):
    with lowtide.patch(budget="2M"):
        ours = np.memmap.__new__
        theirs = lambda subtype, *args, **kwargs: ours(subtype, *args, **kwargs)
        monkeypatch.setattr(np.memmap, "__new__", theirs)
        assert type(np.memmap(numbers, "u4", "r")) is lowtide.memmap
    assert np.memmap.__new__ is theirs and type(np.memmap(numbers, "u4", "r")) is np.memmap


def test_an_adoption_ends_itself_alone(numbers):
    array = lowtide.memmap(numbers, "u4", "r", budget="4M")
    pager = array.budget
    lowtide.adopt(numbers, budget=pager).close()
    assert int(array.sum(dtype="u8")) == (8 * MIB) * (8 * MIB - 1) // 2
    assert settled(lambda: cached_bytes(numbers), 4 * MIB) <= 4 * MIB


def test_joblib_maps_within_the_budget_while_it_is_patched(tmp_path):
    joblib = pytest.importorskip("joblib")
    path = tmp_path / "dumped"
    joblib.dump(np.arange(MIB), path)
    with lowtide.patch(budget="2M"):
        loaded = joblib.load(path, mmap_mode="r")
        assert type(loaded) is lowtide.memmap and loaded._mmap.adopted
        assert loaded[-1] == MIB - 1
    array = lowtide.memmap(tmp_path / "rows", "f8", "w+", shape=(MIB,), budget="2M")
    array[:] = 1
    work = joblib.delayed(np.sum)
    assert joblib.Parallel(2, max_nbytes=1000)(work(array) for _ in range(4)) == [MIB] * 4


def test_pandas_maps_within_the_budget_while_it_is_patched(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "table.csv"
    pandas.DataFrame({"a": range(1000), "b": "x"}).to_csv(path, index=False)
    import pandas.io.common

    with lowtide.patch(budget="2M"):
        made = pandas.io.common.mmap
        assert issubclass(made.mmap, lowtide.mmap)
        table = pandas.read_csv(path, memory_map=True)
        assert len(table) == 1000 and table.a.sum() == 499_500
    assert pandas.io.common.mmap is mmap


def test_a_map_of_a_library_is_adopted_by_its_path(numbers):
    with open(numbers, "rb") as file:
        theirs = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with lowtide.adopt(numbers, budget="8M") as adoption:
        assert sum(length for _, length in adoption.addresses) == 32 * MIB
        np.frombuffer(theirs, "u4").sum()
        assert settled(lambda: cached_bytes(numbers), 8 * MIB) <= 8 * MIB
        assert 0 < adoption.resident <= 8 * MIB
    assert adoption.closed
    np.frombuffer(theirs, "u4").sum()
    assert cached_bytes(numbers) > 8 * MIB, "it is the kernel's again"
    theirs.close()


def test_a_mapping_is_known_by_its_device_and_its_number(numbers):
    theirs = np.memmap(numbers, "u4", "r")
    [line] = [line for line in _adopt._lines() if line.path == str(numbers)]
    pager = lowtide.Pager("2M")
    for device, number in [(line.number[0] + 1, line.number[1]), (line.number[0], 1)]:
        with pytest.raises(lowtide.Error, match="another file"):
            _adopt._take([line._replace(number=(device, number))], pager)
    [taken] = _adopt._take([line], pager)
    assert taken.addresses == (line.start, line.end - line.start) and theirs[7] == 7
    taken.forget()


@pytest.mark.parametrize("kind", [np.asarray, memoryview, lambda array: array._mmap])
def test_a_map_of_a_library_is_adopted_by_an_object(numbers, kind):
    array = np.memmap(numbers, "u4", "r", offset=4096)
    adoption = lowtide.adopt(kind(array), budget="8M")
    assert int(array.sum(dtype="u8")) > 0
    assert settled(lambda: cached_bytes(numbers), 8 * MIB) <= 8 * MIB
    adoption.close()


def test_an_arrow_buffer_is_adopted(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "table.arrow"
    table = pyarrow.table({"a": np.arange(4 * MIB)})
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    uncache(path)
    source = pyarrow.memory_map(str(path))
    read = pyarrow.ipc.open_file(source).read_all()
    with lowtide.adopt(path, budget="8M"):
        assert read["a"].to_numpy().sum() == 4 * MIB * (4 * MIB - 1) // 2
        assert settled(lambda: cached_bytes(path), 8 * MIB) <= 8 * MIB


def test_what_cannot_be_adopted_says_why(numbers, tmp_path):
    with pytest.raises(lowtide.Error, match="no mapping of a file"):
        lowtide.adopt(np.zeros(100_000), budget="8M")
    with pytest.raises(lowtide.Error, match="no mapping"):
        lowtide.adopt(numbers, budget="8M")
    with pytest.raises(TypeError, match="not a int"):
        lowtide.adopt(7, budget="8M")
    with pytest.raises(FileNotFoundError):
        lowtide.adopt(tmp_path / "none", budget="8M")
    own = np.memmap(numbers, "u4", "c")
    with pytest.raises(lowtide.Error, match="privately and writable"):
        lowtide.adopt(own, budget="8M")
    gone = tmp_path / "gone"
    gone.write_bytes(b"x" * 4096)
    array = np.memmap(gone, "u1", "r")
    gone.unlink()
    with pytest.raises(OSError):
        lowtide.adopt(array, budget="8M")


def userfault():
    """Whether the runtime can serve page faults here."""
    try:
        lowtide.empty(10, budget="1M")
    except OSError as error:
        pytest.skip(f"no userfaultfd here: {error}")


def test_an_array_without_a_file_is_larger_than_its_budget(tmp_path):
    userfault()
    array = lowtide.empty((4096, 1024), "u4", budget="4M", swap_dir=tmp_path)
    assert not array.any()
    for at, row in enumerate(array):
        row[:] = at
    assert all((row == at).all() for at, row in enumerate(array))
    noise = lowtide.zeros(2 * MIB, "u4", budget="2M", swap_dir=tmp_path)
    draw = np.random.default_rng(1)
    for start in range(0, 2 * MIB, 4096):
        noise[start : start + 4096] = draw.integers(0, 1 << 32, 4096, "u4")
    draw = np.random.default_rng(1)
    for start in range(0, 2 * MIB, 4096):
        assert (noise[start : start + 4096] == draw.integers(0, 1 << 32, 4096, "u4")).all()
    with pytest.raises(TypeError, match="budget"):
        lowtide.empty(10)
    assert lowtide.empty((0, 5), budget="1M").shape == (0, 5)


def test_a_child_does_not_have_such_an_array_and_a_view_says_so():
    userfault()
    array = lowtide.empty(1000, "u4", budget="1M")
    memory = array.base
    while not isinstance(memory, lowtide._lowtide.Memory):
        memory = memory.obj if isinstance(memory, memoryview) else memory.base
    array[0] = 1
    child = os.fork()
    if child == 0:
        try:
            memoryview(memory)
        except BufferError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert array[0] == 1


def command(*arguments, **options):
    """Runs the command of the wheel."""
    if not (Path(lowtide.__file__).with_name("_bin") / "lowtide").exists():
        pytest.skip("this package was built without the command (build-wheel)")
    line = [sys.executable, "-m", "lowtide", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, **options)


def test_the_command_runs_a_script_that_was_not_changed(tmp_path, numbers):
    script = tmp_path / "train.py"
    script.write_text(
        "import mmap, sys\n"
        "with open(sys.argv[1], 'rb') as file:\n"
        "    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "print(sum(data[at] for at in range(0, len(data), 4096)), sys.argv[2:])\n"
    )
    plain = subprocess.run(
        [sys.executable, script, numbers, "--max", "1"], capture_output=True, text=True, check=True
    )
    done = command("run", "--max", "8M", script, numbers, "--max", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    assert "8" in done.stderr and "MiB" in done.stderr, "the summary is there"


def test_the_command_runs_the_package_itself(numbers):
    """The runtime is in the process twice: in the preload library, and in the extension."""
    done = command(
        "run", "--max", "8M", "--", sys.executable, "-c",
        f"import lowtide; a = lowtide.memmap({str(numbers)!r}, 'u4', 'r', budget='4M');"
        "print(a.sum(dtype='u8'))",
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == (8 * MIB) * (8 * MIB - 1) // 2


def test_the_command_has_its_own_exit_codes():
    assert command("--version").returncode == 0
    assert command("no-such-command").returncode != 0
    done = command("run", "--max", "8M", "--", sys.executable, "-c", "raise SystemExit(7)")
    assert done.returncode == 7


def test_importing_does_not_import_numpy():
    python("import sys, lowtide; assert 'numpy' not in sys.modules, 'it costs 100 ms'")
