/* What a process owns, row by row. Each function says one or several rows; none of them changes what it reads, or it
 * puts it back. */
#include "guest.h"
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

extern char **environ;

/* What there was at the beginning. */
static struct sigaction actions[65];
static struct stat stats[STEPS][KINDS];
static char name[32];
static long data_kib, size_kib;
static int ahead = -1, kept_file = -1;
static volatile sig_atomic_t delivered_to_second, delivered_elsewhere;

static void delivered(int number) {
    (void)number;
    if (gettid() == second_thread) delivered_to_second++;
    else delivered_elsewhere++;
}

static const char *file_of(pid_t thread, const char *name) {
    static char value[256];
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", thread, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = file < 0 ? 0 : read(file, value, sizeof value - 1);
    if (file >= 0) close(file);
    value[len < 0 ? 0 : len] = 0;
    value[strcspn(value, "\n")] = 0;
    return value;
}

void reads_begin(void) {
    static char bytes[MIB];
    struct sigaction action = { .sa_handler = delivered, .sa_flags = SA_RESTART };
    struct itimerval time = { { 3600, 0 }, { 3600, 0 } };
    stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 };
    sigset_t mask;
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGUSR2, &action, 0);
    sigaltstack(&stack, 0);
    setitimer(ITIMER_REAL, &time, 0);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGUSR2);
    sigprocmask(SIG_BLOCK, &mask, 0);
    /* Pending for the process: every thread of the program blocks it. */
    kill(getpid(), SIGUSR1);
    ahead = open("read-ahead", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (write(ahead, bytes, sizeof bytes) < 0 || fsync(ahead) < 0) _exit(92);
    kept_file = open("read-ahead", O_RDONLY);
    lseek(kept_file, 12345, SEEK_SET);
    for (int n = 1; n < 65; n++) sigaction(n, 0, &actions[n]);
    for (int step = 0; step < STEPS; step++)
        for (int kind = 0; kind < KINDS; kind++) stat(files[step][kind].path, &stats[step][kind]);
    snprintf(name, sizeof name, "%s", file_of(first_thread, "comm"));
    observe("events", "");
    data_kib = status_kib("VmData");
    size_kib = status_kib("VmSize");
}

static void locks(void) {
    static const char *const ROWS[] = { "record locks", "open file locks", "flock", "leases" };
    for (int kind = RECORD; kind <= LEASE; kind++) {
        char text[200] = "";
        for (int step = 0; step < STEPS; step++) {
            const struct file *f = &files[step][kind];
            const char *held = kind == LEASE ? (fcntl(f->file, F_GETLEASE) == F_RDLCK ? "held" : "lost")
                                             : strcmp(observe(KIND_NAMES[kind], f->path), "free") ? "held" : "lost";
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %s", step ? ", " : "", STEP_NAMES[step], held);
        }
        say(ROWS[kind], "%s", text);
    }
    say("leases of others", "map %s, adopt %s", observe("lease", files[MAPPED][PROGRAM].path),
        observe("lease", files[ADOPTED][PROGRAM].path));
    say("running a mapped program", "map %s, adopt %s", observe("run", files[MAPPED][PROGRAM].path),
        observe("run", files[ADOPTED][PROGRAM].path));
}

static int takes_signals(pid_t thread, int *takes) {
    /* Of those that are sent to a process: HUP, INT, QUIT, USR1, USR2, ALRM, TERM, CHLD, CONT, WINCH. */
    static const int SENT[] = { 1, 2, 3, 10, 12, 14, 15, 17, 18, 28 };
    unsigned long blocked = strtoul(status_of(thread, "SigBlk"), 0, 16);
    for (unsigned n = 0; n < sizeof SENT / sizeof *SENT; n++) *takes |= !(blocked >> (SENT[n] - 1) & 1);
    return *takes;
}

static void other_takes(pid_t thread, void *count) {
    int takes = 0;
    if (thread != first_thread && thread != second_thread) *(int *)count += takes_signals(thread, &takes) != 0;
}

static void signals(void) {
    int others = 0, changed = 0;
    say("signal mask", "%s", status_of(first_thread, "SigBlk"));
    say("signal mask of another thread", "%s", second_thread ? status_of(second_thread, "SigBlk") : "none");
    each_thread(other_takes, &others);
    say("signals in other threads", "%s", others ? "some take them" : "none takes one");
    for (int n = 1; n < 65; n++) {
        struct sigaction now;
        if (sigaction(n, 0, &now) == 0)
            changed += now.sa_handler != actions[n].sa_handler || now.sa_flags != actions[n].sa_flags
                       || memcmp(&now.sa_mask, &actions[n].sa_mask, 8);
    }
    say("dispositions", "%d changed, caught %s", changed, status_of(first_thread, "SigCgt"));
    say("ignored signals", "%s", status_of(first_thread, "SigIgn"));
    stack_t stack;
    sigaltstack(0, &stack);
    say("alternate stack", "%zu bytes, flags %d", stack.ss_size, stack.ss_flags);
    say("pending signals", "of the process %s, delivered %d", status_of(first_thread, "ShdPnd"),
        (int)(delivered_elsewhere));
    /* Where one to the process goes: the second thread is the only one that does not block it. */
    delivered_to_second = 0;
    for (int n = 1; n <= 20 && second_thread; n++) {
        kill(getpid(), SIGUSR2);
        for (int look = 0; look < 5000 && delivered_to_second + delivered_elsewhere < n; look++) usleep(200);
    }
    say("signals to the process", "%d in its second thread", (int)delivered_to_second);
    sigset_t winch;
    struct timespec second = { 2, 0 };
    sigemptyset(&winch);
    sigaddset(&winch, SIGWINCH);
    sigset_t before;
    sigprocmask(SIG_BLOCK, &winch, &before);
    kill(getpid(), SIGWINCH);
    say("sigtimedwait", "%s", sigtimedwait(&winch, 0, &second) == SIGWINCH ? "gets it" : "does not get it");
    sigprocmask(SIG_SETMASK, &before, 0);
    struct itimerval time;
    getitimer(ITIMER_REAL, &time);
    say("timer", "every %ld s, %s", (long)time.it_interval.tv_sec, time.it_value.tv_sec > 3000 ? "runs" : "does not run");
}

static void descriptors(void) {
    struct rlimit limit, low;
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC), all[256], count = 0, open_now = 0;
    close(next);
    say("next descriptor", "%d", next);
    for (int n = 0; n < 1024; n++) open_now += fcntl(n, F_GETFD) >= 0;
    say("open descriptors", "%d", open_now);
    getrlimit(RLIMIT_NOFILE, &limit);
    low = limit;
    low.rlim_cur = 128;
    setrlimit(RLIMIT_NOFILE, &low);
    while (count < 256 && (all[count] = dup(0)) >= 0) count++;
    for (int n = 0; n < count; n++) close(all[n]);
    setrlimit(RLIMIT_NOFILE, &limit);
    say("free descriptors", "%d of 128", count);
    say("an open file", "at %ld, flags %x %x", (long)lseek(kept_file, 0, SEEK_CUR), (unsigned)fcntl(kept_file, F_GETFL),
        (unsigned)fcntl(kept_file, F_GETFD));
}

/* Whether the kernel reads ahead of one page that is read: it does not after POSIX_FADV_RANDOM. */
static const char *reads_ahead(int file, size_t len) {
    struct { uint64_t offset, len; } range = { 0, len };
    struct { uint64_t cached, dirty, writeback, evicted, recently; } stat = { 0 };
    char byte;
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    if (pread(file, &byte, 1, 0) != 1) return "unreadable";
    /* Those that are read ahead come later. */
    usleep(20000);
    if (syscall(451, file, &range, &stat, 0) < 0) return "unknown";
    return stat.cached > 2 ? "reads ahead" : "reads one page";
}

static void advice(const char *moment) {
    int is_at_an_end = !strcmp(moment, "before") || !strcmp(moment, "end");
    say("advice of an open file", "%s", reads_ahead(ahead, MIB));
    if (is_at_an_end)
        for (int step = 0; step < STEPS; step++) {
            char row[64];
            snprintf(row, sizeof row, "advice of a file to %s", STEP_NAMES[step]);
            say(row, "%s", reads_ahead(files[step][PLAIN].file, FILE_BYTES));
        }
    say("advice of other memory", "%s", mapping_flags(own_memory));
    say("advice of the stack", "%s", mapping_flags(&is_at_an_end));
    if (files[ADOPTED][PLAIN].bytes) {
        say("advice of an adopted mapping", "%s", mapping_flags((void *)files[ADOPTED][PLAIN].bytes));
        say("name of an adopted mapping", "%s", mapping_line((void *)files[ADOPTED][PLAIN].bytes));
    }
    if (files[MAPPED][PLAIN].bytes) {
        say("advice of a map", "%s", mapping_flags((void *)files[MAPPED][PLAIN].bytes));
        say("name of a map", "%s", mapping_line((void *)files[MAPPED][PLAIN].bytes));
    }
    say("dirty pages of other memory", "%ld KiB", mapping_kib(own_memory, "Private_Dirty:"));
}

static void limits(void) {
    char text[600] = "";
    for (int n = 0; n < RLIM_NLIMITS; n++) {
        struct rlimit limit;
        getrlimit(n, &limit);
        snprintf(text + strlen(text), sizeof text - strlen(text), " %ld/%ld", (long)limit.rlim_cur, (long)limit.rlim_max);
    }
    say("limits", "%s", text + 1);
}

/* How much of 256 MiB more than at the beginning can be had under a limit, in units that say what matters. */
static void room_under(const char *row, int what, long now_kib) {
    struct rlimit limit, low;
    void *all[32];
    int count = 0;
    getrlimit(what, &limit);
    low = limit;
    low.rlim_cur = ((rlim_t)now_kib << 10) + 256 * MIB;
    setrlimit(what, &low);
    while (count < 32) {
        all[count] = mmap(0, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all[count] == MAP_FAILED) break;
        count++;
    }
    setrlimit(what, &limit);
    for (int n = 0; n < count; n++) munmap(all[n], 16 * MIB);
    say(row, "%s", count >= 12 ? "192 MiB and more" : count >= 4 ? "64 MiB and more" : "less than 64 MiB");
}

static void memory(void) {
    long data = (status_kib("VmData") - data_kib) >> 10;
    room_under("room under RLIMIT_DATA", RLIMIT_DATA, data_kib);
    room_under("room under RLIMIT_AS", RLIMIT_AS, size_kib);
    say("VmData", "%s", data < 128 ? "as before" : "128 MiB and more");
    say("VmLck", "%ld KiB", status_kib("VmLck"));
    say("VmPin", "%ld KiB", status_kib("VmPin"));
    say("bytes", "%u wrong", wrong_bytes());
    unsigned wrong = 0;
    for (size_t i = 0; i < own_len / 2; i++) wrong += own_memory[i] != 7;
    say("bytes of other memory", "%u wrong", wrong);
}

static const char *number_text(long number) {
    static char text[32];
    snprintf(text, sizeof text, "%ld", number);
    return text;
}

static const char *nice_of(pid_t thread) {
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, thread);
    return errno ? "" : number_text(nice);
}

static const char *io_priority_of(pid_t thread) {
    long priority = syscall(SYS_ioprio_get, 1, thread);
    return priority < 0 ? "" : number_text(priority);
}

static const char *policy_of(pid_t thread) {
    int policy = sched_getscheduler(thread);
    return policy < 0 ? "" : number_text(policy);
}

static const char *link_of(pid_t thread, const char *name) {
    static char value[512];
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", thread, name);
    ssize_t len = readlink(path, value, sizeof value - 1);
    value[len < 0 ? 0 : len] = 0;
    return value;
}

static const char *affinity_of(pid_t thread) { return status_of(thread, "Cpus_allowed_list"); }
static const char *oom_of(pid_t thread) { return file_of(thread, "oom_score_adj"); }
static const char *cgroup_of(pid_t thread) { return file_of(thread, "cgroup"); }
static const char *persona_of(pid_t thread) { return file_of(thread, "personality"); }
static const char *user_of(pid_t thread) { return status_of(thread, "Uid"); }
static const char *group_of(pid_t thread) { return status_of(thread, "Gid"); }
static const char *groups_of(pid_t thread) { return status_of(thread, "Groups"); }
static const char *effective_of(pid_t thread) { return status_of(thread, "CapEff"); }
static const char *permitted_of(pid_t thread) { return status_of(thread, "CapPrm"); }
static const char *bounding_of(pid_t thread) { return status_of(thread, "CapBnd"); }
static const char *no_new_of(pid_t thread) { return status_of(thread, "NoNewPrivs"); }
static const char *seccomp_of(pid_t thread) { return status_of(thread, "Seccomp"); }
static const char *umask_of(pid_t thread) { return status_of(thread, "Umask"); }
static const char *root_of(pid_t thread) { return link_of(thread, "root"); }

static const char *spaces_of(pid_t thread) {
    static const char *const NAMES[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time" };
    static char text[512];
    *text = 0;
    for (unsigned n = 0; n < sizeof NAMES / sizeof *NAMES; n++) {
        char path[32];
        snprintf(path, sizeof path, "ns/%s", NAMES[n]);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", link_of(thread, path));
    }
    return text;
}

static const char *folder_of(pid_t thread) {
    const char *path = link_of(thread, "cwd"), *base = strrchr(path, '/');
    /* Folders of different plays have different names. */
    return base && base[1] ? "the program's" : path;
}

static void threads(void) {
    static const struct { const char *row; const char *(*value)(pid_t thread); } OF_ALL[] = {
        { "nice", nice_of }, { "I/O priority", io_priority_of }, { "scheduling policy", policy_of },
        { "affinity", affinity_of }, { "user", user_of }, { "group", group_of },
        { "other groups", groups_of }, { "effective capabilities", effective_of },
        { "permitted capabilities", permitted_of }, { "bounding set", bounding_of }, { "no_new_privs", no_new_of },
        { "seccomp", seccomp_of }, { "umask", umask_of }, { "root folder", root_of }, { "working folder", folder_of },
        { "namespaces", spaces_of }, { "cgroup", cgroup_of }, { "personality", persona_of }, { "oom_score_adj", oom_of },
    };
    for (unsigned n = 0; n < sizeof OF_ALL / sizeof *OF_ALL; n++) say(OF_ALL[n].row, "%s", of_all(OF_ALL[n].value));
    say("name", "%s", strcmp(name, file_of(first_thread, "comm")) ? "another" : "the program's");
    int reaper = 0, death = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &reaper, 0, 0, 0);
    prctl(PR_GET_PDEATHSIG, &death, 0, 0, 0);
    say("prctl", "dumpable %d, keepcaps %d, subreaper %d, parent's death %d, huge pages off %d",
        prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0), reaper, death,
        prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    say("timer slack", "%d", prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0));
    say("coredump_filter", "%s", file_of(first_thread, "../../coredump_filter"));
    say("tracer", "%s", status_of(first_thread, "TracerPid"));
    say("threads", "%s", status_of(first_thread, "Threads"));
}

static void world(void) {
    char text[200] = "";
    int status, extra = 0;
    for (int step = 0; step < STEPS; step++) {
        struct stat now;
        const struct stat *then = &stats[step][PLAIN];
        stat(files[step][PLAIN].path, &now);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %s", step ? ", " : "", STEP_NAMES[step],
                 now.st_mtim.tv_sec != then->st_mtim.tv_sec || now.st_ctim.tv_sec != then->st_ctim.tv_sec
                         || now.st_ctim.tv_nsec != then->st_ctim.tv_nsec || now.st_size != then->st_size
                         || now.st_blocks != then->st_blocks || now.st_mode != then->st_mode ? "other" : "same");
    }
    say("times and size of files", "%s", text);
    *text = 0;
    for (int step = 0; step < STEPS; step++) {
        struct stat now;
        stat(files[step][PLAIN].path, &now);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %s", step ? ", " : "", STEP_NAMES[step],
                 now.st_atim.tv_sec == 1000000 ? "as before" : "accessed");
    }
    say("access times", "%s", text);
    for (int step = 0; step < STEPS; step++) {
        char row[64];
        snprintf(row, sizeof row, "events of a file to %s", STEP_NAMES[step]);
        say(row, "%s", observe("events", files[step][PLAIN].path));
    }
    say("children", "%s", waitpid(-1, &status, WNOHANG) == 0 ? "the program's" : "none");
    for (char **each = environ; *each; each++) extra += !strncmp(*each, "LD_PRELOAD=", 11) || !strncmp(*each, "LOWTIDE_", 8);
    say("environment", "%d of lowtide", extra);
    pid_t child = fork();
    if (child == 0) _exit(atoi(status_of(getpid(), "Threads")));
    waitpid(child, &status, 0);
    say("threads of a child", "%d", WEXITSTATUS(status));
}

void read_all(const char *moment) {
    /* Events first: what is read here makes some. */
    world();
    locks();
    signals();
    descriptors();
    advice(moment);
    limits();
    memory();
    threads();
}

void say_inherited(void) {
    struct rlimit files_limit;
    char text[400] = "";
    for (int n = 0; n < 256; n++)
        if (fcntl(n, F_GETFD) >= 0) snprintf(text + strlen(text), sizeof text - strlen(text), " %d", n);
    first_thread = gettid();
    getrlimit(RLIMIT_NOFILE, &files_limit);
    say("exec", "descriptors%s; blocked %s, ignored %s, pending %s; nice %s, policy %s, on %s; files %ld", text,
        strdup(status_of(first_thread, "SigBlk")), strdup(status_of(first_thread, "SigIgn")),
        strdup(status_of(first_thread, "ShdPnd")), strdup(nice_of(0)), strdup(policy_of(0)), strdup(affinity_of(first_thread)),
        (long)files_limit.rlim_cur);
}
