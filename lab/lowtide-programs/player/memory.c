/* Mappings: made, unmapped, moved, protected, advised, locked. */
#include "player.h"
#include <sys/stat.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define GUARD_INSTALL 102
#define GUARD_REMOVE 103

static int prot_of(int state) {
    return state == WRITE ? PROT_READ | PROT_WRITE : state == READ ? PROT_READ : PROT_NONE;
}

static int state_of(const struct op *op, int arg) { return is(op, arg, "rw") ? WRITE : is(op, arg, "r") ? READ : NONE; }

static void name_of(unsigned own, char *path, size_t room) { snprintf(path, room, "own-%u", own); }

/* What the file of an area must have, read through a descriptor. */
static void check_file(struct context *c, struct area *a) {
    static _Thread_local char bytes[PAGE];
    char path[32];
    name_of(a->own, path, sizeof path);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    for (unsigned i = 0; i < a->pages; i++)
        if (a->page[i].state != GONE && pread(file, bytes, PAGE, (off_t)(a->offset + i) * PAGE) == PAGE)
            check_page(c, &a->page[i], bytes, "file", i);
    close(file);
}

/* Gives an area up, in pieces: what lies between them may be another's. */
void drop(struct context *c, struct area *a) {
    if (a->kind == HEAP || a->kind == HEAP_ALIGNED) free(a->start);
    else if (a->kind != EMPTY) {
        if (a->own) check_file(c, a);
        for (unsigned i = 0; i < a->pages;) {
            unsigned end = i;
            while (end < a->pages && a->page[end].state != GONE) end++;
            if (end > i && munmap(at(a, i), (size_t)(end - i) * PAGE) < 0) wrong(c, "munmap: %s", strerror(errno));
            i = end + 1;
        }
    }
    a->kind = EMPTY, a->pages = 0;
}

/* map SLOT PAGES r|rw|none FLAGS: memory without a file. */
static void play_map(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    drop(c, a);
    unsigned pages = number(op, 1) % PAGES + 1;
    int state = state_of(op, 2), kind = is(op, 3, "shared") ? SHARED : ANON;
    int flags = MAP_ANONYMOUS | (kind == SHARED ? MAP_SHARED : MAP_PRIVATE);
    if (is(op, 3, "populate")) flags |= MAP_POPULATE;
    if (is(op, 3, "noreserve")) flags |= MAP_NORESERVE;
    if (is(op, 3, "stack")) flags |= MAP_STACK;
    if (is(op, 3, "locked")) flags |= MAP_LOCKED;
    void *got = mmap(0, (size_t)pages * PAGE, prot_of(state), flags, -1, 0);
    said(c, got == MAP_FAILED ? -1 : 0);
    if (got == MAP_FAILED) return;
    new_area(c, a, got, pages, kind, state);
    check(c, a, 0, pages);
}

/* A file of this script alone, with the bytes of the common one. */
static int make_own(struct context *c, struct area *a, unsigned from, unsigned pages) {
    char path[32];
    unsigned own = c->script * 1000u + c->line + 1;
    name_of(own, path, sizeof path);
    int data = open_data(O_RDONLY), file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t len = (size_t)pages * PAGE;
    if (file >= 0 && copy_data(data, (off_t)from * PAGE, file, len) != (ssize_t)len) close(file), file = -1;
    close(data);
    a->own = own;
    return file;
}

/* file SLOT PAGES OFFSET read|private|private-r|shared|shared-r FLAGS: a mapping of a file. */
static void play_file(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    drop(c, a);
    unsigned pages = number(op, 1) % PAGES + 1, offset = number(op, 2) % (FILE_PAGES - PAGES);
    int is_own = is(op, 3, "shared") || is(op, 3, "shared-r");
    int is_shared = is_own || is(op, 3, "read");
    int state = is(op, 3, "shared") || is(op, 3, "private") ? WRITE : READ;
    struct area made = { 0 };
    int file = is_own ? make_own(c, &made, offset, pages) : open_data(O_RDONLY);
    if (file < 0) {
        say(c, "no file");
        return;
    }
    int flags = is_shared ? MAP_SHARED : MAP_PRIVATE;
    if (is(op, 4, "populate")) flags |= MAP_POPULATE;
    void *got = mmap(0, (size_t)pages * PAGE, prot_of(state), flags, file, is_own ? 0 : (off_t)offset * PAGE);
    said(c, got == MAP_FAILED ? -1 : 0);
    close(file);
    if (got == MAP_FAILED) return;
    new_area(c, a, got, pages, is_own ? FILE_SHARED : is_shared ? FILE_READ : FILE_PRIVATE, state);
    a->own = made.own, a->offset = is_own ? 0 : offset;
    for (unsigned i = 0; i < pages; i++) a->page[i].tag = FILE_TAG(offset + i);
}

/* store SLOT FROM COUNT TAG */
static void play_store(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = run_at(a, op, 1, &from, WRITE);
    for (unsigned i = 0; i < count; i++) fill(c, a, from + i, number(op, 3) + 2 * i);
}

/* spoil SLOT PAGE: a byte becomes another, and the player is not told. For the test of the player. */
static void play_spoil(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned page = number(op, 1);
    if (page >= a->pages || a->page[page].state != WRITE) return say(c, "-");
    at(a, page)[3 * 8]++;
}

/* check SLOT FROM COUNT */
static void play_check(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = run_at(a, op, 1, &from, READ);
    check(c, a, from, count);
    say(c, count ? "ok" : "-");
}

/* unmap SLOT FROM COUNT */
static void play_unmap(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = a->kind < HEAP ? run_at(a, op, 1, &from, NONE) : 0;
    if (count == 0) return say(c, "-");
    said(c, munmap(at(a, from), (size_t)count * PAGE));
    set_state(a, from, count, GONE);
}

/* Moves what is known of pages to another area. */
static void move_pages(struct area *a, unsigned from, struct area *to, unsigned count) {
    memcpy(to->page, a->page + from, count * sizeof *a->page);
    to->kind = a->kind, to->own = a->own, to->offset = a->offset + from, to->is_mixed = a->is_mixed;
}

/* remap SLOT FROM COUNT NEW TO move|stay|fixed|keep: what moves is the slot TO's afterwards, wherever it is. */
static void play_remap(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0), *to = slot(c, op, 4);
    unsigned from = 0, count = a->kind < HEAP ? run_at(a, op, 1, &from, READ) : 0;
    unsigned new = number(op, 3) % PAGES + 1;
    if (count == 0 || to == a || a->is_mixed) return say(c, "-");
    int is_file = a->kind >= FILE_READ || a->kind == SHARED;
    if (is(op, 5, "keep") || (is_file && new > count)) new = count;
    if (is(op, 5, "keep") && is_file) return say(c, "-");
    drop(c, to);
    size_t old_len = (size_t)count * PAGE, new_len = (size_t)new * PAGE;
    void *place = 0, *got;
    if (is(op, 5, "fixed")) {
        place = mmap(0, new_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        got = mremap(at(a, from), old_len, new_len, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    } else if (is(op, 5, "keep")) {
        /* The kernel unlocks all of the mapping that this is a part of. Which neighbours are in it is chance. */
        munlockall();
        got = mremap(at(a, from), old_len, new_len, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, (void *)0);
    } else got = mremap(at(a, from), old_len, new_len, is(op, 5, "move") ? MREMAP_MAYMOVE : 0);
    if (got == MAP_FAILED) {
        /* Whether there is room behind it is chance. */
        if (is(op, 5, "stay") && errno == ENOMEM) say(c, "stays");
        else said(c, -1);
        return;
    }
    if (is(op, 5, "stay") && new > count) {
        munmap((char *)got + old_len, new_len - old_len);
        return say(c, "stays");
    }
    say(c, "ok");
    int state = a->page[from].state;
    new_area(c, to, got, new, a->kind, state);
    move_pages(a, from, to, count < new ? count : new);
    set_state(a, from, count, GONE);
    if (is(op, 5, "keep")) {
        set_state(a, from, count, state);
        know(a, from, count, 0, EXACT);
    }
    check(c, to, 0, new);
}

/* protect SLOT FROM COUNT r|rw|none */
static void play_protect(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    int state = state_of(op, 3);
    unsigned from = 0, count = a->kind < HEAP ? run_at(a, op, 1, &from, NONE) : 0;
    if (count == 0 || (a->kind == FILE_READ && state == WRITE)) return say(c, "-");
    said(c, mprotect(at(a, from), (size_t)count * PAGE, prot_of(state)));
    set_state(a, from, count, state);
}

struct advice {
    const char *name;
    int number;
    /* What it needs, and what becomes of the pages. */
    enum { HINT, WEAK, ZEROES, MAYBE, CHILD, GUARD } effect;
};

static const struct advice ADVICE[] = {
    { "normal", MADV_NORMAL, HINT }, { "random", MADV_RANDOM, HINT }, { "sequential", MADV_SEQUENTIAL, HINT },
    { "willneed", MADV_WILLNEED, HINT }, { "cold", MADV_COLD, HINT }, { "pageout", MADV_PAGEOUT, HINT },
    { "dontdump", MADV_DONTDUMP, HINT }, { "dodump", MADV_DODUMP, HINT },
    { "populate-read", MADV_POPULATE_READ, HINT },
    { "hugepage", MADV_HUGEPAGE, WEAK }, { "nohugepage", MADV_NOHUGEPAGE, WEAK }, { "collapse", MADV_COLLAPSE, WEAK },
    { "mergeable", MADV_MERGEABLE, WEAK }, { "unmergeable", MADV_UNMERGEABLE, WEAK },
    { "dontneed", MADV_DONTNEED, ZEROES }, { "free", MADV_FREE, MAYBE },
    { "dontfork", MADV_DONTFORK, CHILD }, { "wipeonfork", MADV_WIPEONFORK, CHILD },
    { "guard", GUARD_INSTALL, GUARD }, { 0, 0, 0 },
};

/* advise SLOT FROM COUNT ADVICE */
static void play_advise(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = a->kind < HEAP ? run_at(a, op, 1, &from, READ) : 0;
    const struct advice *advice = ADVICE;
    while (advice->name && !is(op, 3, advice->name)) advice++;
    int is_plain = a->kind == ANON;
    if (count == 0 || !advice->name || (advice->effect >= MAYBE && !is_plain)) return say(c, "-");
    if (advice->effect == ZEROES && a->kind == FILE_PRIVATE) return say(c, "-");
    int result = madvise(at(a, from), (size_t)count * PAGE, advice->number);
    if (advice->effect != HINT && advice->effect != ZEROES && advice->effect != MAYBE) a->is_mixed = 1;
    if (advice->effect == WEAK) return say(c, "asked");
    if (advice->effect == GUARD && result < 0) return say(c, "asked");
    if (advice->number == MADV_DONTDUMP || advice->number == MADV_RANDOM || advice->number == MADV_SEQUENTIAL)
        a->is_mixed = 1;
    said(c, result);
    if (result < 0) return;
    if (advice->effect == ZEROES && is_plain) know(a, from, count, 0, EXACT);
    if (advice->effect == MAYBE)
        for (unsigned i = from; i < from + count; i++)
            if (a->page[i].known == EXACT) a->page[i].known = OR_ZERO;
    if (advice->effect == CHILD)
        for (unsigned i = from; i < from + count; i++)
            a->page[i].child = advice->number == MADV_DONTFORK ? MISSING : WIPED;
    if (advice->effect == GUARD) {
        if (madvise(at(a, from), (size_t)count * PAGE, GUARD_REMOVE) < 0) wrong(c, "a guard stays");
        know(a, from, count, 0, EXACT);
    }
    check(c, a, from, count);
}

/* fixed SLOT FROM COUNT anon|file: a new mapping in the place of a part. */
static void play_fixed(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = a->kind == ANON ? run_at(a, op, 1, &from, NONE) : 0;
    if (count == 0) return say(c, "-");
    int is_file = is(op, 3, "file"), file = is_file ? open_data(O_RDONLY) : -1;
    if (is_file && file < 0) return say(c, "no file");
    int flags = MAP_FIXED | MAP_PRIVATE | (is_file ? 0 : MAP_ANONYMOUS);
    void *got = mmap(at(a, from), (size_t)count * PAGE, PROT_READ | PROT_WRITE, flags, file, 0);
    if (file >= 0) close(file);
    said(c, got == MAP_FAILED ? -1 : 0);
    if (got == MAP_FAILED) return;
    a->is_mixed = 1;
    set_state(a, from, count, WRITE);
    know(a, from, count, 0, EXACT);
    for (unsigned i = from; i < from + count; i++) {
        a->page[i].child = COPIED;
        if (is_file) a->page[i].tag = FILE_TAG(i - from);
    }
    /* Advice has other effects on a file. */
    if (is_file) a->kind = FILE_PRIVATE;
}

/* lock SLOT FROM COUNT */
static void play_lock(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = a->kind < HEAP ? run_at(a, op, 1, &from, READ) : 0;
    if (count == 0) return say(c, "-");
    said(c, mlock(at(a, from), (size_t)count * PAGE));
    check(c, a, from, count);
    munlock(at(a, from), (size_t)count * PAGE);
}

/* odd SLOT PAGE: addresses that are not those of pages are refused, and nothing changes. */
static void play_odd(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = a->kind < HEAP ? run_at(a, op, 1, &from, READ) : 0;
    if (count == 0) return say(c, "-");
    char *odd = at(a, from) + 8;
    int failed = (munmap(odd, PAGE) < 0) + (madvise(odd, PAGE, MADV_DONTNEED) < 0) + (mprotect(odd, PAGE, 0) < 0);
    failed += mremap(odd, PAGE, 3 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED;
    failed += mmap(odd, PAGE, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
    failed += munmap(at(a, from), 0) < 0;
    say(c, "%d refused", failed);
    check(c, a, from, count);
}

const struct entry MEMORY[] = {
    { "map", play_map }, { "file", play_file }, { "store", play_store }, { "check", play_check }, { "spoil", play_spoil },
    { "unmap", play_unmap }, { "remap", play_remap }, { "protect", play_protect }, { "advise", play_advise },
    { "fixed", play_fixed }, { "lock", play_lock }, { "odd", play_odd }, { 0, 0 },
};
