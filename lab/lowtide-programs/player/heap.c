/* Allocations. Their bytes are counted in pages from the address that was returned. */
#include "player.h"
#include <malloc.h>

/* heap SLOT PAGES malloc|calloc|aligned|memalign|posix ALIGN */
static void play_heap(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    drop(c, a);
    unsigned pages = number(op, 1) % PAGES + 1;
    size_t align = (size_t)PAGE << (number(op, 3) % 6), bytes = (size_t)pages * PAGE;
    void *got = 0;
    int is_aligned = 1;
    if (is(op, 2, "aligned")) got = aligned_alloc(align, (bytes + align - 1) / align * align);
    else if (is(op, 2, "memalign")) got = memalign(align, bytes);
    else if (is(op, 2, "posix")) { if (posix_memalign(&got, align, bytes)) got = 0; }
    else is_aligned = 0, got = is(op, 2, "calloc") ? calloc(pages, PAGE) : malloc(bytes);
    if (!got) return say(c, "none");
    int fits = malloc_usable_size(got) >= bytes && (!is_aligned || (uintptr_t)got % align == 0);
    say(c, fits ? "ok" : "does not fit");
    new_area(c, a, got, pages, is_aligned ? HEAP_ALIGNED : HEAP, WRITE);
    if (is(op, 2, "calloc")) check(c, a, 0, pages);
    else know(a, 0, pages, 0, UNKNOWN);
}

/* realloc SLOT PAGES */
static void play_realloc(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    if (a->kind < HEAP) return say(c, "-");
    unsigned pages = number(op, 1) % PAGES + 1, old = a->pages;
    char *got = realloc(a->start, (size_t)pages * PAGE);
    if (!got) return say(c, "none");
    a->start = got, a->pages = pages, a->kind = HEAP;
    for (unsigned i = old; i < pages; i++) a->page[i] = (struct page){ 0, WRITE, UNKNOWN, COPIED };
    check(c, a, 0, pages);
    say(c, "ok");
}

/* drop SLOT: what it has is freed, or unmapped, by the thread that plays this. */
static void play_drop(struct context *c, const struct op *op) { drop(c, slot(c, op, 0)); }

const struct entry HEAPS[] = { { "heap", play_heap }, { "realloc", play_realloc }, { "drop", play_drop }, { 0, 0 } };
