/* A program that plays a plan: what its parts share.
 *
 * A plan is one line of text: scripts, separated by `/`, of operations, separated by `;`, of words. Script 0 is
 * played by `main`; others by the threads and children that operations start. Every operation is possible at any
 * time: what it cannot be done to is left out (`-` in the log), in the same way on each machine. So any part of a
 * plan is a plan, which makes it easy to make a plan smaller.
 *
 * The player knows what each byte of its memory must be, and says so if one is not. It knows nothing of lowtide.
 * What it writes does not depend on addresses, on time, or on the order of threads: lines have the number of their
 * script and operation, and are sorted before they are compared.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u
#define WORDS (PAGE / 8)
#define SLOTS 8
/* Pages of an area at most. */
#define PAGES 1024u
/* Pages of the file that all plays read. */
#define FILE_PAGES 2048u
#define SCRIPTS 16
#define ARGS 6

/* The tag of a page of that file. */
#define FILE_TAG(page) (0x40000000u + ((page) << 1))
/* What does not compress has an odd tag. */
#define IS_NOISE(tag) ((tag) & 1)

enum state { GONE, NONE, READ, WRITE };
/* What is known of a page's bytes. */
enum known { UNKNOWN, EXACT, OR_ZERO };
enum kind { EMPTY, ANON, SHARED, FILE_READ, FILE_PRIVATE, FILE_SHARED, HEAP, HEAP_ALIGNED };
/* What a child of fork has. */
enum child { COPIED, WIPED, MISSING };

struct page {
    uint32_t tag;
    uint8_t state, known, child;
};

/* Addresses of the program: one mapping or allocation, or what is left of it. */
struct area {
    char *start;
    unsigned pages;
    int kind;
    /* Parts may be separate mappings of the kernel, so `mremap` may refuse. */
    int is_mixed;
    /* The page of the file at the first address. */
    unsigned offset;
    /* The name of a file of its own, by script and line; 0 is none. */
    unsigned own;
    struct page page[PAGES];
};

struct thread {
    pthread_t id;
    int is_used;
};

/* What one thread of execution knows. A child of fork has a copy, as of its memory. */
struct context {
    int script, line;
    const char *name;
    struct area area[SLOTS];
    struct thread thread[SCRIPTS];
    pid_t child[SCRIPTS];
};

struct op {
    const char *name;
    const char *arg[ARGS];
};

/* One per script; each is played by one thread at a time. */
extern struct context contexts[SCRIPTS];

/* player.c */
void say(struct context *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void said(struct context *c, long result);
/* The process whose memory this one reads. What it reads of one that is ending may be zeroes:
   the descriptor that serves its faults is closed before its memory goes. */
extern pid_t peer_of;
_Noreturn void wrong(struct context *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
unsigned number(const struct op *op, int arg);
int is(const struct op *op, int arg, const char *word);
void play(struct context *c);
struct context *context_of(const struct op *op, int arg, const struct context *from);
int open_data(int flags);
ssize_t copy_data(int data, off_t from, int file, size_t len);

/* model.c */
void fill(struct context *c, struct area *a, unsigned page, uint32_t tag);
void know(struct area *a, unsigned from, unsigned count, uint32_t tag, int known);
void set_state(struct area *a, unsigned from, unsigned count, int state);
void check(struct context *c, struct area *a, unsigned from, unsigned count);
void check_all(struct context *c);
void check_page(struct context *c, const struct page *p, const char *bytes, const char *where, unsigned number);
void is_child(struct context *c);
/* Whether this is a child of fork. */
extern int is_forked;
struct area *slot(struct context *c, const struct op *op, int arg);
unsigned run_of(struct area *a, unsigned *from, unsigned count, int least);
unsigned run_at(struct area *a, const struct op *op, int arg, unsigned *from, int least);
char *at(struct area *a, unsigned page);
void new_area(struct context *c, struct area *a, void *start, unsigned pages, int kind, int state);

/* Operations, by file. The last has no name. */
struct entry {
    const char *name;
    void (*play)(struct context *c, const struct op *op);
};
extern const struct entry MEMORY[], HEAPS[], TRANSFERS[], PROCESSES[], THREADS[], SIGNALS[], OWNED[];
void drop(struct context *c, struct area *a);
void join_all(struct context *c);
void start_thread(struct context *c, struct context *other, const pthread_attr_t *attributes);
void stop_timer(void);
/* exit(3), while no other thread makes a child that may load a library. */
_Noreturn void leave(int code);
_Noreturn void end_in_handler(int code);
