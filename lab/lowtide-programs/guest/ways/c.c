/* The C library. */
#include "../guest.h"
#include <lowtide.h>

static void must(int code) {
    if (code == LT_OK) return;
    fprintf(stderr, "guest: %s\n", lt_last_error());
    _exit(94);
}

/* Without lowtide. */
static int plain(void) {
    guest_look("before");
    for (int kind = 0; kind < KINDS; kind++) guest_has(MAPPED, kind, guest_mmap(MAPPED, kind));
    guest_look("map"), guest_look("view"), guest_look("region");
    for (int kind = 0; kind < KINDS; kind++) guest_has(ADOPTED, kind, guest_mmap(ADOPTED, kind));
    guest_look("adopt");
    guest_act();
    guest_unmap();
    return guest_end();
}

int main(int count, char **arguments) {
    lt_pager *pager = 0;
    lt_mapping *maps[KINDS];
    lt_view *views[KINDS] = { 0 };
    lt_region *region;
    lt_adopted *adopted[KINDS];
    lt_pager_options options = { .size = sizeof options, .max = 256 * MIB };
    static char bytes[FILE_BYTES];
    if (count < 3) return 64;
    guest_begin(arguments[2]);
    if (!strcmp(arguments[1], "plain")) return plain();
    guest_look("before");
    must(lt_pager_open(&options, &pager));
    for (int kind = 0; kind < KINDS; kind++) {
        must(lt_map(pager, guest_file(MAPPED, kind), 0, &maps[kind]));
        guest_has(MAPPED, kind, lt_map_data(maps[kind]));
    }
    guest_look("map");
    for (int kind = 0; kind < KINDS; kind++) {
        /* Its bytes are another's meanwhile, by the lock that views use themselves. */
        if (kind == FLOCK) continue;
        must(lt_view_open(pager, guest_path(VIEWED, kind), 0, &views[kind]));
        must(lt_view_read_at(views[kind], 0, bytes, guest_len(VIEWED, kind)));
    }
    guest_look("view");
    must(lt_region_open(pager, MIB, 0, &region));
    must(lt_region_write_at(region, 0, bytes, sizeof bytes));
    guest_look("region");
    for (int kind = 0; kind < KINDS; kind++) {
        void *own = guest_mmap(ADOPTED, kind);
        must(lt_adopt(pager, guest_file(ADOPTED, kind), own, guest_len(ADOPTED, kind), 0, &adopted[kind]));
        guest_has(ADOPTED, kind, own);
    }
    guest_look("adopt");
    guest_act();
    for (int kind = 0; kind < KINDS; kind++) {
        must(lt_forget(adopted[kind])), must(lt_unmap(maps[kind])), must(lt_view_close(views[kind]));
        guest_has(MAPPED, kind, 0);
    }
    must(lt_region_close(region)), must(lt_pager_close(pager));
    return guest_end();
}
