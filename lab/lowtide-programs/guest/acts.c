/* What a program does while lowtide serves it, each in a process of its own: how it gives rights up, leaves a
 * namespace, makes children, and ends. See `guest.h`. */
#include "guest.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

struct act {
    const char *name;
    void (*play)(void);
    /* For a program with one thread. */
    int is_alone;
    /* Before the first mapping. */
    void (*before)(void);
};
static const char *act_name;

#define SAY(...) say(act_name, __VA_ARGS__)

static void said(long result) { SAY("%s", result < 0 ? strerrorname_np(errno) : "ok"); }

static void say_child(pid_t child) {
    int status = 0;
    if (child < 0) return said(-1);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    SAY("%s %d", WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void say_bytes(const char *when) { SAY("%s, %u bytes wrong", when, wrong_bytes()); }

/* What all threads say in the end: those of lowtide may follow a moment later. */
static void say_all(const char *what, const char *(*value)(pid_t thread)) {
    const char *text = of_all(value);
    for (int look = 0; look < 100 && strstr(text, " and "); look++) {
        usleep(20000);
        text = of_all(value);
    }
    SAY("%s %s in all threads", what, text);
}

static const char *effective(pid_t thread) { return status_of(thread, "CapEff"); }
static const char *user(pid_t thread) { return status_of(thread, "Uid"); }
static const char *seccomp(pid_t thread) { return status_of(thread, "Seccomp"); }
static const char *no_new(pid_t thread) { return status_of(thread, "NoNewPrivs"); }
static const char *affinity(pid_t thread) { return status_of(thread, "Cpus_allowed_list"); }

static const char *policy(pid_t thread) {
    return sched_getscheduler(thread) == SCHED_IDLE ? "idle" : sched_getscheduler(thread) == SCHED_OTHER ? "other" : "real";
}

static const char *nice_value(pid_t thread) {
    static char text[16];
    snprintf(text, sizeof text, "%d", getpriority(PRIO_PROCESS, thread));
    return text;
}

/* A thread that does a little later what ends the process. */
static void *ends_later(void *nothing) {
    usleep(100000);
    (void)nothing;
    return 0;
}

static void play_exit(void) { exit(3); }
static void play__exit(void) { _exit(4); }
static void play_quick(void) { quick_exit(5); }
static void play_abort(void) { signal(SIGABRT, SIG_DFL), abort(); }

static void play_signal(void) {
    signal(SIGTERM, SIG_DFL);
    kill(getpid(), SIGTERM);
    pause();
}

static void play_last(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, ends_later, 0)) return said(-1);
    pthread_detach(thread);
    /* Not pthread_exit(3), which leaves frames of the program's language. */
    syscall(SYS_exit, 0);
}

static void play_exit_in_thread(void) {
    pthread_t thread;
    pthread_create(&thread, 0, (void *(*)(void *))(void *)play_exit, 0);
    for (;;) pause();
}

static void play_sigwait(void) {
    sigset_t set;
    struct timespec while_waiting = { 5, 0 };
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    kill(getpid(), SIGTERM);
    usleep(50000);
    SAY("got %d", sigtimedwait(&set, 0, &while_waiting));
}

static void play_fork(void) {
    pid_t child = fork();
    if (child == 0) _exit(wrong_bytes() ? 1 : 7);
    say_child(child);
}

static void play_raw_fork(void) {
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(own_memory[5] == 7 ? 7 : 1);
    say_child(child);
}

static void play_vfork(void) {
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)0);
        _exit(99);
    }
    say_child(child);
    say_bytes("after it");
}

static void play_system(void) { SAY("%d", system("exit 7") >> 8); }

static void play_exec(void) {
    execl(getenv("GUEST_PLAIN"), "plain", "inherited", (char *)0);
    said(-1);
}

static void play_daemon(void) {
    int pair[2];
    char byte = 0;
    if (pipe(pair) < 0) return said(-1);
    pid_t child = fork();
    if (child == 0) {
        if (daemon(1, 1) < 0) _exit(1);
        first_thread = gettid();
        say_bytes("in the daemon");
        if (write(pair[1], "x", 1) < 0) _exit(1);
        _exit(0);
    }
    close(pair[1]);
    SAY("%zd byte from the daemon", read(pair[0], &byte, 1));
    say_child(child);
}

static void play_setuid(void) {
    if (setgroups(0, 0) < 0 || setresgid(1000, 1000, 1000) < 0 || setresuid(1000, 1000, 1000) < 0) return said(-1);
    say_all("user", user);
    say_bytes("then");
}

static void play_raw_setuid(void) {
    if (syscall(SYS_setresuid, 1000, 1000, 1000) < 0) return said(-1);
    say_all("user", user);
    say_bytes("then");
}

static void play_capset(void) {
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { { 0 } };
    if (syscall(SYS_capset, &head, data) < 0) return said(-1);
    say_all("capabilities", effective);
    say_bytes("then");
}

static void play_no_new_privs(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return said(-1);
    say_all("no_new_privs", no_new);
}

/* A filter that refuses execve(2), for this thread and those that it makes. */
static void play_seccomp(void) {
    struct sock_filter steps[] = {
        { BPF_LD | BPF_W | BPF_ABS, 0, 0, 0 },
        { BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_execve },
        { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM },
        { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW },
    };
    struct sock_fprog program = { 4, steps };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) return said(-1);
    say_all("filters", seccomp);
    say_bytes("then");
}

static void play_unshare_user(void) { said(unshare(CLONE_NEWUSER)); }
static void play_unshare_mount(void) { said(unshare(CLONE_NEWNS)), say_bytes("then"); }
static void play_unshare_files(void) { said(unshare(CLONE_FILES)), say_bytes("then"); }

static void join(const char *path) {
    int space = open(path, O_RDONLY | O_CLOEXEC);
    said(space < 0 ? -1 : setns(space, 0));
}

static void play_setns_mount(void) { join("/proc/self/ns/mnt"); }

/* The user namespace of a child that has made one. */
static void play_setns_user(void) {
    int ready[2], over[2];
    char byte, path[64];
    if (pipe(ready) < 0 || pipe(over) < 0) return said(-1);
    pid_t child = syscall(SYS_clone, SIGCHLD | CLONE_NEWUSER, 0, 0, 0, 0);
    if (child == 0) {
        close(over[1]);
        if (write(ready[1], "x", 1) < 0 || read(over[0], &byte, 1) < 0) _exit(1);
        _exit(0);
    }
    if (child < 0 || read(ready[0], &byte, 1) != 1) return said(-1);
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    join(path);
    close(over[1]);
    waitpid(child, 0, 0);
}

static void play_chroot(void) {
    mkdir("empty", 0700);
    said(chroot("empty"));
    if (chdir("/") < 0) return said(-1);
    usleep(50000);
    say_bytes("then");
}

static void play_mlockall(void) {
    long before = status_kib("VmRSS");
    said(mlockall(MCL_CURRENT | MCL_FUTURE));
    long locked = status_kib("VmLck") >> 10, grown = (status_kib("VmRSS") - before) >> 10;
    (void)locked;
    SAY("%s more in memory", grown < 64 ? "less than 64 MiB" : grown < 256 ? "64 MiB and" : "256 MiB and");
}

/* Each descriptor but the standard streams, as daemons do. */
static void play_close_all(void) {
    for (int step = 0; step < STEPS; step++)
        for (int kind = 0; kind < KINDS; kind++) files[step][kind].file = -1;
    syscall(SYS_close_range, 3u, ~0u, 0u);
    say_bytes("after");
}

/* Numbers that the program chooses by itself. */
static void play_dup2(void) {
    int file = open("taken", O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct stat stat;
    for (int step = 0; step < STEPS; step++)
        for (int kind = 0; kind < KINDS; kind++) files[step][kind].file = -1;
    for (int n = 3; n < 128; n++) if (n != file) dup2(file, n);
    say_bytes("after");
    usleep(100000);
    fstat(file, &stat);
    SAY("%ld bytes written to it", (long)stat.st_size);
}

static void on_bus(int number) {
    (void)number;
    say("O_TRUNC of a mapped file", "SIGBUS");
    _exit(0);
}

/* Another process cuts the file without opening it for writing. */
static void play_truncate(void) {
    const struct file *f = &files[MAPPED][PLAIN];
    signal(SIGBUS, on_bus);
    if (strcmp(observe("truncate", f->path), "free")) return said(-1);
    usleep(2000000);
    (void)f->bytes[9 * PAGE];
    SAY("old bytes");
    _exit(0);
}

static void play_store(void) {
    const struct file *f = &files[MAPPED][PLAIN];
    observe("store", f->path);
    usleep(200000);
    SAY("%s", f->bytes[0] == 'c' ? "seen" : "not seen");
}

static void idle_before(void) {
    struct sched_param none = { 0 };
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setscheduler(0, SCHED_IDLE, &none);
    sched_setaffinity(0, sizeof one, &one);
}

/* The thread that maps first has a priority of its own only then. */
static void play_idle(void) {
    struct sched_param none = { 0 };
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int n = 0; n < CPU_SETSIZE; n++) CPU_SET(n, &all);
    sched_setscheduler(0, SCHED_OTHER, &none);
    sched_setaffinity(0, sizeof all, &all);
    SAY("policy %s", of_all(policy));
    SAY("affinity %s", of_all(affinity));
}

static void real_time_before(void) {
    struct sched_param some = { 10 };
    setpriority(PRIO_PROCESS, 0, 7);
    sched_setscheduler(0, SCHED_FIFO, &some);
}

static void play_real_time(void) {
    struct sched_param none = { 0 };
    sched_setscheduler(0, SCHED_OTHER, &none);
    setpriority(PRIO_PROCESS, 0, 0);
    SAY("policy %s", of_all(policy));
    SAY("nice %s", of_all(nice_value));
}

static const struct act ACTS[] = {
    { "exit", play_exit, 0, 0 },
    { "_exit", play__exit, 0, 0 },
    { "quick_exit", play_quick, 0, 0 },
    { "abort", play_abort, 0, 0 },
    { "death by a signal", play_signal, 0, 0 },
    { "end of the first thread", play_last, 1, 0 },
    { "exit in a thread", play_exit_in_thread, 0, 0 },
    { "sigwait", play_sigwait, 1, 0 },
    { "fork", play_fork, 0, 0 },
    { "raw clone", play_raw_fork, 0, 0 },
    { "vfork", play_vfork, 0, 0 },
    { "system", play_system, 0, 0 },
    { "exec", play_exec, 0, 0 },
    { "daemon", play_daemon, 0, 0 },
    { "setuid", play_setuid, 0, 0 },
    { "setresuid of one thread", play_raw_setuid, 1, 0 },
    { "capset", play_capset, 1, 0 },
    { "no_new_privs of one thread", play_no_new_privs, 1, 0 },
    { "seccomp of one thread", play_seccomp, 1, 0 },
    { "unshare a user namespace", play_unshare_user, 1, 0 },
    { "unshare a mount namespace", play_unshare_mount, 0, 0 },
    { "unshare descriptors", play_unshare_files, 0, 0 },
    { "setns to a user namespace", play_setns_user, 1, 0 },
    { "setns to a mount namespace", play_setns_mount, 1, 0 },
    { "chroot", play_chroot, 0, 0 },
    { "mlockall", play_mlockall, 0, 0 },
    { "close of all descriptors", play_close_all, 0, 0 },
    { "dup2 to any number", play_dup2, 0, 0 },
    { "O_TRUNC of a mapped file", play_truncate, 0, 0 },
    { "store of another process", play_store, 0, 0 },
    { "first map at idle priority", play_idle, 1, idle_before },
    { "first map at real-time priority", play_real_time, 1, real_time_before },
};

static const struct act *act_of(const char *name) {
    for (unsigned n = 0; n < sizeof ACTS / sizeof *ACTS; n++)
        if (!strcmp(ACTS[n].name, name)) return &ACTS[n];
    fprintf(stderr, "guest: no act %s\n", name);
    _exit(93);
}

int act_is_alone(const char *act) { return act_of(act)->is_alone; }

void act_before(const char *act) {
    act_name = act_of(act)->name;
    if (act_of(act)->before) act_of(act)->before();
}

void act_now(const char *act) {
    act_of(act)->play();
    _exit(0);
}
