/* Threads: scripts of their own, stacks of the program's own, locks, and streams. */
#include "player.h"
#include <limits.h>

static void *play_thread(void *c) {
    play(c);
    return 0;
}

void start_thread(struct context *c, struct context *other, const pthread_attr_t *attributes) {
    struct thread *t = &c->thread[other->script];
    errno = pthread_create(&t->id, attributes, play_thread, other);
    if (errno) return said(c, -1);
    t->is_used = 1;
}

/* thread SCRIPT: plays it beside this one, with memory of its own. */
static void play_thread_op(struct context *c, const struct op *op) {
    struct context *other = context_of(op, 0, c);
    if (!other || c->thread[other->script].is_used) return say(c, "-");
    memset(other->area, 0, sizeof other->area);
    start_thread(c, other, 0);
}

static void *nothing(void *given) { return given; }

static void *exits(void *given) { pthread_exit(given); }

/* own SLOT COUNT: threads, one after the other, with their stack in an area. What this player has for each thread, and
 * each library, lies there, too: 200 KiB. */
static void play_own(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = run_of(a, &from, a->pages, WRITE);
    if (a->kind != ANON || count < 100) return say(c, "-");
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    errno = pthread_attr_setstack(&attributes, at(a, from), (size_t)count * PAGE);
    if (errno) return said(c, -1);
    know(a, from, count, 0, UNKNOWN);
    for (unsigned n = number(op, 1) % 64 + 1; n > 0; n--) {
        pthread_t id;
        errno = pthread_create(&id, &attributes, n % 2 ? nothing : exits, 0);
        if (errno) return said(c, -1);
        pthread_join(id, 0);
    }
    pthread_attr_destroy(&attributes);
    say(c, "ok");
}

struct shared {
    pthread_mutex_t *lock;
    unsigned rounds, count;
};

static void *locks(void *given) {
    struct shared *s = given;
    for (unsigned i = 0; i < s->rounds; i++) {
        int failed = pthread_mutex_lock(s->lock);
        if (failed) return (void *)(intptr_t)failed;
        s->count++;
        failed = pthread_mutex_unlock(s->lock);
        if (failed) return (void *)(intptr_t)failed;
    }
    return 0;
}

/* mutex SLOT ROUNDS plain|inherit|robust FORKS: threads share a lock in an area, while this one forks. */
static void play_mutex(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = run_of(a, &from, a->pages, WRITE);
    if (count == 0 || (a->kind != ANON && a->kind < HEAP)) return say(c, "-");
    struct shared s = { (pthread_mutex_t *)at(a, from), number(op, 1) % 2000 + 1, 0 };
    know(a, from, 1, 0, UNKNOWN);
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    if (is(op, 2, "inherit")) pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    if (is(op, 2, "robust")) pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(s.lock, &kind);
    pthread_t ids[2];
    void *results[2] = { 0, 0 };
    for (int i = 0; i < 2; i++) {
        errno = pthread_create(&ids[i], 0, locks, &s);
        if (errno) return said(c, -1), exit(71);
    }
    for (unsigned n = number(op, 3) % 16; n > 0; n--) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (child < 0) said(c, -1);
        else waitpid(child, 0, 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(ids[i], &results[i]);
    pthread_mutex_destroy(s.lock);
    say(c, "%u rounds, %d %d", s.count, (int)(intptr_t)results[0], (int)(intptr_t)results[1]);
}

static void *flushes(void *given) {
    struct shared *s = given;
    for (unsigned i = 0; i < s->rounds; i++) fflush(0);
    return 0;
}

/* stream SLOT ROUNDS FORKS: a stream has its buffer in an area; a thread flushes all streams, while this one forks. */
static void play_stream(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned from = 0, count = run_of(a, &from, a->pages, WRITE);
    if (count < 2 || (a->kind != ANON && a->kind < HEAP)) return say(c, "-");
    char name[32];
    snprintf(name, sizeof name, "stream-%d-%d", c->script, c->line);
    FILE *stream = fopen(name, "w");
    if (!stream) return say(c, "no file");
    setvbuf(stream, at(a, from), _IOFBF, (size_t)count * PAGE);
    know(a, from, count, 0, UNKNOWN);
    struct shared s = { 0, number(op, 1) % 16 + 1, 0 };
    pthread_t id;
    errno = pthread_create(&id, 0, flushes, &s);
    if (errno) return said(c, -1), exit(71);
    unsigned long written = 0;
    for (unsigned n = number(op, 2) % 8; n > 0; n--) {
        for (unsigned i = 0; i < count * PAGE / 2; i += 64) written += fprintf(stream, "%063u\n", i);
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (child < 0) said(c, -1);
        else waitpid(child, 0, 0);
    }
    pthread_join(id, 0);
    fclose(stream);
    say(c, "%lu written", written);
}

/* cancel: a thread that waits is cancelled. */
static void *waits(void *given) {
    int *ends = given;
    char byte;
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {}
    return 0;
}

static void play_cancel(struct context *c, const struct op *op) {
    (void)op;
    int ends[2];
    pthread_t id;
    if (pipe(ends) < 0) return said(c, -1);
    errno = pthread_create(&id, 0, waits, ends);
    if (errno) return said(c, -1);
    pthread_cancel(id);
    void *result = 0;
    pthread_join(id, &result);
    close(ends[0]), close(ends[1]);
    say(c, result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
}

const struct entry THREADS[] = {
    { "thread", play_thread_op }, { "own", play_own }, { "mutex", play_mutex }, { "stream", play_stream },
    { "cancel", play_cancel }, { 0, 0 },
};
