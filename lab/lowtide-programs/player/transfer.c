/* What the kernel stores to the program's memory, and loads from it: reads and writes of all kinds. */
#include "player.h"
#include <aio.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Pages that fit a pipe, or a socket. */
#define SMALL 15u

static ssize_t get_stream(int file, char *to, size_t len, off_t from) {
    lseek(file, from, SEEK_SET);
    FILE *stream = fdopen(file, "r");
    if (!stream) return -1;
    size_t got = fread(to, 1, len, stream);
    fclose(stream);
    return got;
}

static ssize_t get_aio(int file, char *to, size_t len, off_t from) {
    /* The C library's threads for this are its parent's, and so are their locks. */
    if (is_forked) return pread(file, to, len, from);
    struct aiocb request = { .aio_fildes = file, .aio_buf = to, .aio_nbytes = len, .aio_offset = from };
    const struct aiocb *list[] = { &request };
    if (aio_read(&request) < 0) return -1;
    while (aio_error(&request) == EINPROGRESS) aio_suspend(list, 1, 0);
    return aio_return(&request);
}

/* Bytes of the file, by another descriptor that was not opened for this. */
static ssize_t get_between(int file, char *to, size_t len, off_t from, int is_socket) {
    static _Thread_local char bytes[SMALL * PAGE];
    int ends[2];
    if (pread(file, bytes, len, from) != (ssize_t)len) return -1;
    if ((is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) < 0) return -1;
    ssize_t put = write(ends[1], bytes, len), got = 0;
    while (got < put) {
        ssize_t some = is_socket ? recv(ends[0], to + got, len - got, 0) : read(ends[0], to + got, len - got);
        if (some <= 0) break;
        got += some;
    }
    close(ends[0]), close(ends[1]);
    return got;
}

/* The kernel stores to this process as to another. */
static ssize_t get_process(int file, char *to, size_t len, off_t from) {
    static _Thread_local char bytes[SMALL * PAGE];
    if (pread(file, bytes, len, from) != (ssize_t)len) return -1;
    struct iovec here = { bytes, len }, there = { to, len };
    return process_vm_writev(gettid(), &here, 1, &there, 1, 0);
}

/* get SLOT FROM COUNT OFFSET read|pread|readv|preadv|stream|aio|pipe|socket|process DIRECT */
static void play_get(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = run_at(a, op, 1, &from, WRITE), offset = number(op, 3) % (FILE_PAGES - PAGES);
    int is_small = is(op, 4, "pipe") || is(op, 4, "socket") || is(op, 4, "process");
    if (is_small && count > SMALL) count = SMALL;
    /* A device wants an aligned address, and `malloc` promises none. */
    int is_direct = is(op, 5, "direct");
    if (count == 0 || (is_direct && (is_small || a->kind == HEAP))) return say(c, "-");
    int file = open_data(O_RDONLY | (is_direct ? O_DIRECT : 0));
    if (file < 0) return say(c, "no file");
    char *to = at(a, from);
    size_t len = (size_t)count * PAGE;
    off_t place = (off_t)offset * PAGE;
    struct iovec parts[2] = { { to, len / 2 / PAGE * PAGE }, { to + len / 2 / PAGE * PAGE, len - len / 2 / PAGE * PAGE } };
    ssize_t got;
    if (is(op, 4, "read")) lseek(file, place, SEEK_SET), got = read(file, to, len);
    else if (is(op, 4, "readv")) lseek(file, place, SEEK_SET), got = readv(file, parts, 2);
    else if (is(op, 4, "preadv")) got = preadv(file, parts, 2, place);
    else if (is(op, 4, "aio")) got = get_aio(file, to, len, place);
    else if (is(op, 4, "pipe")) got = get_between(file, to, len, place, 0);
    else if (is(op, 4, "socket")) got = get_between(file, to, len, place, 1);
    else if (is(op, 4, "process")) got = get_process(file, to, len, place);
    else if (is(op, 4, "stream")) got = get_stream(file, to, len, place);
    else got = pread(file, to, len, place);
    if (!is(op, 4, "stream")) close(file);
    if (got != (ssize_t)len) {
        if (got < 0) return said(c, -1);
        say(c, "%zd bytes of %zu", got, len);
        know(a, from, count, 0, UNKNOWN);
        return;
    }
    for (unsigned i = 0; i < count; i++) know(a, from + i, 1, FILE_TAG(offset + i), EXACT);
    say(c, "ok");
    check(c, a, from, count);
}

/* put SLOT FROM COUNT write|writev|direct|send|splice|process|stream: other places have the same bytes then. */
static void play_put(struct context *c, const struct op *op) {
    static _Thread_local char bytes[SMALL * PAGE];
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = run_at(a, op, 1, &from, READ);
    if (count > SMALL) count = SMALL;
    int is_direct = is(op, 3, "direct"), is_socket = is(op, 3, "send"), is_splice = is(op, 3, "splice");
    if (count == 0 || (is_direct && a->kind == HEAP)) return say(c, "-");
    char *start = at(a, from), name[32];
    size_t len = (size_t)count * PAGE;
    struct iovec here = { bytes, len }, there = { start, len };
    ssize_t put, got = 0;
    if (is(op, 3, "process")) put = got = process_vm_readv(gettid(), &here, 1, &there, 1, 0);
    else if (is_socket || is_splice) {
        int ends[2];
        if ((is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) < 0) return said(c, -1);
        put = is_socket ? send(ends[1], start, len, 0) : vmsplice(ends[1], &there, 1, 0);
        while (got < put) {
            ssize_t some = read(ends[0], bytes + got, len - got);
            if (some <= 0) break;
            got += some;
        }
        close(ends[0]), close(ends[1]);
    } else {
        snprintf(name, sizeof name, "put-%d-%d", c->script, c->line);
        int file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | (is_direct ? O_DIRECT : 0), 0600);
        if (file < 0) return said(c, -1);
        if (is(op, 3, "stream")) {
            FILE *stream = fdopen(dup(file), "w");
            put = stream ? (ssize_t)fwrite(start, 1, len, stream) : -1;
            if (stream) fclose(stream);
        } else put = is(op, 3, "writev") ? writev(file, &there, 1) : write(file, start, len);
        if (is_direct) fcntl(file, F_SETFL, 0);
        got = put < 0 ? put : pread(file, bytes, len, 0);
        /* What nothing was stored to differs from play to play, and files are compared. */
        static const char zeroes[PAGE];
        for (unsigned i = 0; i < count; i++)
            if (a->page[from + i].known == UNKNOWN && pwrite(file, zeroes, PAGE, (off_t)i * PAGE) < 0) got = -1;
        close(file);
    }
    if (put < 0) return said(c, -1);
    say(c, "%zd of %zd", got, put);
    for (unsigned i = 0; i < count && (ssize_t)(i * PAGE) < got; i++)
        check_page(c, &a->page[from + i], bytes + i * PAGE, "elsewhere", from + i);
}

static long futex(uint32_t *word, int op, uint32_t value, unsigned long other, uint32_t *second, uint32_t third) {
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, other, second, third);
}

/* futex SLOT PAGE 1 wait|wake|wake-op|lock-pi|requeue-pi: the kernel loads and stores a word of the page. */
static void play_futex(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = run_at(a, op, 1, &from, WRITE);
    if (count == 0 || a->page[from].known != EXACT || a->kind == SHARED || a->kind == FILE_SHARED) return say(c, "-");
    uint32_t here = 0, *word = (uint32_t *)at(a, from), tag = a->page[from].tag;
    long done;
    if (is(op, 3, "wake-op"))
        done = futex(&here, FUTEX_WAKE_OP, 1, 1, word, FUTEX_OP(FUTEX_OP_SET, 5, FUTEX_OP_CMP_EQ, 0));
    else if (is(op, 3, "lock-pi")) {
        if (tag != 0) return say(c, "-");
        done = futex(word, FUTEX_LOCK_PI, 0, 0, 0, 0);
        if (done == 0) done = futex(word, FUTEX_UNLOCK_PI, 0, 0, 0, 0);
    } else if (is(op, 3, "wake")) done = futex(word, FUTEX_WAKE, 1, 0, 0, 0);
    else done = futex(word, FUTEX_WAIT, 1, 0, 0, 0);
    said(c, done);
    fill(c, a, from, tag);
}

const struct entry TRANSFERS[] = { { "get", play_get }, { "put", play_put }, { "futex", play_futex }, { 0, 0 } };
