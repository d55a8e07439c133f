/* Reads /proc of this process and of its threads. */
#include "guest.h"
#include <dirent.h>

/* A value of /proc/self/task/THREAD/status, without blanks at its ends. */
const char *status_of(pid_t thread, const char *name) {
    static char text[8192], value[512];
    char path[64], key[40];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (len <= 0) return "";
    text[len] = 0;
    snprintf(key, sizeof key, "\n%s:", name);
    char *at = strstr(text, key);
    if (!at) return "";
    at += strlen(key);
    at += strspn(at, "\t ");
    size_t end = strcspn(at, "\n");
    while (end && (at[end - 1] == ' ' || at[end - 1] == '\t')) end--;
    snprintf(value, sizeof value, "%.*s", (int)end, at);
    for (char *c = value; *c; c++) if (*c == '\t') *c = ' ';
    return value;
}

long status_kib(const char *name) { return strtol(status_of(first_thread, name), 0, 10); }

void each_thread(void (*call)(pid_t thread, void *with), void *with) {
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    while (tasks && (task = readdir(tasks)))
        if (task->d_name[0] != '.') call(atoi(task->d_name), with);
    if (tasks) closedir(tasks);
}

struct values {
    const char *(*value)(pid_t thread);
    char all[16][512];
    int count;
};

static void add_value(pid_t thread, void *with) {
    struct values *values = with;
    char value[512];
    snprintf(value, sizeof value, "%s", values->value(thread));
    /* It may have ended meanwhile. */
    if (!*value) return;
    for (int n = 0; n < values->count; n++) if (!strcmp(values->all[n], value)) return;
    if (values->count < 16) snprintf(values->all[values->count++], 512, "%s", value);
}

const char *of_all(const char *(*value)(pid_t thread)) {
    static char text[1024];
    struct values values = { .value = value };
    each_thread(add_value, &values);
    *text = 0;
    for (int n = 0; n < values.count; n++) {
        if (n) strncat(text, " and ", sizeof text - strlen(text) - 1);
        strncat(text, values.all[n], sizeof text - strlen(text) - 1);
    }
    return text;
}

/* Copies the lines of the mapping that has this address, from /proc/self/smaps. */
static int mapping(const void *address, char *text, size_t room) {
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[512];
    int inside = 0;
    *text = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        /* Names of values begin with a capital letter. */
        int is_head = line[0] < 'A' || line[0] > 'Z';
        if (is_head && sscanf(line, "%lx-%lx", &start, &end) == 2)
            inside = start <= (unsigned long)address && (unsigned long)address < end;
        if (inside) strncat(text, line, room - strlen(text) - 1);
    }
    if (maps) fclose(maps);
    return *text != 0;
}

static char *value_of(char *text, const char *name) {
    char *at = strstr(text, name);
    if (!at) return 0;
    at += strlen(name);
    return at + strspn(at, " ");
}

/* Rights, place in the file and name. */
const char *mapping_line(const void *address) {
    static char line[512];
    char text[8192], rights[8] = "", name[256] = "";
    unsigned long offset = 0;
    if (!mapping(address, text, sizeof text)) return "none";
    sscanf(text, "%*x-%*x %7s %lx %*s %*s %255[^\n]", rights, &offset, name);
    char *base = strrchr(name, '/');
    snprintf(line, sizeof line, "%s %lx %s", rights, offset, base ? base + 1 : name);
    return line;
}

const char *mapping_flags(const void *address) {
    static char flags[256];
    char text[8192];
    char *at = mapping(address, text, sizeof text) ? value_of(text, "VmFlags:") : 0;
    snprintf(flags, sizeof flags, "%.*s", at ? (int)strcspn(at, "\n") : 4, at ? at : "none");
    return flags;
}

long mapping_kib(const void *address, const char *name) {
    char text[8192];
    char *at = mapping(address, text, sizeof text) ? value_of(text, name) : 0;
    return at ? strtol(at, 0, 10) : -1;
}
