"""Python: `python.py plain|kept ACT`, with the library of checks in GUEST_LIBRARY."""

import ctypes
import mmap
import os
import sys

MAPPED, VIEWED, ADOPTED = range(3)
KINDS, FLOCK = range(6), 2
guest = ctypes.PyDLL(os.environ["GUEST_LIBRARY"])
guest.guest_path.restype = ctypes.c_char_p
guest.guest_mmap.restype = ctypes.c_void_p
guest.guest_len.restype = ctypes.c_size_t
guest.guest_has.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]


def look(moment):
    guest.guest_look(moment.encode())


is_plain = sys.argv[1] == "plain"
guest.guest_begin(sys.argv[2].encode())
look("before")
if not is_plain:
    import lowtide

    pager = lowtide.Pager("256M")
maps, views, adopted = [], [], []
for kind in KINDS:
    file, length = guest.guest_file(MAPPED, kind), guest.guest_len(MAPPED, kind)
    if is_plain:
        map = mmap.mmap(file, length, access=mmap.ACCESS_READ)
    else:
        map = lowtide.mmap(file, length, access=mmap.ACCESS_READ, budget=pager)
    maps.append(map)
    sum(map[:])
look("map")
for kind in KINDS:
    # One file is locked in the way in which views lock theirs.
    if not is_plain and kind != FLOCK:
        views.append(lowtide.open(guest.guest_path(VIEWED, kind).decode(), budget=pager))
        views[-1].read()
look("view")
for kind in KINDS:
    guest.guest_has(ADOPTED, kind, guest.guest_mmap(ADOPTED, kind))
    if not is_plain:
        path = guest.guest_path(ADOPTED, kind).decode()
        adopted.append(lowtide.adopt(path, budget=pager))
look("adopt")
guest.guest_act()
for each in adopted + views + maps:
    each.close()
if not is_plain:
    pager.close()
sys.exit(guest.guest_end())
