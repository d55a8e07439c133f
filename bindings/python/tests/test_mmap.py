"""`lowtide.mmap` is a `mmap.mmap`, and within its budget."""

import gc
import mmap
import os
import pickle
import threading
import weakref

import lowtide
import pytest
from conftest import MIB, cached_bytes, in_child, open_files, settled


def made(path, *args, **kwargs):
    with open(path, "r+b") as file:
        return lowtide.mmap(file.fileno(), *args, **kwargs)


def read_all(mapped):
    return sum(mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE))


def test_it_is_the_standard_map_within_a_budget(numbers):
    with made(numbers, 0, access=mmap.ACCESS_READ, budget="8M") as mapped:
        assert isinstance(mapped, mmap.mmap) and mapped.adopted
        assert mapped[4:8] == b"\1\0\0\0" and len(mapped) == 32 * MIB
        read_all(mapped)
        assert settled(lambda: cached_bytes(numbers), 8 * MIB) <= 8 * MIB
    assert mapped.closed and not mapped.adopted and mapped.budget is None


@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"access": mmap.ACCESS_WRITE}, {"access": mmap.ACCESS_READ}, {"prot": mmap.PROT_READ},
        {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ},
    ],
    ids=str,
)
def test_what_loses_nothing_by_leaving_is_adopted(numbers, arguments):
    with made(numbers, 0, **arguments, budget="8M") as mapped:
        assert mapped.adopted and isinstance(mapped.budget, lowtide.Pager)


def test_what_would_lose_stores_is_left_to_the_kernel(numbers):
    with made(numbers, 0, access=mmap.ACCESS_COPY, budget="8M") as mapped:
        mapped[:4] = b"mine"
        assert not mapped.adopted and mapped.budget is None and mapped.resident == 0
    with made(numbers, 0, mmap.MAP_PRIVATE, budget="8M") as mapped:
        assert not mapped.adopted
    with lowtide.mmap(-1, 4096, budget="8M") as mapped:
        mapped[:4] = b"anon"
        assert not mapped.adopted


def test_positional_arguments_are_those_of_the_standard_class(numbers):
    flags, prot = mmap.MAP_SHARED, mmap.PROT_READ
    with made(numbers, 8192, flags, prot, mmap.ACCESS_DEFAULT, 4096, budget="8M") as mapped:
        assert mapped[:4] == (1024).to_bytes(4, "little") and mapped._kept.offset == 4096


def test_it_prints_as_the_standard_class(numbers):
    with made(numbers, 0, budget="8M") as mapped:
        assert repr(mapped).startswith("<mmap.mmap closed=False, access=ACCESS_DEFAULT, length=")
    assert repr(mapped).startswith("<mmap.mmap closed=True")


def test_it_can_be_resized(tmp_path):
    path = tmp_path / "grows"
    path.write_bytes(b"x" * 4096)
    with made(path, 4096, budget="1M") as mapped:
        mapped.resize(8 * MIB)
        assert len(mapped) == 8 * MIB == path.stat().st_size and mapped.adopted
        assert mapped._kept.addresses[1] == 8 * MIB
        read_all(mapped)
        assert settled(lambda: cached_bytes(path), MIB) <= MIB
        mapped.resize(4096)
        assert mapped[:] == b"x" * 4096


def test_a_map_that_one_thread_closes_and_another_resizes_ends(tmp_path):
    path, pager = tmp_path / "grows", lowtide.Pager("8M")
    path.write_bytes(b"x" * MIB)
    for turn in range(300):
        mapped = made(path, 1 << 16, budget=pager)

        def resize():
            try:
                for k in range(20):
                    mapped.resize((1 + k % 7) << 16)
            except (ValueError, OSError, SystemError):
                pass

        other = threading.Thread(target=resize)
        other.start()
        for _ in range(turn * 10):
            pass
        mapped.close()
        other.join()
        assert mapped.closed and not mapped.adopted, f"turn {turn}: {mapped._kept.addresses}"


def test_a_child_closes_a_map_beside_which_another_was_being_closed(numbers):
    mapped = made(numbers, 0, budget="8M")
    with lowtide._mmap._changing:

        def work():
            other = threading.Thread(target=mapped.close)
            other.start()
            other.join(60)
            return mapped.closed

        assert in_child(work)
    mapped.close()


def test_a_file_that_is_memory_is_left_to_the_kernel():
    fd = os.memfd_create("memory")
    os.ftruncate(fd, 8192)
    with lowtide.mmap(fd, 0, budget="8M") as mapped:
        assert not mapped.adopted and mapped.budget is None
    with pytest.raises(lowtide.NotPossible, match="is memory"):
        lowtide.mmap(fd, 0, prot=mmap.PROT_READ, budget="8M", map_mode="userfault")
    os.close(fd)


def test_it_is_neither_closed_nor_resized_while_exported(numbers):
    mapped = made(numbers, 0, budget="8M")
    with memoryview(mapped) as view:
        for change in (mapped.close, lambda: mapped.resize(4096)):
            with pytest.raises(BufferError):
                change()
            assert mapped.adopted and view[4] == 1
    mapped.close()
    mapped.close()
    with pytest.raises(ValueError, match="closed"):
        mapped[0]


def test_a_map_that_is_dropped_is_forgotten_first(numbers):
    pager = lowtide.Pager("8M")
    # The first map starts the thread that watches, which has descriptors of its own.
    made(numbers, 0, budget=pager).close()
    before = open_files()
    mapped = made(numbers, 0, budget=pager)
    kept, gone = mapped._kept, weakref.ref(mapped)
    read_all(mapped)
    del mapped
    gc.collect()
    assert gone() is None
    # The only other owner is this test.
    assert kept and kept.resident >= 0
    kept.forget()
    assert not kept
    del kept
    assert settled(lambda: pager.usage, 0) == 0
    assert settled(open_files, before) == before


def test_advice_is_taken(numbers):
    with made(numbers, 0, budget="8M") as mapped:
        for advice in (mmap.MADV_RANDOM, mmap.MADV_SEQUENTIAL, mmap.MADV_NORMAL):
            mapped.madvise(advice)
            mapped.madvise(advice, 4096)
            mapped.madvise(advice, 4096, 8192)
        mapped.madvise(mmap.MADV_WILLNEED, 0, MIB)
        with pytest.raises(ValueError):
            mapped.madvise(mmap.MADV_RANDOM, 64 * MIB)


def test_a_map_that_children_do_not_get_is_not_adopted_in_them(numbers):
    with made(numbers, 0, budget="8M") as mapped:
        mapped.madvise(mmap.MADV_DONTFORK)
        kept = mapped._kept
        child = os.fork()
        if child == 0:
            import mmap as std

            # Something else may be at the addresses by then: nothing of it must go.
            other = std.mmap(-1, 32 * MIB)
            other[:] = b"a" * (32 * MIB)
            os._exit(0 if kept.addresses and other[:] == b"a" * (32 * MIB) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_subclass_has_what_a_subclass_has(numbers):
    class Mine(lowtide.mmap):
        def __new__(cls, *args, note=None, **kwargs):
            self = super().__new__(cls, *args, **kwargs)
            self.note = note
            return self

    with open(numbers, "rb") as file:
        mapped = Mine(file.fileno(), 0, prot=mmap.PROT_READ, budget="8M", note="mine")
    assert mapped.note == "mine" and mapped.adopted
    mapped.close()
    with pytest.raises(TypeError):
        pickle.dumps(mapped)


def test_threads_read_and_close_their_own_maps(numbers):
    pager, errors = lowtide.Pager("4M"), []

    def work(seed):
        try:
            for turn in range(10):
                with made(numbers, 0, access=mmap.ACCESS_READ, budget=pager) as mapped:
                    for at in range(seed, 8 * MIB, 50_021):
                        found = int.from_bytes(mapped[4 * at : 4 * at + 4], "little")
                        assert found == at, (turn, at, found)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors
    assert settled(lambda: pager.usage, 0) == 0
