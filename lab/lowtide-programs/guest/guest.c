/* Files, threads, and the moments at which all rows are read. See `guest.h`. */
#include "guest.h"
#include <pthread.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <time.h>

struct file files[STEPS][KINDS];
const char *const STEP_NAMES[STEPS] = { "map", "view", "adopt" };
const char *const KIND_NAMES[KINDS] = { "record", "open-file", "flock", "lease", "program", "plain" };
pid_t first_thread, second_thread;
char *own_memory;
size_t own_len = 16 * PAGE;
static const char *moment = "begin", *act;

void say(const char *row, const char *format, ...) {
    char text[1024];
    int used = snprintf(text, sizeof text, "%s|%s|", moment, row);
    va_list list;
    va_start(list, format);
    used += vsnprintf(text + used, sizeof text - used - 1, format, list);
    va_end(list);
    if (used > (int)sizeof text - 2) used = sizeof text - 2;
    text[used++] = '\n';
    if (write(1, text, used) < 0) return;
}

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "guest: %s: %s\n", what, strerror(errno));
    _exit(90);
}

/* Bytes of a file follow from its name and their place. A program is one that runs. */
static void make_file(struct file *f, int step, int kind) {
    static char bytes[FILE_BYTES];
    int from = kind == PROGRAM ? open("/bin/true", O_RDONLY) : -1;
    f->len = FILE_BYTES;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 31 + i / PAGE * 7 + step * 3 + kind);
    if (from >= 0 && (read(from, bytes, sizeof bytes) <= 0 || close(from) < 0)) fail("/bin/true");
    snprintf(f->path, sizeof f->path, "%s-%s", STEP_NAMES[step], KIND_NAMES[kind]);
    int file = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (file < 0 || write(file, bytes, f->len) != (ssize_t)f->len || fsync(file) < 0) fail(f->path);
    close(file);
    /* Older than its last change, so that the next access is noted (`relatime`). */
    struct timespec times[2] = { { 1000000, 0 }, { 2000000, 0 } };
    if (utimensat(AT_FDCWD, f->path, times, 0) < 0) fail(f->path);
}

static void hold_file(struct file *f, int kind) {
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 50 };
    int reads = kind == LEASE || kind == PROGRAM || kind == PLAIN;
    f->file = open(f->path, (reads ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    int result = f->file;
    if (kind == RECORD) result = fcntl(f->file, F_SETLK, &lock);
    if (kind == OPEN_FILE) result = fcntl(f->file, F_OFD_SETLK, &lock);
    if (kind == FLOCK) result = flock(f->file, LOCK_EX | LOCK_NB);
    if (kind == LEASE) result = fcntl(f->file, F_SETLEASE, F_RDLCK);
    if (result < 0) fail(f->path);
}

/* A thread that only waits, with a mask of its own. */
static void *waits(void *begun) {
    sigset_t mask;
    sigfillset(&mask);
    sigdelset(&mask, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &mask, 0);
    prctl(PR_SET_NAME, "second");
    __atomic_store_n(&second_thread, gettid(), __ATOMIC_SEQ_CST);
    (void)begun;
    for (;;) pause();
    return 0;
}

void guest_begin(const char *name) {
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    pthread_t thread;
    act = strcmp(name, "look") ? strdup(name) : 0;
    first_thread = gettid();
    sigaction(SIGIO, &ignore, 0);
    for (int step = 0; step < STEPS; step++)
        for (int kind = 0; kind < KINDS; kind++) make_file(&files[step][kind], step, kind);
    observer_begin();
    for (int step = 0; step < STEPS; step++)
        for (int kind = 0; kind < KINDS; kind++) hold_file(&files[step][kind], kind);
    /* Between two pages that are nobody's: a mapping by itself. */
    own_memory = mmap(0, own_len + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own_memory == MAP_FAILED) fail("memory");
    own_memory += PAGE;
    mprotect(own_memory, own_len, PROT_READ | PROT_WRITE);
    madvise(own_memory, own_len, MADV_DONTDUMP);
    memset(own_memory, 7, own_len / 2);
    reads_begin();
    if (act) act_before(act);
    if (act && act_is_alone(act)) return;
    if (pthread_create(&thread, 0, waits, 0)) fail("a thread");
    while (!__atomic_load_n(&second_thread, __ATOMIC_SEQ_CST)) usleep(1000);
}

const char *guest_path(int step, int kind) { return files[step][kind].path; }
int guest_file(int step, int kind) { return files[step][kind].file; }
size_t guest_len(int step, int kind) { return files[step][kind].len; }

void *guest_mmap(int step, int kind) {
    void *got = mmap(0, files[step][kind].len, PROT_READ, MAP_SHARED, files[step][kind].file, 0);
    if (got == MAP_FAILED) fail("mmap");
    return got;
}

/* By pread(2), of a descriptor that is the program's. */
static unsigned differ(const struct file *f) {
    static char bytes[FILE_BYTES];
    unsigned wrong = 0;
    if (!f->bytes) return 0;
    int own = f->file >= 0 && pread(f->file, bytes, f->len, 0) == (ssize_t)f->len;
    for (size_t i = 0; i < f->len; i++) wrong += own ? f->bytes[i] != bytes[i] : !(f->bytes[i] + 1);
    return own ? wrong : 0;
}

unsigned wrong_bytes(void) {
    unsigned wrong = 0;
    for (int step = 0; step < STEPS; step++)
        for (int kind = 0; kind < KINDS; kind++) wrong += differ(&files[step][kind]);
    return wrong;
}

void guest_has(int step, int kind, const void *bytes) {
    files[step][kind].bytes = bytes;
    if (bytes && differ(&files[step][kind])) say("bytes", "wrong in %s", files[step][kind].path);
}

void guest_look(const char *name) {
    if (act) return;
    moment = strdup(name);
    /* Threads that were begun just now set themselves up. */
    usleep(30000);
    read_all(name);
}

void guest_act(void) {
    if (!act) return;
    moment = "act";
    act_now(act);
}

void guest_unmap(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        struct file *f = &files[MAPPED][kind];
        munmap((void *)f->bytes, f->len);
        f->bytes = 0;
    }
}

int guest_end(void) {
    guest_look("end");
    return 0;
}
