/* A program that knows nothing of lowtide; alone, or under `lowtide run`. `inherited` says what it has of the program
 * that became it. */
#include "../guest.h"

int main(int count, char **arguments) {
    static char bytes[FILE_BYTES];
    if (count < 3) return say_inherited(), 0;
    guest_begin(arguments[2]);
    guest_look("before");
    for (int kind = 0; kind < KINDS; kind++) guest_has(MAPPED, kind, guest_mmap(MAPPED, kind));
    guest_look("map");
    for (int kind = 0; kind < KINDS; kind++)
        if (read(guest_file(VIEWED, kind), bytes, sizeof bytes) < 0) return 95;
    guest_look("view");
    char *region = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(region, 1, MIB);
    guest_look("region");
    guest_act();
    guest_unmap(), munmap(region, MIB);
    return guest_end();
}
