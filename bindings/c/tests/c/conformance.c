/*
 * What a program in C relies on, function by function: results, error codes, threads, fork.
 * Prints the number of checks; ends with 1 at the first that fails.
 *
 *   conformance DIRECTORY [MODE]
 *
 * MODE is that of mappings. Valgrind runs one thread at a time, and so stands still in "userfault",
 * where one thread waits in a load for another: it needs "pagecache".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <lowtide.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB 1024ull
#define MIB (1024 * KIB)
#define PAGE 4096ull
/* The file that is read has this many pages, four times the budget. */
#define PAGES 1024ull
#define BUDGET (1 * MIB)

static int checks;

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        checks++;                                                                           \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,             \
                    lt_last_error());                                                       \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

#define IS(code, call)                                                                      \
    do {                                                                                    \
        int is = (call);                                                                    \
        checks++;                                                                           \
        if (is != (code)) {                                                                 \
            fprintf(stderr, "%s:%d: %s is %d (%s: %s), not %s\n", __FILE__, __LINE__, #call, \
                    is, lt_strerror(is), lt_last_error(), #code);                           \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

#define OK(call) IS(LT_OK, call)
#define SAYS(text) CHECK(strstr(lt_last_error(), text) != NULL)

static char directory[4096];
static const char *mode;

static const char *in(const char *name) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

/* Each page begins with its number. */
static void fill(const char *path, uint64_t pages) {
    FILE *file = fopen(path, "w");
    char page[PAGE];
    CHECK(file != NULL);
    for (uint64_t i = 0; i < pages; i++) {
        memset(page, (int)(i & 0xff), sizeof page);
        memcpy(page, &i, sizeof i);
        CHECK(fwrite(page, sizeof page, 1, file) == 1);
    }
    CHECK(fclose(file) == 0);
}

static uint64_t number(const void *page) {
    uint64_t n;
    memcpy(&n, page, sizeof n);
    return n;
}

static lt_pager *open_pager(uint64_t swap) {
    lt_pager_options options = {.size = sizeof options};
    lt_pager *pager;
    options.max = BUDGET;
    options.swap = swap;
    /* Of no room in a heap a program hears by a signal, and the device may be busy. */
    options.memory_timeout_ms = 3000;
    OK(lt_pager_open(&options, &pager));
    CHECK(pager != NULL);
    return pager;
}

static void texts(void) {
    CHECK(lt_version() == LT_VERSION && LT_VERSION >= 100);
    CHECK(LT_VERSION == LT_VERSION_MAJOR * 10000 + LT_VERSION_MINOR * 100 + LT_VERSION_PATCH);
    CHECK(strcmp(lt_strerror(LT_OK), "no error") == 0);
    CHECK(strcmp(lt_strerror(ENOENT), strerror(ENOENT)) == 0);
    CHECK(strstr(lt_strerror(LT_NO_ROOM), "budget") != NULL);
    CHECK(lt_strerror(-1) != NULL && lt_last_error() != NULL);
}

static void pagers(void) {
    lt_pager_options options = {.size = sizeof options};
    lt_pager *pager = (lt_pager *)&options;
    options.max = 100;
    IS(EINVAL, lt_pager_open(&options, &pager));
    CHECK(pager == NULL);
    SAYS("too small");
    options.max = BUDGET;
    IS(EINVAL, lt_pager_open(&options, NULL));
    options.policy = "best";
    IS(EINVAL, lt_pager_open(&options, &pager));
    SAYS("best");
    options.policy = "\xff";
    IS(EINVAL, lt_pager_open(&options, &pager));
    options.policy = "tide";
    options.io_engine = "floppy";
    IS(EINVAL, lt_pager_open(&options, &pager));
    options.io_engine = "psync";
    options.page_size = 1000;
    IS(EINVAL, lt_pager_open(&options, &pager));
    options.page_size = 16384;
    options.depth = 4;
    options.flags = LT_PAGER_NO_BACKGROUND | LT_PAGER_BUFFERED;
    OK(lt_pager_open(&options, &pager));
    CHECK(lt_pager_page_size(pager) == 16384 && lt_pager_page_size(NULL) == 0);
    OK(lt_pager_close(pager));
    OK(lt_pager_close(NULL));
    options.warm = "warm.list";
    OK(lt_pager_open(&options, &pager));
    OK(lt_pager_wait_warm(pager, 0));
    OK(lt_pager_save_warm(pager, "other.list"));
    IS(ENOENT, lt_pager_save_warm(pager, "nowhere/list"));
    SAYS("nowhere/list");
    IS(EINVAL, lt_pager_save_warm(pager, NULL));
    OK(lt_pager_close(pager));
    CHECK(access("warm.list", R_OK) == 0 && unlink("warm.list") == 0 && unlink("other.list") == 0);
    options.warm = NULL;
    options.flags = LT_PAGER_DIRECT | LT_PAGER_BUFFERED;
    IS(EINVAL, lt_pager_open(&options, &pager));
    options.flags = LT_VIEW_CREATE;
    IS(EINVAL, lt_pager_open(&options, &pager));
    SAYS("LT_VIEW_CREATE is a flag of lt_view_options");
    options.flags = 1u << 31;
    IS(LT_TOO_NEW, lt_pager_open(&options, &pager));
    SAYS("0x80000000");

    /* Structures of another header. */
    lt_pager_options none = {.size = 0};
    IS(EINVAL, lt_pager_open(&none, &pager));
    SAYS("sizeof");
    struct {
        lt_pager_options known;
        uint64_t later;
    } newer = {.known = {.size = sizeof newer, .max = BUDGET}, .later = 0};
    OK(lt_pager_open(&newer.known, &pager));
    OK(lt_pager_close(pager));
    newer.later = 1;
    IS(LT_TOO_NEW, lt_pager_open(&newer.known, &pager));
    struct {
        size_t size;
        uint64_t max;
        char canary[64];
    } older = {.size = 16, .max = BUDGET};
    memset(older.canary, 0xff, sizeof older.canary);
    OK(lt_pager_open((lt_pager_options *)&older, &pager));
    OK(lt_pager_close(pager));
}

static void tenants(lt_pager *pager) {
    lt_tenant_options options = {.size = sizeof options};
    lt_tenant *search, *hot, *found, *root;
    options.max = 512 * KIB;
    options.low = 64 * KIB;
    OK(lt_tenant_create(pager, NULL, "search", &options, &search));
    IS(LT_EXISTS, lt_tenant_create(pager, NULL, "search", &options, &found));
    CHECK(found == NULL);
    OK(lt_tenant_create(pager, search, "hot", NULL, &hot));
    OK(lt_tenant_find(pager, "search/hot", &found));
    OK(lt_tenant_close(found));
    IS(ENOENT, lt_tenant_find(pager, "nothing", &found));
    IS(EINVAL, lt_tenant_find(pager, NULL, &found));
    IS(EINVAL, lt_tenant_create(pager, NULL, "a/b", NULL, &found));
    IS(EINVAL, lt_tenant_create(NULL, NULL, "a", NULL, &found));
    OK(lt_tenant_find(pager, "", &root));
    IS(EINVAL, lt_tenant_set(root, LT_LIMIT_LOW, 0));
    IS(EINVAL, lt_tenant_set(search, 99, 0));
    /* A tenant pays in its own pager. */
    lt_pager *rival = open_pager(0);
    lt_region_options of_other = {.size = sizeof of_other, .tenant = search};
    lt_region *region;
    IS(EINVAL, lt_region_open(rival, MIB, &of_other, &region));
    SAYS("another pager");
    CHECK(region == NULL);
    IS(EINVAL, lt_tenant_create(rival, search, "below", NULL, &found));
    CHECK(found == NULL);
    OK(lt_pager_close(rival));
    OK(lt_tenant_set(search, LT_LIMIT_MIN, 4096));
    OK(lt_tenant_set(search, LT_LIMIT_HIGH, LT_UNLIMITED));
    OK(lt_tenant_set(search, LT_LIMIT_SWAP, 0));

    /* It pays, and no more than its limit. */
    lt_view_options reading = {.size = sizeof reading, .tenant = search};
    lt_view *view;
    uint64_t usage = 0, evicted = 0;
    OK(lt_view_open(pager, in("numbers"), &reading, &view));
    for (uint64_t i = 0; i < PAGES; i++) {
        uint64_t n;
        OK(lt_view_read_at(view, i * PAGE, &n, sizeof n));
        CHECK(n == i);
    }
    OK(lt_tenant_usage(search, &usage));
    CHECK(usage > 64 * KIB && usage <= 512 * KIB);
    lt_event_counts counts = {.size = sizeof counts};
    OK(lt_tenant_events(search, &counts));
    CHECK(counts.max > 0 && counts.oom == 0);
    IS(EINVAL, lt_tenant_events(search, NULL));
    OK(lt_tenant_set(search, LT_LIMIT_MAX, 128 * KIB));
    OK(lt_tenant_usage(search, &usage));
    CHECK(usage <= 128 * KIB);
    OK(lt_tenant_reclaim(search, 64 * KIB, &evicted));
    OK(lt_tenant_reclaim(search, 0, NULL));
    IS(EINVAL, lt_tenant_usage(search, NULL));
    OK(lt_view_close(view));

    IS(ENOTEMPTY, lt_tenant_remove(search));
    OK(lt_tenant_remove(hot));
    IS(LT_GONE, lt_tenant_usage(hot, &usage));
    OK(lt_tenant_remove(search));
    reading.tenant = search;
    IS(LT_GONE, lt_view_open(pager, in("numbers"), &reading, &view));
    IS(EINVAL, lt_tenant_remove(root));
    OK(lt_tenant_close(root));
    OK(lt_tenant_close(hot));
    OK(lt_tenant_close(search));
    OK(lt_tenant_close(NULL));
}

struct seen {
    const uint64_t *pages;
    int count;
    int wrong;
    lt_view *view;
    int nested;
    lt_pager *pager;
};

static int look(void *arg, size_t index, const void *data, size_t len) {
    struct seen *seen = arg;
    seen->count++;
    seen->wrong += len != PAGE || number(data) != seen->pages[index];
    return 0;
}

/* Has seen enough after five pages. */
static int look_at_five(void *arg, size_t index, const void *data, size_t len) {
    struct seen *seen = arg;
    look(arg, index, data, len);
    return seen->count == 5 ? 77 : 0;
}

/* Stores to a page that another call has: it must not wait. */
static int look_and_store(void *arg, size_t index, const void *data, size_t len) {
    struct seen *seen = arg;
    look(arg, index, data, len);
    lt_page page = {.size = sizeof page};
    if (lt_view_pin(seen->view, seen->pages[index], &page) == LT_OK) {
        seen->nested += lt_view_write_at(seen->view, seen->pages[index] * PAGE + 8, "x", 1) != LT_OK;
        lt_unpin(&page);
    }
    return 0;
}

static int look_and_close(void *arg, size_t index, const void *data, size_t len) {
    struct seen *seen = arg;
    lt_view *other;
    (void)index, (void)data, (void)len;
    IS(LT_NESTED, lt_view_close(seen->view));
    OK(lt_view_open(seen->pager, in("numbers"), NULL, &other));
    OK(lt_view_close(other));
    return 0;
}

static void views(lt_pager *pager) {
    lt_view_options options = {.size = sizeof options};
    lt_view *view, *other;
    char bytes[64] = {0};
    IS(ENOENT, lt_view_open(pager, in("nothing"), NULL, &view));
    SAYS("nothing");
    IS(EINVAL, lt_view_open(pager, directory, NULL, &view));
    IS(EINVAL, lt_view_open(pager, NULL, NULL, &view));
    IS(EINVAL, lt_view_open(NULL, "x", NULL, &view));
    IS(EBADF, lt_view_open_fd(pager, 12345, NULL, &view));

    /* A flag of another structure does not make a file. */
    options.flags = LT_PAGER_POPULATE;
    IS(EINVAL, lt_view_open(pager, in("nothing"), &options, &view));
    SAYS("LT_PAGER_POPULATE is a flag of lt_pager_options");
    options.flags = LT_MAP_WRITE | LT_VIEW_WRITE;
    IS(EINVAL, lt_view_open(pager, in("nothing"), &options, &view));
    options.flags = 1u << 19;
    IS(LT_TOO_NEW, lt_view_open(pager, in("nothing"), &options, &view));
    CHECK(access(in("nothing"), F_OK) != 0);

    /* A file is made, written, and read by others. */
    options.flags = LT_VIEW_CREATE_NEW;
    options.create_size = 10000;
    OK(lt_view_open(pager, in("made"), &options, &view));
    IS(EEXIST, lt_view_open(pager, in("made"), &options, &other));
    CHECK(lt_view_len(view) == 10000 && lt_view_len(NULL) == 0);
    OK(lt_view_write_at(view, 5000, "hello", 5));
    OK(lt_view_write_at(view, 20000, "end", 3));
    OK(lt_view_write_at(view, 0, NULL, 0));
    IS(EINVAL, lt_view_write_at(view, 0, NULL, 1));
    CHECK(lt_view_len(view) == 20003);
    OK(lt_view_flush(view));
    OK(lt_view_flush_range(view, 0, 4096));
    int fd = open(in("made"), O_RDONLY);
    CHECK(pread(fd, bytes, 5, 5000) == 5 && memcmp(bytes, "hello", 5) == 0);
    IS(LT_OUT_OF_RANGE, lt_view_read_at(view, 20000, bytes, 4));
    SAYS("20003 bytes long");
    IS(EINVAL, lt_view_read_at(view, 0, NULL, 1));
    OK(lt_view_read_at(view, 20000, bytes, 3));
    OK(lt_view_punch(view, 4096, 4096));
    OK(lt_view_read_at(view, 5000, bytes, 5));
    CHECK(memcmp(bytes, "\0\0\0\0\0", 5) == 0);
    OK(lt_view_set_len(view, 100));
    CHECK(lt_view_len(view) == 100);

    /* One program at a time writes it: another pager is another program. */
    lt_pager *rival = open_pager(0);
    options.flags = LT_VIEW_WRITE | LT_VIEW_NO_WAIT;
    IS(LT_LOCKED, lt_view_open(rival, in("made"), &options, &other));
    options.flags = LT_VIEW_WRITE | LT_VIEW_NO_WAIT | LT_VIEW_NO_LOCK;
    OK(lt_view_open(rival, in("made"), &options, &other));
    OK(lt_view_close(other));
    OK(lt_pager_close(rival));
    OK(lt_view_close(view));

    OK(lt_view_open_fd(pager, fd, NULL, &view));
    close(fd);
    IS(LT_READ_ONLY, lt_view_write_at(view, 0, "x", 1));
    IS(LT_READ_ONLY, lt_view_set_len(view, 0));
    IS(LT_READ_ONLY, lt_view_punch(view, 0, 1));
    OK(lt_view_flush(view));
    OK(lt_view_close(view));
    OK(lt_view_close(NULL));
}

static void pins(lt_pager *pager) {
    lt_view_options options = {.size = sizeof options, .flags = LT_VIEW_WRITE};
    lt_view *view;
    lt_page page = {.size = sizeof page}, again = page, none = {0};
    OK(lt_view_open(pager, in("numbers"), &options, &view));
    IS(LT_NOT_RESIDENT, lt_view_try_pin(view, 7, &page));
    CHECK(page.data == NULL);
    OK(lt_view_pin(view, 7, &page));
    CHECK(page.len == PAGE && number(page.data) == 7);
    IS(EINVAL, lt_view_pin(view, 8, &page));
    OK(lt_view_try_pin(view, 7, &again));
    CHECK(again.data == page.data);
    IS(LT_HELD_HERE, lt_view_write_at(view, 7 * PAGE + 8, "x", 1));
    IS(LT_HELD_HERE, lt_view_set_len(view, 0));
    OK(lt_unpin(&page));
    OK(lt_unpin(&page));
    OK(lt_unpin(&again));
    OK(lt_unpin(NULL));

    /* A copy of the structure is the same pin, which is unpinned once, through either. */
    lt_page copy, other = {.size = sizeof other};
    OK(lt_view_pin(view, 7, &page));
    copy = page;
    OK(lt_unpin(&copy));
    OK(lt_view_pin(view, 9, &other));
    IS(EINVAL, lt_unpin(&page));
    SAYS("a copy of this structure");
    copy = page;
    for (uint64_t i = 100; i < PAGES; i++) {
        uint64_t n;
        OK(lt_view_read_at(view, i * PAGE, &n, sizeof n));
        CHECK(n == i);
    }
    CHECK(number(other.data) == 9);
    OK(lt_unpin(&other));
    IS(EINVAL, lt_unpin(&copy));
    page = (lt_page){.size = sizeof page};
    OK(lt_view_write_at(view, 7 * PAGE + 8, "x", 1));
    IS(LT_OUT_OF_RANGE, lt_view_pin(view, PAGES, &page));
    IS(LT_OUT_OF_RANGE, lt_view_try_pin(view, UINT64_MAX, &page));
    IS(EINVAL, lt_view_pin(view, 0, NULL));
    IS(EINVAL, lt_view_pin(view, 0, &none));
    SAYS("sizeof");
    IS(EINVAL, lt_view_pin(NULL, 0, &page));

    /* A budget that is pinned as a whole has no room. */
    static lt_page all[PAGES];
    int code = LT_OK;
    uint64_t held = 0;
    while (code == LT_OK && held < PAGES) {
        all[held].size = sizeof(lt_page);
        code = lt_view_pin(view, held, &all[held]);
        held += code == LT_OK;
    }
    CHECK(code == LT_NO_ROOM && held > 100 && held <= BUDGET / PAGE);
    for (uint64_t i = 0; i < held; i++) {
        CHECK(number(all[i].data) == i);
        OK(lt_unpin(&all[i]));
    }

    /* Many at once, in any order. */
    uint64_t pages[300];
    for (uint64_t i = 0; i < 300; i++) {
        pages[i] = (i * 7919) % PAGES;
    }
    struct seen seen = {pages, 0, 0, view, 0, pager};
    OK(lt_view_get_many(view, pages, 300, look, &seen));
    CHECK(seen.count == 300 && seen.wrong == 0);
    seen.count = 0;
    IS(77, lt_view_get_many(view, pages, 300, look_at_five, &seen));
    CHECK(seen.count == 5 && seen.wrong == 0);
    OK(lt_view_get_many(view, NULL, 0, look, &seen));
    IS(EINVAL, lt_view_get_many(view, NULL, 1, look, &seen));
    IS(EINVAL, lt_view_get_many(view, pages, 1, NULL, &seen));
    pages[20] = PAGES;
    IS(LT_OUT_OF_RANGE, lt_view_get_many(view, pages, 21, look, &seen));
    seen.count = 0;
    OK(lt_view_get_many(view, pages, 10, look_and_store, &seen));
    CHECK(seen.count == 10 && seen.wrong == 0 && seen.nested == 10);

    /* The view whose pages are shown cannot be closed; another one can. */
    OK(lt_view_get_many(view, pages, 5, look_and_close, &seen));
    CHECK(seen.wrong == 0);

    /* What is asked for before it is needed comes by itself. */
    OK(lt_view_flush(view));
    lt_tenant *root;
    OK(lt_tenant_find(pager, "", &root));
    lt_range ranges[2] = {{600 * PAGE, 4 * PAGE}, {PAGES * PAGE, PAGE}};
    OK(lt_tenant_reclaim(root, BUDGET, NULL));
    OK(lt_tenant_close(root));
    OK(lt_view_prefetch(view, ranges, 2));
    IS(EINVAL, lt_view_prefetch(view, NULL, 1));
    int waits = 0;
    while ((code = lt_view_try_pin(view, 603, &page)) == LT_NOT_RESIDENT && waits++ < 30000) {
        usleep(1000);
    }
    OK(code);
    CHECK(number(page.data) == 603);
    OK(lt_unpin(&page));
    OK(lt_view_close(view));
}

static void maps(lt_pager *pager) {
    lt_map_options options = {.size = sizeof options, .mode = mode};
    lt_mapping *map;
    int fd = open(in("numbers"), O_RDONLY);
    OK(lt_map(pager, fd, mode ? &options : NULL, &map));
    CHECK(lt_map_len(map) == PAGES * PAGE && lt_map_len(NULL) == 0);
    CHECK(lt_map_data(NULL) == NULL);
    const char *data = lt_map_data(map);
    for (uint64_t i = 0; i < PAGES; i++) {
        CHECK(number(data + i * PAGE) == i);
    }
    lt_range range = {8 * PAGE, 4 * PAGE}, outside = {PAGES * PAGE, 1};
    OK(lt_map_prefetch(map, &range, 1));
    IS(EINVAL, lt_map_prefetch(map, &outside, 1));
    OK(lt_map_advise(map, 0, PAGE, LT_ADVICE_RANDOM));
    IS(EINVAL, lt_map_advise(map, 0, PAGE, 77));
    IS(EINVAL, lt_map_advise(map, 0, UINT64_MAX, LT_ADVICE_NORMAL));
    OK(lt_map_flush(map, 0, PAGE));
    IS(EINVAL, lt_map_flush(map, PAGES * PAGE, 1));
    OK(lt_map_error(map));
    OK(lt_unmap(map));
    OK(lt_unmap(NULL));

    options.offset = 3 * PAGE;
    options.len = 2 * PAGE;
    OK(lt_map(pager, fd, &options, &map));
    CHECK(lt_map_len(map) == 2 * PAGE && number(lt_map_data(map)) == 3);
    OK(lt_unmap(map));
    options.mode = "floppy";
    IS(EINVAL, lt_map(pager, fd, &options, &map));
    CHECK(map == NULL);
    options.mode = mode;
    options.flags = LT_MAP_WRITE;
    IS(EACCES, lt_map(pager, fd, &options, &map));
    options.flags = LT_MAP_WRITE | LT_MAP_COPY;
    IS(EINVAL, lt_map(pager, fd, &options, &map));
    IS(EBADF, lt_map(pager, 12345, NULL, &map));
    /* What a failed open(2) returned. */
    IS(EBADF, lt_map(pager, -1, NULL, &map));
    SAYS("open(2)");
    options.flags = LT_VIEW_NO_READ_AHEAD;
    IS(EINVAL, lt_map(pager, fd, &options, &map));
    SAYS("LT_VIEW_NO_READ_AHEAD");

    /* Stores that are the mapping's own, and stores that reach the file. */
    uint64_t n = 0;
    options.flags = LT_MAP_COPY;
    OK(lt_map(pager, fd, &options, &map));
    memcpy(lt_map_data(map), "copy", 4);
    OK(lt_unmap(map));
    CHECK(pread(fd, &n, sizeof n, 3 * PAGE) == sizeof n && n == 3);
    close(fd);
    fd = open(in("stored"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(ftruncate(fd, 64 * PAGE) == 0);
    options = (lt_map_options){.size = sizeof options, .flags = LT_MAP_WRITE, .mode = mode};
    OK(lt_map(pager, fd, &options, &map));
    memcpy((char *)lt_map_data(map) + 9 * PAGE, "stored", 6);
    OK(lt_map_flush(map, 9 * PAGE, 6));
    OK(lt_unmap(map));
    char bytes[6];
    CHECK(pread(fd, bytes, 6, 9 * PAGE) == 6 && memcmp(bytes, "stored", 6) == 0);
    close(fd);
}

/* Where the kernel has userfaultfd for this process. */
static void heaps(lt_pager *pager) {
    lt_map_options options = {.size = sizeof options, .mode = mode, .flags = LT_MAP_COPY};
    lt_mapping *map;
    IS(EINVAL, lt_map_anon(pager, 4 * MIB, &options, &map));
    SAYS("LT_MAP_COPY is refused");
    options.flags = 0;
    options.len = 4 * MIB;
    IS(EINVAL, lt_map_anon(pager, 4 * MIB, &options, &map));
    options.len = 0;
    IS(EINVAL, lt_map_anon(pager, 0, &options, &map));
    if (mode != NULL && strcmp(mode, "pagecache") == 0) {
        IS(LT_NOT_POSSIBLE, lt_map_anon(pager, 4 * MIB, &options, &map));
        return;
    }
    int code = lt_map_anon(pager, 4 * MIB, mode ? &options : NULL, &map);
    if (code == LT_NOT_POSSIBLE || code == EPERM) {
        printf("SKIPPED: memory behind a pointer: %s\n", lt_last_error());
        return;
    }
    OK(code);
    unsigned char *heap = lt_map_data(map);
    for (uint64_t i = 0; i < 4 * MIB / PAGE; i++) {
        memset(heap + i * PAGE, (int)i, PAGE);
    }
    for (uint64_t i = 0; i < 4 * MIB / PAGE; i++) {
        CHECK(heap[i * PAGE + 77] == (unsigned char)i);
    }
    lt_stats stats = {.size = sizeof stats};
    OK(lt_pager_stat(pager, &stats));
    CHECK(stats.usage <= BUDGET);
    OK(lt_unmap(map));
}

static void adopted(lt_pager *pager) {
    int fd = open(in("numbers"), O_RDONLY);
    size_t len = PAGES * PAGE;
    char *data = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    lt_adopted *adopted;
    lt_map_options options = {.size = sizeof options};
    CHECK(data != MAP_FAILED);
    IS(EINVAL, lt_adopt(pager, fd, data + 1, len, NULL, &adopted));
    IS(EINVAL, lt_adopt(pager, fd, data, 0, NULL, &adopted));
    IS(EINVAL, lt_adopt(pager, fd, NULL, len, NULL, &adopted));
    IS(EBADF, lt_adopt(pager, 12345, data, len, NULL, &adopted));
    options.flags = LT_MAP_WRITE;
    IS(EINVAL, lt_adopt(pager, fd, data, len, &options, &adopted));
    SAYS("LT_MAP_WRITE is refused");
    options.flags = LT_MAP_NO_READ_AHEAD;
    OK(lt_adopt(pager, fd, data, len, &options, &adopted));
    close(fd);
    lt_range next = {100 * PAGE, 8 * PAGE}, outside = {len, 1};
    OK(lt_adopted_prefetch(adopted, &next, 1));
    IS(EINVAL, lt_adopted_prefetch(adopted, &outside, 1));
    for (uint64_t i = 0; i < PAGES; i++) {
        CHECK(number(data + i * PAGE) == i);
    }
    /* What is more than the budget goes, after a moment. */
    uint64_t resident = UINT64_MAX;
    for (int i = 0; i < 30000; i++) {
        OK(lt_adopted_resident(adopted, &resident));
        if (resident > 0 && resident <= BUDGET) {
            break;
        }
        usleep(1000);
    }
    CHECK(resident > 0 && resident <= BUDGET);
    IS(EINVAL, lt_adopted_resident(adopted, NULL));
    OK(lt_forget_range(adopted, 0, 10 * PAGE));
    IS(EINVAL, lt_forget_range(adopted, 0, UINT64_MAX));
    OK(lt_forget(adopted));
    OK(lt_forget(NULL));
    CHECK(number(data + 5 * PAGE) == 5);
    munmap(data, len);
}

static void regions(lt_pager *pager) {
    lt_region_options options = {.size = sizeof options, .name = "sort"};
    lt_region *region;
    lt_page page = {.size = sizeof page};
    char bytes[PAGE];
    OK(lt_region_open(pager, 4 * MIB, &options, &region));
    CHECK(lt_region_len(region) == 4 * MIB && lt_region_len(NULL) == 0);
    for (uint64_t i = 0; i < PAGES; i++) {
        memset(bytes, (int)i, sizeof bytes);
        OK(lt_region_write_at(region, i * PAGE, bytes, sizeof bytes));
    }
    lt_stats stats = {.size = sizeof stats};
    OK(lt_pager_stat(pager, &stats));
    CHECK(stats.usage <= BUDGET && stats.anon > 0);
    for (uint64_t i = 0; i < PAGES; i++) {
        OK(lt_region_read_at(region, i * PAGE + 100, bytes, 8));
        CHECK(bytes[0] == (char)i && bytes[7] == (char)i);
    }
    OK(lt_region_pin(region, 700, &page));
    CHECK(*(const unsigned char *)page.data == (unsigned char)700);
    IS(LT_HELD_HERE, lt_region_write_at(region, 700 * PAGE, "x", 1));
    OK(lt_unpin(&page));
    OK(lt_region_clear(region, 0, 2 * MIB));
    OK(lt_region_read_at(region, 0, bytes, 8));
    CHECK(bytes[0] == 0);
    OK(lt_region_grow(region, PAGE));
    CHECK(lt_region_len(region) == 4 * MIB + PAGE);
    IS(LT_OUT_OF_RANGE, lt_region_read_at(region, 5 * MIB, bytes, 8));
    IS(LT_OUT_OF_RANGE, lt_region_write_at(region, 5 * MIB, bytes, 8));
    IS(LT_OUT_OF_RANGE, lt_region_pin(region, 5 * PAGES, &page));
    IS(EINVAL, lt_region_read_at(region, 0, NULL, 8));
    OK(lt_region_close(region));
    IS(EINVAL, lt_region_open(NULL, 1, NULL, &region));
    CHECK(region == NULL);
    OK(lt_region_close(NULL));
}

static void stats(lt_pager *pager) {
    lt_stats stats = {.size = sizeof stats};
    OK(lt_pager_stat(pager, &stats));
    CHECK(stats.size == sizeof stats && stats.budget == BUDGET && stats.poisoned == 0);
    CHECK(stats.reads > 0 && stats.read_bytes >= stats.reads * PAGE && stats.misses > 0);
    IS(EINVAL, lt_pager_stat(pager, NULL));
    IS(EINVAL, lt_pager_stat(NULL, &stats));
    /* An older program has fewer fields, and nothing is written past them. */
    struct {
        size_t size;
        uint64_t budget;
        uint64_t canary;
    } older = {16, 0, 42};
    OK(lt_pager_stat(pager, (lt_stats *)&older));
    CHECK(older.budget == BUDGET && older.canary == 42 && older.size == 16);

    size_t needed = 0;
    char few[8], *text;
    IS(ERANGE, lt_pager_stat_text(pager, NULL, 0, &needed));
    IS(ERANGE, lt_pager_stat_text(pager, few, sizeof few, NULL));
    CHECK(strlen(few) == 7);
    text = malloc(needed + 100);
    OK(lt_pager_stat_text(pager, text, needed + 100, NULL));
    CHECK(strstr(text, "workingset_refault_file ") && strstr(text, "misses "));
    free(text);
}

static int logged;

static void take_log(int level, const char *text, void *arg) {
    CHECK(level <= LT_LOG_DEBUG && text[0] != 0 && arg == &logged);
    __atomic_add_fetch(&logged, 1, __ATOMIC_RELAXED);
}

static void logs(void) {
    IS(EINVAL, lt_set_log(9, take_log, &logged));
    OK(lt_set_log(LT_LOG_DEBUG, take_log, &logged));
    /* A lock that is waited for is worth a message. */
    lt_pager *one = open_pager(0), *two = open_pager(0);
    lt_view_options options = {.size = sizeof options, .flags = LT_VIEW_WRITE, .lock_timeout_ms = 1};
    lt_view *first, *second;
    OK(lt_view_open(one, in("numbers"), &options, &first));
    IS(LT_LOCKED, lt_view_open(two, in("numbers"), &options, &second));
    CHECK(__atomic_load_n(&logged, __ATOMIC_RELAXED) > 0);
    OK(lt_set_log(0, NULL, NULL));
    int before = __atomic_load_n(&logged, __ATOMIC_RELAXED);
    IS(LT_LOCKED, lt_view_open(two, in("numbers"), &options, &second));
    CHECK(before == __atomic_load_n(&logged, __ATOMIC_RELAXED));
    OK(lt_view_close(first));
    OK(lt_pager_close(one));
    OK(lt_pager_close(two));
}

#define THREADS 8

static lt_view *shared;
static lt_page pinned_elsewhere = {.size = sizeof pinned_elsewhere};

static void *reader(void *arg) {
    uint64_t seed = (uint64_t)(uintptr_t)arg, wrong = 0;
    for (int i = 0; i < 2000; i++) {
        lt_page page = {.size = sizeof page};
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t n = (seed >> 33) % PAGES;
        wrong += lt_view_pin(shared, n, &page) != LT_OK || number(page.data) != n;
        wrong += lt_unpin(&page) != LT_OK;
    }
    return (void *)(uintptr_t)wrong;
}

static void *other_thread(void *arg) {
    (void)arg;
    /* An error of this thread is not one of the other. */
    CHECK(strcmp(lt_last_error(), "") == 0);
    IS(LT_WRONG_THREAD, lt_unpin(&pinned_elsewhere));
    CHECK(strstr(lt_last_error(), "another thread") != NULL);
    return NULL;
}

static void *pin_and_end(void *arg) {
    OK(lt_view_pin(shared, 6, arg));
    return NULL;
}

static void *unpin_later(void *arg) {
    IS(LT_WRONG_THREAD, lt_unpin(arg));
    return NULL;
}

static void threads(lt_pager *pager) {
    pthread_t all[THREADS], other;
    void *wrong;
    OK(lt_view_open(pager, in("numbers"), NULL, &shared));
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&all[i], NULL, reader, (void *)(i + 1)) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(all[i], &wrong) == 0 && wrong == NULL);
    }
    OK(lt_view_pin(shared, 5, &pinned_elsewhere));
    IS(LT_OUT_OF_RANGE, lt_view_pin(shared, PAGES, &(lt_page){.size = sizeof(lt_page)}));
    CHECK(pthread_create(&other, NULL, other_thread, NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    SAYS("out of bounds");
    CHECK(number(pinned_elsewhere.data) == 5);
    OK(lt_unpin(&pinned_elsewhere));
    OK(lt_view_close(shared));
}

static void forks(lt_pager *pager) {
    lt_view *view;
    int status = -1;
    OK(lt_view_open(pager, in("numbers"), NULL, &view));
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        lt_page page = {.size = sizeof page};
        uint64_t n;
        IS(LT_FORKED, lt_view_pin(view, 1, &page));
        SAYS("fork");
        IS(LT_FORKED, lt_view_read_at(view, 0, &n, sizeof n));
        IS(LT_FORKED, lt_view_close(view));
        IS(LT_FORKED, lt_pager_close(pager));
        CHECK(lt_view_len(view) == 0);
        /* Valgrind does not know that memory of pagers is left out of children (MADV_DONTFORK), gives
         * up where the child maps something there, and misses what the parent's threads have. */
        if (mode != NULL) {
            execl("/bin/true", "true", (char *)NULL);
        }
        lt_pager *own = open_pager(0);
        lt_view *own_view;
        OK(lt_view_open(own, in("numbers"), NULL, &own_view));
        OK(lt_view_pin(own_view, 9, &page));
        CHECK(number(page.data) == 9);
        OK(lt_unpin(&page));
        OK(lt_view_close(own_view));
        OK(lt_pager_close(own));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    lt_page page = {.size = sizeof page};
    OK(lt_view_pin(view, 1, &page));
    OK(lt_unpin(&page));
    OK(lt_view_close(view));
}

/* A page stays with a thread that has ended, whatever a later thread has of it. In a child: it stays
 * for ever. */
static void ended_threads(void) {
    int status = -1;
    if (mode != NULL) {
        return; /* Valgrind: see `forks`. */
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        lt_page page = {.size = sizeof page};
        pthread_t thread;
        OK(lt_view_open(open_pager(0), in("numbers"), NULL, &shared));
        CHECK(pthread_create(&thread, NULL, pin_and_end, &page) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, unpin_later, &page) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(number(page.data) == 6);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: conformance DIRECTORY [MODE]\n");
        return 2;
    }
    mode = argc == 3 ? argv[2] : NULL;
    snprintf(directory, sizeof directory, "%s", argv[1]);
    fill(in("numbers"), PAGES);
    texts();
    pagers();
    lt_pager *pager = open_pager(512 * KIB);
    tenants(pager);
    views(pager);
    pins(pager);
    stats(pager);
    maps(pager);
    heaps(pager);
    adopted(pager);
    regions(pager);
    logs();
    threads(pager);
    forks(pager);
    ended_threads();
    OK(lt_pager_close(pager));
    printf("%d checks\n", checks);
    return 0;
}
