"""`lowtide.memmap` is a `numpy.memmap`, and within its budget."""

import copy
import mmap
import os
import pickle
import tempfile

import lowtide
import numpy as np
import pytest
from conftest import MIB, cached_bytes, python, replaced, settled


def test_it_is_a_memmap_of_numpy_with_all_its_attributes(numbers):
    array = lowtide.memmap(numbers, "u4", "r", offset=4096 + 8, shape=(3, 5), budget="8M")
    assert isinstance(array, np.memmap) and isinstance(array._mmap, mmap.mmap)
    assert array.base is array._mmap and array._mmap.adopted
    other = np.memmap(numbers, "u4", "r", offset=4096 + 8, shape=(3, 5))
    assert (array.filename, array.offset, array.mode) == (other.filename, other.offset, other.mode)
    assert np.array_equal(array, other) and array[0, 0] == 1026
    assert not array.flags.writeable


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_scan_of_four_times_the_budget_leaves_the_budget_in_memory(numbers, mode):
    array = lowtide.memmap(numbers, "u4", mode, budget="8M")
    assert int(array.sum(dtype="u8")) == (8 * MIB) * (8 * MIB - 1) // 2
    assert settled(lambda: cached_bytes(numbers), 8 * MIB) <= 8 * MIB
    assert 0 < array.resident <= 8 * MIB
    assert array.budget.stat()["file"] <= 8 * MIB


def test_stores_are_in_the_file(tmp_path):
    path = tmp_path / "new"
    array = lowtide.memmap(path, "f8", "w+", shape=(100, 1000), budget="1M")
    array[:] = np.arange(1000)
    array.flush()
    assert np.array_equal(np.fromfile(path).reshape(100, 1000)[99], np.arange(1000))
    again = lowtide.memmap(path, "f8", "r+", shape=(100, 1000), budget="1M")
    again[7, 7] = -1
    assert array[7, 7] == -1, "two maps of one file see each other's stores"


def test_a_copy_on_write_keeps_its_stores_to_itself(numbers):
    array = lowtide.memmap(numbers, "u4", "c", budget="8M")
    array[5] = 1
    assert (array[5], np.fromfile(numbers, "u4", 6)[5]) == (1, 5)
    assert not array._mmap.adopted and array.budget is None


def test_computed_and_picked_arrays_are_plain(numbers):
    array = lowtide.memmap(numbers, "u4", "r", budget="8M")
    assert type(array[:10] + 1) is np.ndarray
    assert type(array[[1, 2, 3]]) is np.ndarray
    assert type(array[2:5]) is lowtide.memmap
    assert isinstance(array[:10].sum(), np.integer)


def test_budgets_can_be_shared_by_tenants(numbers, tmp_path):
    other = tmp_path / "other"
    np.zeros(4 * MIB, "u1").tofile(other)
    pager = lowtide.Pager("16M")
    small, large = pager.tenant("small", max="2M"), pager.tenant("large", max="8M")
    one = lowtide.memmap(numbers, "u4", "r", budget=small)
    two = lowtide.memmap(other, "u1", "r", budget=large)
    one.sum(), two.sum()
    assert settled(lambda: small.usage, 2 * MIB) <= 2 * MIB
    assert settled(lambda: cached_bytes(numbers), 2 * MIB) <= 2 * MIB
    assert one.budget is small and pager.usage >= small.usage
    assert settled(lambda: -large.usage, -4 * MIB) == -4 * MIB, "it fits, and stays"


def test_what_is_no_budget_is_refused(numbers):
    for wrong in (1.5, [1], object()):
        with pytest.raises(TypeError, match="a size such as '2G', a lowtide.Pager or a lowtide.T"):
            lowtide.memmap(numbers, "u4", "r", budget=wrong)
    with pytest.raises(ValueError, match="from 0 to .* -5 is not"):
        lowtide.memmap(numbers, "u4", "r", budget=-5)


@pytest.mark.parametrize("old", [{"max": "8M"}, {"pager": None}, {"tenant": 1}, {"policy": "lru"}])
def test_arguments_that_had_other_names_say_the_new_one(numbers, old):
    (name,) = old
    new = "budget=lowtide.Pager" if name == "policy" else "`budget`: a size, a Pager or a Tenant"
    given = [
        lambda: lowtide.memmap(numbers, "u4", "r", **old), lambda: lowtide.mmap(-1, 4096, **old),
        lambda: lowtide.open(numbers, **old), lambda: lowtide.View(numbers, **old),
        lambda: lowtide.adopt(numbers, **old), lambda: lowtide.patch(**old),
        lambda: lowtide.empty(10, **old),
    ]
    for call in given:
        with pytest.raises(TypeError, match=f"`{name}` is now .*{new}"):
            call()
    with pytest.raises(TypeError, match="`page` is now `page_size`"):
        lowtide.open(numbers, budget="1M", page=512)
    with pytest.raises(TypeError, match="`page` is now `page_size`"):
        lowtide.Pager("1M", page=512)
    with pytest.raises(TypeError, match="pages"):
        lowtide.Pager("1M", pages=512)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_a_path_and_not_the_bytes(numbers, protocol):
    array = lowtide.memmap(numbers, "u4", "r", offset=8, shape=(1000, 1000), budget="8M")
    text = pickle.dumps(array, protocol)
    assert len(text) < 1000
    again = pickle.loads(text)
    assert np.array_equal(again, array) and isinstance(again, lowtide.memmap)
    assert (again.filename, again.offset, again.mode) == (str(numbers), 8, "r")
    assert again.budget.__reduce__() == array.budget.__reduce__(), "they share one budget"


@pytest.mark.parametrize(
    "part",
    [
        np.s_[5:7], np.s_[::7], np.s_[:, 3], np.s_[::-1, ::-2], np.s_[3:3], np.s_[2, 5],
        np.s_[..., None], np.s_[10:20, 5::3],
    ],
    ids=str,
)
def test_a_part_of_an_array_is_pickled_by_its_place(numbers, part):
    whole = lowtide.memmap(numbers, "u4", "r", offset=4096, shape=(100, 50), budget="8M")
    array = whole[part]
    again = pickle.loads(pickle.dumps(array))
    assert again.dtype == array.dtype and np.array_equal(again, array)
    for order in (array.T,):
        assert np.array_equal(pickle.loads(pickle.dumps(order)), order)


def test_a_new_file_is_not_made_anew_by_its_pickle(tmp_path):
    array = lowtide.memmap(tmp_path / "new", "u4", "w+", shape=(10,), budget="1M")
    array[:] = 7
    again = pickle.loads(pickle.dumps(array))
    assert again.mode == "r+" and list(again) == [7] * 10
    again[0] = 1
    assert array[0] == 1


def test_what_has_no_path_is_not_pickled(numbers, tmp_path):
    with tempfile.TemporaryFile() as file:
        array = lowtide.memmap(file, "u1", "w+", shape=(10,), budget="1M")
        with pytest.raises(pickle.PicklingError, match="without a name"):
            pickle.dumps(array)
    gone = tmp_path / "gone"
    np.zeros(10, "u1").tofile(gone)
    array = lowtide.memmap(gone, "u1", "r", budget="1M")
    text = pickle.dumps(array)
    gone.unlink()
    with pytest.raises(pickle.PicklingError, match="not to be found"):
        pickle.dumps(array)
    with pytest.raises(lowtide.Error, match="not to be found"):
        pickle.loads(text)
    np.ones(10, "u1").tofile(gone)
    with pytest.raises(pickle.PicklingError, match="another file"):
        pickle.dumps(array)
    with pytest.raises(lowtide.Error, match="another file"):
        pickle.loads(text)


def test_a_pickle_is_of_the_file_that_it_was(tmp_path):
    path = tmp_path / "x"
    np.full(1000, 1.0).tofile(path)
    array = lowtide.memmap(path, "f8", "r", budget="1M")
    text, number = pickle.dumps(array), array._mmap._kept.file
    del array
    # A file system that gives numbers out again: only the birth, or the last change, is another.
    had_number = replaced(path, lambda path: np.full(1000, 2.0).tofile(path))
    with pytest.raises(lowtide.Error, match="is another file by now|has been written to since"):
        pickle.loads(text)
    print(f"the new file has the old one's number: {had_number}; birth: {number[2] is not None}")


def test_an_array_for_reading_is_pickled_with_its_bytes(tmp_path):
    path = tmp_path / "x"
    np.full(1000, 1.0).tofile(path)
    reads = lowtide.memmap(path, "f8", "r", budget="1M")
    stores = lowtide.memmap(path, "f8", "r+", budget="1M")
    texts = pickle.dumps(reads), pickle.dumps(stores)
    assert pickle.loads(texts[0])[7] == 1
    with open(path, "r+b") as file:
        os.utime(path, ns=(0, 0))
        file.write(np.full(1, 5.0).tobytes())
    assert pickle.loads(texts[1])[0] == 5, "one that stores is of the file, whatever is in it"
    with pytest.raises(lowtide.Error, match="written to since"):
        pickle.loads(texts[0])
    os.truncate(path, 100)
    with pytest.raises(lowtide.Error, match="written to since"):
        pickle.loads(texts[0])


def test_copies_are_plain_memory(numbers):
    array = lowtide.memmap(numbers, "u4", "c", shape=(1000,), budget="8M")
    array[3] = 99
    again = pickle.loads(pickle.dumps(array))
    assert again[3] == 99, "stores of its own are nowhere but in the pickle"
    assert copy.deepcopy(array)[3] == 99 and copy.copy(array)[3] == 99


def test_a_map_whose_arrays_live_is_not_closed(numbers):
    array = lowtide.memmap(numbers, "u4", "r", budget="8M")
    part = np.asarray(array)[10:20]
    made = array._mmap
    del array
    with pytest.raises(BufferError):
        made.close()
    assert made.adopted, "it is kept as before"
    assert list(part) == list(range(10, 20))
    del part
    made.close()
    assert made.closed and not made.adopted


def test_an_array_outlives_its_pager_and_its_file(numbers):
    pager = lowtide.Pager("8M")
    array = lowtide.memmap(numbers, "u4", "r", budget=pager)
    pager.close()
    del pager
    os.unlink(numbers)
    assert array[-1] == 8 * MIB - 1
    assert int(array.sum(dtype="u8")) == (8 * MIB) * (8 * MIB - 1) // 2


def test_the_default_budget_pays_where_none_is_named(numbers):
    before = lowtide.default_pager()
    try:
        pager = lowtide.set_default("8M")
        array = lowtide.memmap(numbers, "u4", "r")
        assert array.budget is pager is lowtide.default_pager()
        array.sum()
        assert settled(lambda: cached_bytes(numbers), 8 * MIB) <= 8 * MIB
    finally:
        lowtide.set_default(before)


def test_the_default_budget_is_one_and_can_be_set_outside(numbers):
    source = """
        import sys, lowtide
        pager = lowtide.default_pager()
        array = lowtide.memmap(sys.argv[1], "u4", "r")
        assert array.budget is pager is lowtide.default_pager()
        print(pager.max)
    """
    assert int(python(source, numbers, env={"LOWTIDE_MAX": "8M"})) == 8 * MIB
    assert int(python(source, numbers)) > 8 * MIB


def test_errors_are_those_of_numpy_and_of_the_kernel(tmp_path):
    with pytest.raises(FileNotFoundError):
        lowtide.memmap(tmp_path / "none", "u4", "r", budget="8M")
    with pytest.raises(ValueError, match="mode must be one of"):
        lowtide.memmap(tmp_path / "none", "u4", "x", budget="8M")
    with pytest.raises(ValueError, match="budget"):
        lowtide.Pager(1)
    with pytest.raises(ValueError):
        lowtide.Pager("8 parsecs")
    with pytest.raises(ValueError, match="policy"):
        lowtide.Pager("8M", policy="clairvoyant")
    with pytest.raises(TypeError, match="size"):
        lowtide.Pager(1.5)
