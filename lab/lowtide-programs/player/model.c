/* What each byte of the program's memory must be. A page is known by a tag, from which its words follow. */
#include "player.h"

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The word of a page with this tag. An even tag compresses, no two tags are the same, and zero is zeroes. */
static uint64_t word(uint32_t tag, unsigned at) {
    if (tag == 0) return 0;
    return mix(((uint64_t)tag << 16) + (IS_NOISE(tag) ? at : at / 64));
}

char *at(struct area *a, unsigned page) { return a->start + (size_t)page * PAGE; }

struct area *slot(struct context *c, const struct op *op, int arg) { return &c->area[number(op, arg) % SLOTS]; }

/* Stores a page. */
void fill(struct context *c, struct area *a, unsigned page, uint32_t tag) {
    (void)c;
    char *to = at(a, page);
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t value = word(tag, i);
        memcpy(to + i * 8, &value, 8);
    }
    a->page[page].tag = tag;
    a->page[page].known = EXACT;
}

void know(struct area *a, unsigned from, unsigned count, uint32_t tag, int known) {
    for (unsigned i = from; i < from + count; i++) {
        a->page[i].tag = tag;
        a->page[i].known = known;
    }
}

void set_state(struct area *a, unsigned from, unsigned count, int state) {
    for (unsigned i = from; i < from + count; i++) a->page[i].state = state;
}

static int has(const char *bytes, uint32_t tag, unsigned *where) {
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t found;
        memcpy(&found, bytes + i * 8, 8);
        if (found != word(tag, i)) {
            *where = i;
            return 0;
        }
    }
    return 1;
}

/* Compares bytes, wherever they are, with what a page must have. */
void check_page(struct context *c, const struct page *p, const char *bytes, const char *where, unsigned number) {
    unsigned i = 0;
    if (p->known == UNKNOWN || has(bytes, p->tag, &i)) return;
    if (p->known == OR_ZERO && has(bytes, 0, &i)) return;
    uint64_t found;
    memcpy(&found, bytes + i * 8, 8);
    wrong(c, "%s: page %u, word %u is %016llx and not %016llx (tag %x)", where, number, i,
          (unsigned long long)found, (unsigned long long)word(p->tag, i), p->tag);
}

void check(struct context *c, struct area *a, unsigned from, unsigned count) {
    char where[16];
    snprintf(where, sizeof where, "area %d", (int)(a - c->area));
    for (unsigned i = from; i < from + count; i++)
        if (a->page[i].state >= READ) check_page(c, &a->page[i], at(a, i), where, i);
}

void check_all(struct context *c) {
    for (int s = 0; s < SLOTS; s++) check(c, &c->area[s], 0, c->area[s].pages);
}

/* What this process has after a fork of what the parent has. Of the parent's shared memory each knows nothing, once
 * the other stores. Threads and children are the parent's. */
int is_forked;

void is_child(struct context *c) {
    is_forked = 1;
    for (int s = 0; s < SLOTS; s++) {
        struct area *a = &c->area[s];
        for (unsigned i = 0; i < a->pages; i++) {
            if (a->page[i].child == MISSING) a->page[i].state = GONE;
            if (a->page[i].child == WIPED) a->page[i].tag = 0, a->page[i].known = EXACT;
        }
        if (a->kind == SHARED || a->kind == FILE_SHARED) memset(a, 0, sizeof *a);
    }
    memset(c->thread, 0, sizeof c->thread);
    memset(c->child, 0, sizeof c->child);
}

/* The first pages of a range that are in one piece, at least in this state, and all in the same. */
unsigned run_of(struct area *a, unsigned *from, unsigned count, int least) {
    unsigned end = *from + count < a->pages ? *from + count : a->pages;
    while (*from < end && a->page[*from].state < least) ++*from;
    unsigned to = *from;
    while (to < end && a->page[to].state == a->page[*from].state) to++;
    return to - *from;
}

/* The same of the two arguments `from` and `count`. */
unsigned run_at(struct area *a, const struct op *op, int arg, unsigned *from, int least) {
    if (a->kind == EMPTY || a->pages == 0) return 0;
    *from = number(op, arg) % a->pages;
    return run_of(a, from, number(op, arg + 1) % PAGES + 1, least);
}

/* An area of pages that are zeroes; what was in the slot is given up first. */
void new_area(struct context *c, struct area *a, void *start, unsigned pages, int kind, int state) {
    (void)c;
    memset(a, 0, sizeof *a);
    a->start = start, a->pages = pages, a->kind = kind;
    know(a, 0, pages, 0, EXACT);
    set_state(a, 0, pages, state);
}
