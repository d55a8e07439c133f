/* Children, what a process takes from itself, and how it ends. */
#include "player.h"
#include <dlfcn.h>
#include <linux/sched.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>

extern char **environ;
/* What the constructor of a library does (`plugin.c`). */
int plugin_does;
/* A child that is forked while another thread loads a library, or is in exit(3), finds the loader's
 * lock taken for ever, or the library half loaded, alone, too. So no child that may load one, or may
 * exit, is made meanwhile. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

/* A few steps with memory of its own, of any process: ends with what must be 0. */
static int small_steps(int has_file) {
    size_t len = 80 * PAGE;
    char *memory = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    for (size_t i = 0; i < len; i += PAGE) memory[i] = i / PAGE;
    for (size_t i = 0; i < len; i += PAGE) if (memory[i] != (char)(i / PAGE)) return 2;
    if (munmap(memory, len) < 0) return 3;
    int file = has_file ? open_data(O_RDONLY) : -1;
    if (file >= 0) {
        uint64_t *bytes = mmap(0, len, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (bytes == MAP_FAILED) return 4;
        if (bytes[0] == bytes[10 * WORDS]) return 5;
        if (munmap(bytes, len) < 0) return 6;
    }
    return 0;
}

static void say_end(struct context *c, pid_t child, int status) {
    if (child < 0) said(c, -1);
    else if (WIFSIGNALED(status)) say(c, "signal %d", WTERMSIG(status));
    else say(c, "exit %d", WEXITSTATUS(status));
}

static void wait_for(struct context *c, pid_t child) {
    int status = 0;
    pid_t got;
    do got = waitpid(child, &status, 0);
    while (got < 0 && errno == EINTR);
    say_end(c, got, status);
}

/* In a child of fork: plays a script with what it has of its parent's memory. */
static _Noreturn void be_child(const struct context *parent, struct context *c) {
    if (c != parent) memcpy(c->area, parent->area, sizeof c->area);
    is_child(c);
    check_all(c);
    play(c);
    _exit(0);
}

_Noreturn void leave(int code) {
    pthread_mutex_lock(&loading);
    exit(code);
}

static pid_t fork_beside_no_loading(void) {
    pthread_mutex_lock(&loading);
    pid_t child = fork();
    pthread_mutex_unlock(&loading);
    return child;
}

/* fork SCRIPT COUNT: children, one after the other. */
static void play_fork(struct context *c, const struct op *op) {
    struct context *other = context_of(op, 0, c);
    if (!other) return say(c, "-");
    for (unsigned n = number(op, 1) % 8 + 1; n > 0; n--) {
        pid_t child = fork_beside_no_loading();
        if (child == 0) be_child(c, other);
        if (child < 0) return said(c, -1);
        wait_for(c, child);
    }
}

/* start SCRIPT: a child that is waited for later. */
static void play_start(struct context *c, const struct op *op) {
    struct context *other = context_of(op, 0, c);
    if (!other || c->child[other->script]) return say(c, "-");
    pid_t child = fork_beside_no_loading();
    if (child == 0) be_child(c, other);
    if (child < 0) return said(c, -1);
    c->child[other->script] = child;
}

/* forks COUNT: children that only look at their memory. */
static void play_forks(struct context *c, const struct op *op) {
    for (unsigned n = number(op, 0) % 32 + 1; n > 0; n--) {
        pid_t child = fork();
        if (child == 0) {
            is_child(c);
            check_all(c);
            _exit(0);
        }
        if (child < 0) return said(c, -1);
        wait_for(c, child);
    }
}

/* vfork exit|maps|exec: a child in the memory of its parent. */
static void play_vfork(struct context *c, const struct op *op) {
    int is_exec = is(op, 0, "exec"), maps = is(op, 0, "maps");
    pid_t child = vfork();
    if (child == 0) {
        if (is_exec) execl("/bin/true", "true", (char *)0);
        _exit(maps ? small_steps(0) : is_exec ? 99 : 3);
    }
    if (child < 0) return said(c, -1);
    wait_for(c, child);
}

/* spawn: another program. */
static void play_spawn(struct context *c, const struct op *op) {
    (void)op;
    char *arguments[] = { "true", 0 };
    pid_t child;
    errno = posix_spawn(&child, "/bin/true", 0, 0, arguments, environ);
    if (errno) return said(c, -1);
    wait_for(c, child);
}

/* clone: a child without the C library's knowledge. It has no copy of memory that is kept, so it makes its own. */
static void play_clone(struct context *c, const struct op *op) {
    (void)op;
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(small_steps(1));
    if (child < 0) return said(c, -1);
    wait_for(c, child);
}

static void wait_started(struct context *c) {
    for (int s = 0; s < SCRIPTS; s++)
        if (c->child[s]) {
            wait_for(c, c->child[s]);
            c->child[s] = 0;
        }
}

/* join: all threads and children of this script have ended. */
void join_all(struct context *c) {
    for (int s = 0; s < SCRIPTS; s++)
        if (c->thread[s].is_used) {
            pthread_join(c->thread[s].id, 0);
            c->thread[s].is_used = 0;
        }
    wait_started(c);
}

static void play_join(struct context *c, const struct op *op) {
    (void)op;
    join_all(c);
}

/* Reads the beginning of each mapping of a process, as a debugger that looks for something. */
static void scan(pid_t process) {
    static char bytes[64 * PAGE];
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/maps", process);
    FILE *maps = fopen(path, "r");
    snprintf(path, sizeof path, "/proc/%d/mem", process);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    if (!maps || memory < 0) return;
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3 || rights[0] != 'r') continue;
        if (end - start > 1ul << 20) end = start + (1ul << 20);
        for (; start < end; start += sizeof bytes) {
            size_t len = end - start < sizeof bytes ? end - start : sizeof bytes;
            struct iovec here = { bytes, len }, there = { (void *)start, len };
            if (pread(memory, bytes, len, start) <= 0 && process_vm_readv(process, &here, 1, &there, 1, 0) <= 0) break;
        }
    }
    fclose(maps), close(memory);
}

/* Pages that a peer reads at a time. */
#define PEER_PAGES 64u

/* peer: another process reads all memory of this one, and compares what it knows. */
static void play_peer(struct context *c, const struct op *op) {
    static char bytes[PEER_PAGES * PAGE];
    /* This thread, and not the process: its first may have ended, and then has no memory. */
    pid_t parent = gettid(), parent_process = getpid(), child = fork();
    (void)op;
    if (child == 0) {
        peer_of = parent_process;
        for (int s = 0; s < SLOTS; s++)
            for (unsigned i = 0, run; i < c->area[s].pages; i += run) {
                const struct page *p = &c->area[s].page[i];
                for (run = 0; run < PEER_PAGES && i + run < c->area[s].pages && p[run].state >= READ;) run++;
                struct iovec here = { bytes, run * PAGE }, there = { at(&c->area[s], i), run * PAGE };
                if (run == 0) {
                    run = 1;
                    continue;
                }
                if (process_vm_readv(parent, &here, 1, &there, 1, 0) != (ssize_t)(run * PAGE)) {
                    /* It may end meanwhile. */
                    if (errno == ESRCH || getppid() != parent_process) _exit(0);
                    /* It was root, and is not any more: nobody may read it. */
                    if (errno == EPERM && getuid()) _exit(1);
                    wrong(c, "a peer: %s", strerror(errno));
                }
                for (unsigned n = 0; n < run; n++) check_page(c, &p[n], bytes + n * PAGE, "a peer", i + n);
            }
        scan(parent);
        _exit(0);
    }
    if (child < 0) return said(c, -1);
    wait_for(c, child);
    check_all(c);
}

/* limit as|data|files NUMBER: MiB of addresses or of private memory, or descriptors. */
static void play_limit(struct context *c, const struct op *op) {
    struct rlimit limit;
    int what = is(op, 0, "as") ? RLIMIT_AS : is(op, 0, "data") ? RLIMIT_DATA : RLIMIT_NOFILE;
    limit.rlim_cur = limit.rlim_max = what == RLIMIT_NOFILE ? number(op, 1) : (rlim_t)number(op, 1) << 20;
    said(c, setrlimit(what, &limit));
}

/* chroot: to a folder in which there is nothing, and that no other process makes. */
static void play_chroot(struct context *c, const struct op *op) {
    (void)op;
    char name[32];
    snprintf(name, sizeof name, "root-%d-%d", c->script, c->line);
    mkdir(name, 0700);
    said(c, chroot(name));
    if (chdir("/") < 0) say(c, "chdir");
}

/* close all|error|input: descriptors that the player does not need. */
static void play_close(struct context *c, const struct op *op) {
    if (is(op, 0, "all")) said(c, syscall(SYS_close_range, 3u, ~0u, 0u));
    else said(c, close(is(op, 0, "error") ? 2 : 0));
}

/* flock: is a lock free for others when the program has closed its descriptor? */
static void play_flock(struct context *c, const struct op *op) {
    (void)op;
    char name[32];
    snprintf(name, sizeof name, "lock-%d-%d", c->script, c->line);
    int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600), data = open_data(O_RDONLY);
    if (file < 0 || data < 0) return say(c, "no file");
    ssize_t copied = copy_data(data, 0, file, 80 * PAGE);
    close(data);
    flock(file, LOCK_EX);
    unlink(name);
    void *got = mmap(0, 80 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (copied != 80 * PAGE || got == MAP_FAILED) return say(c, "no mapping");
    munmap(got, 80 * PAGE);
    /* A second open file of the same, which a lock that stays keeps out. */
    char path[64];
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", file);
    int second = open(path, O_RDWR | O_CLOEXEC);
    close(file);
    if (second < 0) return say(c, "no second");
    said(c, flock(second, LOCK_EX | LOCK_NB));
    close(second);
}

/* plugin DOES: a library whose constructor maps memory or a file, or allocates. */
static void play_plugin(struct context *c, const struct op *op) {
    const char *path = getenv("PLAYER_PLUGIN");
    if (!path) return say(c, "-");
    pthread_mutex_lock(&loading);
    plugin_does = number(op, 0) % 5;
    void *library = dlopen(path, RTLD_NOW);
    int *result = library ? dlsym(library, "plugin_result") : 0, got = result ? *result : -1;
    if (library) dlclose(library);
    pthread_mutex_unlock(&loading);
    if (!library) return say(c, "no library");
    say(c, "%d", got);
}

static void *exit_here(void *code) { leave((int)(intptr_t)code); }

static void *pass_on(void *c) {
    play(c);
    return 0;
}

/* end HOW NUMBER: the process, in one of the ways there are. */
static void play_end(struct context *c, const struct op *op) {
    static const int SIGNALS[] = { SIGTERM, SIGKILL, SIGINT, SIGSEGV, SIGBUS, SIGPIPE, SIGUSR2, SIGHUP };
    int code = number(op, 1) % 64;
    say(c, "%s", op->arg[0] ? op->arg[0] : "exit");
    if (is(op, 0, "_exit")) _exit(code);
    if (is(op, 0, "quick")) quick_exit(code);
    if (is(op, 0, "abort")) abort();
    /* Again and again: another thread may have a handler for it just now (`probe`). */
    if (is(op, 0, "signal"))
        for (int signal_number = SIGNALS[code % 8];; usleep(10000)) signal(signal_number, SIG_DFL), kill(getpid(), signal_number);
    if (is(op, 0, "handler")) end_in_handler(code);
    if (is(op, 0, "thread")) {
        pthread_t id;
        if (pthread_create(&id, 0, exit_here, (void *)(intptr_t)code) == 0) pause();
    }
    if (is(op, 0, "last")) {
        /* The process ends with its last thread, which goes on with the script that is named. */
        struct context *other = context_of(op, 1, c);
        pthread_t id;
        if (other && !c->thread[other->script].is_used && pthread_create(&id, 0, pass_on, other) == 0)
            pthread_detach(id);
        pthread_exit(0);
    }
    if (is(op, 0, "exec")) {
        char number[16];
        struct context *other = context_of(op, 1, c);
        snprintf(number, sizeof number, "%d", other ? other->script : SCRIPTS);
        /* A timer would go on, and its handler would not. */
        stop_timer();
        execl("/proc/self/exe", "player", getenv("PLAYER_DATA"), getenv("PLAYER_PLAN"), number, (char *)0);
        _exit(98);
    }
    leave(code);
}

const struct entry PROCESSES[] = {
    { "fork", play_fork }, { "start", play_start }, { "forks", play_forks }, { "vfork", play_vfork },
    { "spawn", play_spawn }, { "clone", play_clone }, { "join", play_join }, { "peer", play_peer },
    { "limit", play_limit }, { "chroot", play_chroot }, { "close", play_close }, { "flock", play_flock },
    { "plugin", play_plugin }, { "end", play_end }, { 0, 0 },
};
