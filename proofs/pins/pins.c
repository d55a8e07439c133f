// Can a process know, before it gives a page up, that the kernel has the page pinned?
//
//   cc -O2 -o pins pins.c && ./pins [FILE]
//
// A page is pinned by a registered buffer of io_uring, which pins as long as it is registered, and by
// nothing else is it different from its neighbour. Each candidate is asked about a pinned page and about
// one that is not. It can tell them apart only if the two answers differ. What it does to the page is
// said, too: an answer that destroys what it is about is no answer.
//
// The second part moves private pages with UFFDIO_MOVE, which refuses pinned ones, and measures a touch
// of a page that was moved away beside one of a page of a memfd whose entry of the page table was zapped.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// Of newer headers.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef UFFDIO_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
struct uffdio_move { __u64 dst, src, len, mode; __s64 move; };
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif

#define PAGE 4096ul
#define HUGE (2ul << 20)
#define CHECK(what) do { if (!(what)) { printf("%s: %s\n", #what, strerror(errno)); exit(1); } } while (0)

static int ring(void) {
    struct io_uring_params p = { 0 };
    int fd = syscall(SYS_io_uring_setup, 4, &p);
    CHECK(fd >= 0);
    return fd;
}

static void pin(int ring, void *page) {
    struct iovec v = { page, PAGE };
    CHECK(!syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &v, 1));
}

static const char *said(long result) {
    static char text[4][80];
    static int turn;
    char *to = text[turn++ % 4];
    if (result < 0) snprintf(to, 80, "%s", strerrorname_np(errno));
    else snprintf(to, 80, "%ld", result);
    return to;
}

// A memfd of two huge pages, mapped at a multiple of their size; its first base page is pinned if asked.
struct place { int fd, ring; char *at; };
static struct place shared(int pinned) {
    struct place p = { memfd_create("pins", MFD_ALLOW_SEALING), ring(), 0 };
    CHECK(p.fd >= 0 && !ftruncate(p.fd, 2 * HUGE));
    char *room = mmap(0, 3 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    p.at = (char *)(((uintptr_t)room + HUGE - 1) & -HUGE);
    CHECK(mmap(p.at, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, p.fd, 0) != MAP_FAILED);
    memset(p.at, 'x', 2 * HUGE);
    if (pinned) pin(p.ring, p.at);
    return p;
}

typedef const char *(*candidate)(struct place *);

static const char *punch(struct place *p) {
    return said(fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
}
static const char *seal_mapped(struct place *p) { return said(fcntl(p->fd, F_ADD_SEALS, F_SEAL_WRITE)); }
static const char *seal_unmapped(struct place *p) {
    munmap(p->at, 2 * HUGE);
    return said(fcntl(p->fd, F_ADD_SEALS, F_SEAL_WRITE));
}
static const char *move(struct place *p) {
    void *page = p->at; int node = 0, status = -1000;
    long done = syscall(SYS_move_pages, 0, 1, &page, &node, &status, 2 /* MPOL_MF_MOVE */);
    static char text[2][80]; static int turn; char *to = text[turn++ % 2];
    snprintf(to, 80, "%s, status %d", said(done), status);
    return to;
}
static const char *collapse(struct place *p) { return said(madvise(p->at, HUGE, MADV_COLLAPSE)); }
static const char *page_out(struct place *p) {
    long done = madvise(p->at, PAGE, MADV_PAGEOUT); unsigned char in = 9;
    mincore(p->at, PAGE, &in);
    static char text[2][80]; static int turn; char *to = text[turn++ % 2];
    snprintf(to, 80, "%s, resident %d", said(done), in & 1);
    return to;
}
static const char *core(struct place *p) {
    unsigned char in = 9; long done = mincore(p->at, PAGE, &in);
    return done ? said(done) : said(in);
}
struct scan_arg { uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any, ret; };
struct scan_region { uint64_t start, end, categories; };
static const char *scan(struct place *p) {
    struct scan_region r = { 0 };
    struct scan_arg a = { sizeof a, 0, (uintptr_t)p->at, (uintptr_t)p->at + PAGE, 0, (uintptr_t)&r, 1, 0, 0, 0, ~0ull >> 56, 0xff };
    a.any = 0xff; a.mask = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY);
    long done = ioctl(fd, _IOWR('f', 16, struct scan_arg), &a);
    close(fd);
    static char text[2][80]; static int turn; char *to = text[turn++ % 2];
    snprintf(to, 80, "%s, categories %#llx", said(done), (unsigned long long)r.categories);
    return to;
}
static const char *physical(struct place *p, const char *file) {
    uint64_t entry = 0, value = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY);
    if (pread(fd, &entry, 8, (uintptr_t)p->at / PAGE * 8) != 8) entry = 0;
    close(fd);
    fd = open(file, O_RDONLY);
    if (fd < 0 || pread(fd, &value, 8, (entry & ((1ull << 55) - 1)) * 8) != 8) return "not readable";
    close(fd);
    static char text[4][80]; static int turn; char *to = text[turn++ % 4];
    snprintf(to, 80, "%#llx", (unsigned long long)value);
    return to;
}
static const char *count(struct place *p) { return physical(p, "/proc/kpagecount"); }
static const char *flags(struct place *p) { return physical(p, "/proc/kpageflags"); }

static void ask(const char *name, candidate one, const char *about) {
    struct place free_ = shared(0), pinned = shared(1);
    const char *without = one(&free_), *with = one(&pinned);
    printf("  %-34s %-28s %-28s %s\n", name, without, with, strcmp(without, with) ? "TELLS" : "same");
    printf("  %34s (%s)\n", "", about);
    close(free_.ring); close(pinned.ring); close(free_.fd); close(pinned.fd);
}

// --- private memory ---------------------------------------------------------------------------------

static int faults(void) {
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_MOVE };
    CHECK(fd >= 0 && !ioctl(fd, UFFDIO_API, &api));
    return fd;
}
static void missing(int fd, void *at, size_t len) {
    struct uffdio_register r = { .range = { (uintptr_t)at, len }, .mode = UFFDIO_REGISTER_MODE_MISSING };
    CHECK(!ioctl(fd, UFFDIO_REGISTER, &r));
}
static long moves(int fd, void *to, void *from, size_t len) {
    struct uffdio_move m = { (uintptr_t)to, (uintptr_t)from, len, 0, 0 };
    return ioctl(fd, UFFDIO_MOVE, &m);
}
static double seconds(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }

static char *aside, *home_;
static int served;
static void *server(void *none) {
    struct uffd_msg m;
    while (read(served, &m, sizeof m) == sizeof m) {
        char *page = (char *)(m.arg.pagefault.address & -PAGE);
        if (moves(served, page, aside + (page - home_), PAGE)) { perror("UFFDIO_MOVE"); exit(1); }
    }
    return none;
}

static char *private_(size_t len) {
    char *at = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    madvise(at, len, MADV_NOHUGEPAGE);
    return at;
}

static void move_private(void) {
    for (int pinned = 0; pinned < 2; pinned++) {
        int fd = faults(), r = ring();
        char *from = private_(PAGE), *to = private_(PAGE);
        missing(fd, to, PAGE);
        *from = 'x';
        if (pinned) pin(r, from);
        printf("  UFFDIO_MOVE of a private page, %-10s %s\n", pinned ? "pinned:" : "not:", said(moves(fd, to, from, PAGE)));
        close(fd); close(r);
    }
    {
        int fd = faults(); struct place p = shared(0); char *to = private_(PAGE);
        missing(fd, to, PAGE);
        printf("  UFFDIO_MOVE of a page of a memfd, not:     %s\n", said(moves(fd, to, p.at, PAGE)));
    }
}

static void costs(void) {
    enum { PAGES = 20000 };
    size_t len = PAGES * PAGE;
    volatile char *at;
    // A memfd: zap the entries, touch.
    int fd = memfd_create("touch", 0);
    CHECK(!ftruncate(fd, len));
    at = mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (size_t i = 0; i < PAGES; i++) at[i * PAGE] = 1;
    double zap = 0, touch = 0, away = 0, back = 0, t;
    for (int round = 0; round < 5; round++) {
        t = seconds();
        for (size_t i = 0; i < PAGES; i += 32) madvise((char *)at + i * PAGE, 32 * PAGE, MADV_DONTNEED);
        zap += seconds() - t; t = seconds();
        // Not in order, so that the kernel does not map pages around.
        for (size_t i = 0; i < PAGES; i++) at[i * 7919 % PAGES * PAGE]++;
        touch += seconds() - t;
    }
    printf("  memfd: zap %.2f us a page, touch after it %.2f us\n", zap / 5 / PAGES * 1e6, touch / 5 / PAGES * 1e6);
    // Private: move away, touch, which a thread serves by moving it back.
    served = faults();
    at = home_ = private_(len); aside = private_(len);
    missing(served, home_, len); missing(served, aside, len);
    CHECK(!munmap((char *)at, len) && (at = mmap(home_, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)) == home_);
    madvise(home_, len, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < PAGES; i++) at[i * PAGE] = 1;
    missing(served, home_, len);
    pthread_t thread; pthread_create(&thread, 0, server, 0);
    for (int round = 0; round < 5; round++) {
        t = seconds();
        for (size_t i = 0; i < PAGES; i += 32) CHECK(!moves(served, aside + i * PAGE, home_ + i * PAGE, 32 * PAGE));
        away += seconds() - t; t = seconds();
        for (size_t i = 0; i < PAGES; i++) at[i * 7919 % PAGES * PAGE]++;
        back += seconds() - t;
    }
    printf("  private: move away %.2f us a page, touch after it %.2f us\n", away / 5 / PAGES * 1e6, back / 5 / PAGES * 1e6);
}

int main(void) {
    printf("a page of a memfd                      not pinned                   pinned\n");
    ask("fallocate(PUNCH_HOLE)", punch, "the page is gone from the file either way");
    ask("F_SEAL_WRITE, mapped", seal_mapped, "refused while there is a writable mapping");
    ask("F_SEAL_WRITE, not mapped", seal_unmapped, "of the whole file, final, and waits up to 200 ms");
    ask("move_pages to its own node", move, "a machine of one node has no other");
    ask("MADV_COLLAPSE", collapse, "needs 2 MiB of pages that are all in memory");
    ask("MADV_PAGEOUT", page_out, "writes to the kernel's swap where there is one");
    ask("mincore", core, "");
    ask("PAGEMAP_SCAN", scan, "");
    ask("/proc/kpagecount", count, "root; counts mappings");
    ask("/proc/kpageflags", flags, "root");
    printf("private memory\n");
    move_private();
    costs();
    return 0;
}
