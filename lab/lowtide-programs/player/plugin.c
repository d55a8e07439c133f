/* A library whose constructor uses memory, under the loader's lock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern int plugin_does;
int plugin_result;

static char *mapped(int prot, int flags, int file) {
    char *got = mmap(0, 300 * 4096, prot, flags, file, 0);
    return got == MAP_FAILED ? 0 : got;
}

__attribute__((constructor)) static void begin(void) {
    char *got = 0;
    if (plugin_does == 0) got = malloc(300 * 4096);
    if (plugin_does == 1) got = mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (plugin_does == 2 || plugin_does == 3) {
        int file = open(getenv("PLAYER_DATA"), O_RDONLY);
        if (file >= 0) got = mapped(PROT_READ, plugin_does == 2 ? MAP_SHARED : MAP_PRIVATE, file);
        if (file >= 0) close(file);
    }
    if (plugin_does == 4) {
        plugin_result = 2;
        return;
    }
    plugin_result = got ? 1 : 0;
    if (got && plugin_does < 2) got[5 * 4096] = 1;
    if (got && plugin_does >= 2) plugin_result += got[5 * 4096] == 77;
    if (got && plugin_does == 0) free(got);
    else if (got) munmap(got, 300 * 4096);
}
