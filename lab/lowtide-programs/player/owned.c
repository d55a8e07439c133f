/* What belongs to a program and not to what serves it: record locks, signals, its user, limits, its files' names. */
#include "player.h"
#include <grp.h>
#include <setjmp.h>
#include <sys/resource.h>

#define OWN_PAGES 80u

/* A file of its own, of bytes of the common one, opened so. What nobody can write may get a mirror. */
static int make(struct context *c, char *name, size_t room, const char *kind, unsigned offset, int flags) {
    snprintf(name, room, "%s-%d-%d-%d", kind, c->script, c->line, getpid());
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), data = open_data(O_RDONLY);
    int is_made = file >= 0 && data >= 0
                  && copy_data(data, (off_t)offset * PAGE, file, OWN_PAGES * PAGE) == (ssize_t)(OWN_PAGES * PAGE);
    if (data >= 0) close(data);
    if (file >= 0) close(file);
    file = is_made ? open(name, flags | O_CLOEXEC) : -1;
    if (file >= 0) return file;
    unlink(name);
    say(c, "no file");
    return -1;
}

/* A mapping whose every page is touched; null if there is none. */
static const uint64_t *map_own(struct context *c, int file) {
    const uint64_t *words = mmap(0, OWN_PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0);
    if (words == MAP_FAILED) {
        said(c, -1);
        return 0;
    }
    for (unsigned i = 0; i < OWN_PAGES; i++) (void)((const volatile uint64_t *)words)[i * WORDS];
    return words;
}

static void check_own(struct context *c, const uint64_t *words, unsigned offset, const char *where) {
    for (unsigned i = 0; i < OWN_PAGES; i++) {
        struct page page = { .tag = FILE_TAG(offset + i), .state = READ, .known = EXACT };
        check_page(c, &page, (const char *)(words + i * WORDS), where, i);
    }
}

/* Whether another process can lock it. */
static const char *others_lock(const char *name) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 120, .l_len = 1 };
        int file = open(name, O_RDWR | O_CLOEXEC);
        _exit(file < 0 ? 2 : fcntl(file, F_SETLK, &lock) < 0 ? 1 : 0);
    }
    if (child < 0) return "no child";
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WEXITSTATUS(status) == 0 ? "free" : WEXITSTATUS(status) == 1 ? "held" : "no file";
}

/* record ROUNDS: a record lock stays while the file is mapped and unmapped, until the program gives it up. */
static void play_record(struct context *c, const struct op *op) {
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 50 };
    char name[64];
    int file = make(c, name, sizeof name, "record", 3, O_RDWR);
    if (file < 0) return;
    if (fcntl(file, F_SETLK, &lock) < 0) return said(c, -1);
    for (unsigned n = number(op, 0) % 4 + 1; n > 0; n--) {
        const uint64_t *words = map_own(c, file);
        say(c, "mapped: %s", others_lock(name));
        if (words) munmap((void *)words, OWN_PAGES * PAGE);
        say(c, "unmapped: %s", others_lock(name));
    }
    lock.l_type = F_UNLCK;
    fcntl(file, F_SETLK, &lock);
    say(c, "given up: %s", others_lock(name));
    unlink(name), close(file);
}

/* sigwait: a signal to the process waits for the thread that asks for it. */
static void play_sigwait(struct context *c, const struct op *op) {
    sigset_t set, before;
    struct timespec most = { 10, 0 };
    (void)op;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &before);
    kill(getpid(), SIGTERM);
    usleep(500);
    int got;
    do got = sigtimedwait(&set, 0, &most);
    while (got < 0 && errno == EINTR);
    say(c, "%d", got);
    sigprocmask(SIG_SETMASK, &before, 0);
}

/* setuid: root becomes somebody else, as servers do. */
static void play_setuid(struct context *c, const struct op *op) {
    (void)op;
    if (setgroups(0, 0) < 0 || setresgid(1000, 1000, 1000) < 0) return said(c, -1);
    said(c, setresuid(1000, 1000, 1000));
}

/* mlockall: all that there is, and with 1 all that comes. */
static void play_mlockall(struct context *c, const struct op *op) {
    said(c, mlockall(MCL_CURRENT | (number(op, 0) % 2 ? MCL_FUTURE : 0)));
}

static sigjmp_buf there;
static void on_bus(int number) { siglongjmp(there, number); }

/* cut: another process makes a mapped file empty, without opening it for writing. */
static void play_cut(struct context *c, const struct op *op) {
    struct sigaction action = { .sa_handler = on_bus }, before;
    char name[64];
    (void)op;
    int file = make(c, name, sizeof name, "cut", 11, O_RDONLY);
    const uint64_t *words = file < 0 ? 0 : map_own(c, file);
    if (!words) return;
    check_own(c, words, 11, "before the cut");
    pid_t child = fork();
    if (child == 0) _exit(open(name, O_RDONLY | O_TRUNC) < 0);
    if (child < 0) return said(c, -1);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    sigaction(SIGBUS, &action, &before);
    /* It may take a moment; an old byte until then is what the page says. */
    volatile int look = 0, is_cut = 0;
    if (sigsetjmp(there, 1)) is_cut = 1;
    for (; !is_cut && look < 3000; look++) {
        (void)((const volatile uint64_t *)words)[7 * WORDS];
        usleep(1000);
    }
    sigaction(SIGBUS, &before, 0);
    say(c, "%s", is_cut ? "SIGBUS" : "old bytes");
    munmap((void *)words, OWN_PAGES * PAGE), unlink(name), close(file);
}

/* replace: a file gets the name of one that is mapped, as updates do; each mapping has its own bytes. */
static void play_replace(struct context *c, const struct op *op) {
    char old_name[64], new_name[64];
    unsigned from = number(op, 0) % 500, other = from + 500;
    int old_file = make(c, old_name, sizeof old_name, "old", from, O_RDONLY);
    int new_file = old_file < 0 ? -1 : make(c, new_name, sizeof new_name, "new", other, O_RDONLY);
    if (new_file < 0) return (void)(old_file >= 0 && close(old_file));
    const uint64_t *first = map_own(c, old_file), *second = 0;
    said(c, rename(new_name, old_name));
    if (first) check_own(c, first, from, "the file that was replaced");
    int file = open(old_name, O_RDONLY | O_CLOEXEC);
    if (file >= 0) second = map_own(c, file);
    if (second) check_own(c, second, other, "the file that replaced it");
    if (number(op, 1) % 2) unlink(old_name);
    if (first) check_own(c, first, from, "the file that was replaced, again");
    say(c, first && second ? "ok" : "no mapping");
    if (first) munmap((void *)first, OWN_PAGES * PAGE);
    if (second) munmap((void *)second, OWN_PAGES * PAGE);
    unlink(old_name), close(old_file), close(new_file);
    if (file >= 0) close(file);
}

const struct entry OWNED[] = {
    { "record", play_record }, { "sigwait", play_sigwait }, { "setuid", play_setuid },
    { "mlockall", play_mlockall }, { "cut", play_cut }, { "replace", play_replace }, { 0, 0 },
};
