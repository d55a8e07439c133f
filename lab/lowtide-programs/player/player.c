/* Reads the plan, plays its scripts, and says what came of each operation. See `player.h`. */
#include "player.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define OPS 128

struct context contexts[SCRIPTS];
static struct op scripts[SCRIPTS][OPS];
static int script_count;
static const char *data_path;

static const struct entry *const TABLES[] = { MEMORY, HEAPS, TRANSFERS, PROCESSES, THREADS, SIGNALS, OWNED };

/* One write, so lines of several threads and processes do not mix. No lock, and no memory: any thread may fork. */
static void line(struct context *c, const char *format, va_list list) {
    char text[256];
    int used = snprintf(text, sizeof text, "%d.%d %s ", c->script, c->line, c->name ? c->name : "end");
    used += vsnprintf(text + used, sizeof text - used - 1, format, list);
    if (used > (int)sizeof text - 2) used = sizeof text - 2;
    text[used] = '\n';
    if (write(1, text, used + 1) < 0) return;
}

void say(struct context *c, const char *format, ...) {
    va_list list;
    va_start(list, format);
    line(c, format, list);
    va_end(list);
}

/* Says how a call ended. */
void said(struct context *c, long result) {
    if (result < 0) say(c, "%s", strerrorname_np(errno));
    else say(c, "ok");
}

/* Whose memory a peer reads. */
pid_t peer_of;

/* Whether that process still has the memory that the peer was forked with: it may end, or execute
 * another program under the same number, which has its random bytes elsewhere. */
static int is_still_there(void) {
    unsigned long words[128];
    char path[32];
    if (getppid() != peer_of) return 0;
    snprintf(path, sizeof path, "/proc/%d/auxv", peer_of);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 1;
    ssize_t len = read(file, words, sizeof words) / (ssize_t)sizeof *words;
    close(file);
    for (ssize_t i = 0; i + 1 < len; i += 2)
        if (words[i] == AT_RANDOM) return words[i + 1] == getauxval(AT_RANDOM);
    return 1;
}

/* Memory is not as it must be. */
void wrong(struct context *c, const char *format, ...) {
    for (int look = 0; peer_of && look < 20; look++) {
        if (!is_still_there()) _exit(0);
        usleep(10000);
    }
    va_list list;
    va_start(list, format);
    line(c, format, list);
    say(c, "WRONG");
    _exit(70);
}

unsigned number(const struct op *op, int arg) { return op->arg[arg] ? strtoul(op->arg[arg], 0, 10) : 0; }

int is(const struct op *op, int arg, const char *word) { return op->arg[arg] && !strcmp(op->arg[arg], word); }

/* The script that an argument names. Only later ones: there is an end. */
struct context *context_of(const struct op *op, int arg, const struct context *from) {
    int script = number(op, arg);
    if (script <= from->script || script >= script_count) return 0;
    return &contexts[script];
}

int open_data(int flags) { return open(data_path, O_CLOEXEC | flags); }

/* Copies bytes of the common file to the beginning of another. */
ssize_t copy_data(int data, off_t from, int file, size_t len) {
    size_t done = 0;
    while (done < len) {
        ssize_t some = copy_file_range(data, &from, file, 0, len - done, 0);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) break;
        done += some;
    }
    return done;
}

static void play_one(struct context *c, const struct op *op) {
    for (unsigned t = 0; t < sizeof TABLES / sizeof *TABLES; t++)
        for (const struct entry *e = TABLES[t]; e->name; e++)
            if (!strcmp(e->name, op->name)) {
                e->play(c, op);
                return;
            }
    say(c, "unknown");
    _exit(64);
}

/* Plays a script to its end, waits for what it started, and looks at all of its memory. */
void play(struct context *c) {
    int script = c->script;
    for (c->line = 0; c->line < OPS && scripts[script][c->line].name; c->line++) {
        c->name = scripts[script][c->line].name;
        play_one(c, &scripts[script][c->line]);
    }
    c->name = 0;
    join_all(c);
    check_all(c);
    for (int s = 0; s < SLOTS; s++) drop(c, &c->area[s]);
    say(c, "ok");
}

static void parse(char *text) {
    char *outer, *middle, *inner;
    for (char *part = strtok_r(text, "/", &outer); part && script_count < SCRIPTS; part = strtok_r(0, "/", &outer)) {
        int ops = 0;
        for (char *one = strtok_r(part, ";", &middle); one && ops < OPS - 1; one = strtok_r(0, ";", &middle)) {
            char *name = strtok_r(one, " ", &inner);
            if (!name) continue;
            struct op *op = &scripts[script_count][ops++];
            op->name = name;
            for (int a = 0; a < ARGS && (op->arg[a] = strtok_r(0, " ", &inner)); a++) {}
        }
        contexts[script_count].script = script_count;
        script_count++;
    }
}

/* player DATA PLAN [SCRIPT]: a script that is not the first is that of a process which became this one. */
int main(int count, char **arguments) {
    if (count < 3) return 64;
    struct rlimit none = { 0, 0 };
    setrlimit(RLIMIT_CORE, &none);
    /* A child shall not outlive the game. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* pthread_exit opens it, also where nothing can be opened any more (chroot, no descriptors). */
    dlopen("libgcc_s.so.1", RTLD_NOW);
    data_path = arguments[1];
    setenv("PLAYER_PLAN", arguments[2], 1);
    setenv("PLAYER_DATA", arguments[1], 1);
    char *plan = strdup(arguments[2]);
    if (!plan) return 64;
    parse(plan);
    int script = count > 3 ? atoi(arguments[3]) : 0;
    if (script >= script_count) return 64;
    play(&contexts[script]);
    leave(0);
}
