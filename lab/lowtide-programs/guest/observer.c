/* Another process, which sees of the program what others see: locks, leases, events. It is forked before the program
 * opens anything, and ends with it. */
#include "guest.h"
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static int ours = -1, watch = -1;

static const char *result_of(int result) { return result < 0 ? strerrorname_np(errno) : "free"; }

/* What happened since the last question to a file that nobody looks at otherwise. */
static void events(const char *path, char *answer, size_t room) {
    static const struct { unsigned mask; const char *name; } NAMES[] = {
        { IN_ACCESS, "read" }, { IN_OPEN, "opened" }, { IN_CLOSE_NOWRITE, "closed" }, { IN_MODIFY, "changed" },
        { IN_CLOSE_WRITE, "closed-written" }, { IN_ATTRIB, "attributes" },
        { IN_CREATE | IN_DELETE | IN_MOVE, "made-or-removed" },
    };
    char bytes[16384];
    unsigned seen = 0;
    ssize_t len;
    while ((len = read(watch, bytes, sizeof bytes)) > 0)
        for (char *at = bytes; at < bytes + len;) {
            struct inotify_event *event = (struct inotify_event *)at;
            int is_other = event->mask & (IN_CREATE | IN_DELETE | IN_MOVE);
            if (is_other || (event->len && !strcmp(event->name, path))) seen |= event->mask;
            at += sizeof *event + event->len;
        }
    *answer = 0;
    for (unsigned n = 0; n < sizeof NAMES / sizeof *NAMES; n++)
        if (seen & NAMES[n].mask) {
            if (*answer) strncat(answer, " ", room - strlen(answer) - 1);
            strncat(answer, NAMES[n].name, room - strlen(answer) - 1);
        }
    if (!*answer) snprintf(answer, room, "nothing");
}

static const char *run(const char *path) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        char relative[80];
        snprintf(relative, sizeof relative, "./%s", path);
        execl(relative, path, (char *)0);
        _exit(errno == ETXTBSY ? 26 : 1);
    }
    waitpid(child, &status, 0);
    return status == 0 ? "runs" : WEXITSTATUS(status) == 26 ? "ETXTBSY" : "fails";
}

static void answer_to(const char *what, const char *path, char *answer, size_t room) {
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 120, .l_len = 1 };
    if (!strcmp(what, "events")) return events(path, answer, room);
    if (!strcmp(what, "run")) return (void)snprintf(answer, room, "%s", run(path));
    int writes = strcmp(what, "lease") != 0;
    int flags = !strcmp(what, "truncate") ? O_RDONLY | O_TRUNC : writes ? O_RDWR : O_RDONLY;
    int file = open(path, flags | O_CLOEXEC), result = file;
    if (!strcmp(what, "record")) result = fcntl(file, F_SETLK, &lock);
    if (!strcmp(what, "open-file")) result = fcntl(file, F_OFD_SETLK, &lock);
    if (!strcmp(what, "flock")) result = flock(file, LOCK_EX | LOCK_NB);
    if (!strcmp(what, "lease")) result = fcntl(file, F_SETLEASE, F_RDLCK);
    if (!strcmp(what, "store")) result = pwrite(file, "changed", 7, 0) == 7 ? 0 : -1;
    snprintf(answer, room, "%s", result_of(result));
    if (file >= 0) close(file);
}

static _Noreturn void serve(int theirs) {
    char question[256], answer[256];
    ssize_t len;
    watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    inotify_add_watch(watch, ".", IN_ALL_EVENTS);
    while ((len = recv(theirs, question, sizeof question - 1, 0)) > 0) {
        question[len] = 0;
        char *path = strchr(question, ' ');
        *path++ = 0;
        answer_to(question, path, answer, sizeof answer);
        if (send(theirs, answer, strlen(answer) + 1, 0) < 0) break;
    }
    _exit(0);
}

void observer_begin(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) _exit(91);
    pid_t child = fork();
    if (child == 0) {
        for (int n = 1; n < 65; n++) signal(n, SIG_DFL);
        signal(SIGIO, SIG_IGN);
        /* Its standard streams are the program's: who waits for their end must not wait for this. */
        int nowhere = open("/dev/null", O_RDWR);
        for (int n = 0; n < 3; n++) dup2(nowhere, n);
        close(nowhere), close(pair[0]);
        serve(pair[1]);
    }
    close(pair[1]);
    ours = pair[0];
    observe("events", "");
}

const char *observe(const char *what, const char *path) {
    static char answer[256];
    char question[256];
    int len = snprintf(question, sizeof question, "%s %s", what, path);
    if (send(ours, question, len, MSG_NOSIGNAL) < 0 || recv(ours, answer, sizeof answer, 0) <= 0) return "no observer";
    return answer;
}
