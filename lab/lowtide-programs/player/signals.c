/* Signals, wherever they find a thread: handlers that use memory, leave by a jump, or end the process; threads that
 * are stopped in a handler, as collectors of garbage do. */
#include "player.h"
#include <semaphore.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

static void set_timer(unsigned us) {
    struct itimerval time = { { 0, us }, { 0, us } };
    setitimer(ITIMER_REAL, &time, 0);
}

void stop_timer(void) { set_timer(0); }

/* One signal, for this thread. One for the process may come to another thread, and a second one beside the first. */
static void signal_once(unsigned us) {
    struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGVTALRM };
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    struct itimerspec time = { .it_value = { us / 1000000, us % 1000000 * 1000 } };
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0 || timer_settime(timer, 0, &time, 0) < 0) _exit(73);
}

static void handle(int number, void (*handler)(int)) {
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigaction(number, &action, 0);
}

static void nothing(int number) { (void)number; }

static void maps(int number) {
    (void)number;
    int saved = errno;
    size_t len = 80 * PAGE;
    volatile char *got = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) _exit(72);
    for (size_t i = 0; i < len; i += 7 * PAGE) got[i] = 1;
    munmap((void *)got, len);
    errno = saved;
}

static void maps_file(int number) {
    (void)number;
    int saved = errno, file = open_data(O_RDONLY);
    volatile char *got = file < 0 ? MAP_FAILED : mmap(0, 80 * PAGE, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (got != MAP_FAILED) {
        (void)got[5 * PAGE];
        munmap((void *)got, 80 * PAGE);
    }
    errno = saved;
}

/* timer US nothing|maps|file: signals come from now on; 0 is none. */
static void play_timer(struct context *c, const struct op *op) {
    (void)c;
    unsigned us = number(op, 0) % 100000;
    handle(SIGALRM, is(op, 1, "maps") ? maps : is(op, 1, "file") ? maps_file : nothing);
    /* A handler is faster than that. */
    set_timer(us > 0 && us < 3000 ? 3000 : us);
}

/* What a loop maps and unmaps: memory, or the file. */
static void *map_some(int file) {
    int prot = file < 0 ? PROT_READ | PROT_WRITE : PROT_READ;
    int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    return mmap(0, 300 * PAGE, prot, flags, file, 0);
}

static void touch(volatile char *memory, int file) {
    (void)memory[3 * PAGE];
    if (file < 0) memory[3 * PAGE] = 1;
}

static volatile sig_atomic_t exit_code;

static void exits(int number) {
    (void)number;
    leave(exit_code);
}

/* Maps and unmaps until a signal's handler ends the process. It interrupts this thread, which has no lock of the C
 * library's: exit(3) may wait for those that it needs, and two threads may not be in it. */
void end_in_handler(int code) {
    int file = code % 2 ? open_data(O_RDONLY) : -1;
    exit_code = code;
    stop_timer();
    handle(SIGVTALRM, exits);
    signal_once(1500 + code * 100);
    for (;;) {
        void *got = map_some(file);
        if (got == MAP_FAILED) continue;
        touch(got, file);
        munmap(got, 300 * PAGE);
    }
}

/* Where a handler goes that leaves what this thread was doing. */
static _Thread_local sigjmp_buf there;
static _Thread_local volatile sig_atomic_t may_jump, may_fault;

static void jumps(int number) {
    (void)number;
    if (may_jump) siglongjmp(there, 1);
}

/* jump COUNT anon|file: a handler leaves what it interrupts. */
static void play_jump(struct context *c, const struct op *op) {
    volatile int left = number(op, 0) % 16 + 1;
    volatile int file = is(op, 1, "file") ? open_data(O_RDONLY) : -1;
    handle(SIGALRM, jumps);
    if (sigsetjmp(there, 1)) left--;
    if (left > 0) {
        may_jump = 1;
        set_timer(500);
        for (;;) {
            void *got = map_some(file);
            if (got != MAP_FAILED) munmap(got, 300 * PAGE);
        }
    }
    may_jump = 0;
    set_timer(0);
    if (file >= 0) close(file);
    say(c, "ok");
}

static sem_t stopped;
static volatile sig_atomic_t resumed, is_over;

static void stops(int number) {
    (void)number;
    int saved = errno, before = resumed;
    sem_post(&stopped);
    while (resumed == before) usleep(50);
    errno = saved;
}

static void *works(void *given) {
    int file = (int)(intptr_t)given;
    while (!is_over) {
        void *got = map_some(file);
        if (got == MAP_FAILED) continue;
        touch(got, file);
        munmap(got, 300 * PAGE);
    }
    return 0;
}

/* collect ROUNDS anon|file: threads are stopped by a signal; meanwhile memory is mapped. */
static void play_collect(struct context *c, const struct op *op) {
    pthread_t ids[2];
    int file = is(op, 1, "file") ? open_data(O_RDONLY) : -1;
    if (is(op, 1, "file") && file < 0) return say(c, "no file");
    sem_init(&stopped, 0, 0);
    handle(SIGPWR, stops);
    resumed = is_over = 0;
    for (int i = 0; i < 2; i++) {
        errno = pthread_create(&ids[i], 0, works, (void *)(intptr_t)file);
        if (errno) return said(c, -1), exit(71);
    }
    for (unsigned n = number(op, 0) % 32 + 1; n > 0; n--) {
        for (int i = 0; i < 2; i++) pthread_kill(ids[i], SIGPWR);
        for (int i = 0; i < 2; i++) while (sem_wait(&stopped) < 0) {}
        void *got = map_some(file);
        if (got != MAP_FAILED) munmap(got, 300 * PAGE);
        resumed++;
        usleep(200);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++) pthread_join(ids[i], 0);
    if (file >= 0) close(file);
    say(c, "ok");
}

static void on_fault(int number) {
    if (may_fault) siglongjmp(there, 1);
    struct sigaction usual = { .sa_handler = SIG_DFL };
    sigaction(number, &usual, 0);
}

/* probe SLOT FROM COUNT load|store: what the program may not do is still a signal. */
static void play_probe(struct context *c, const struct op *op) {
    struct area *a = slot(c, op, 0);
    unsigned page = a->pages ? number(op, 1) % a->pages : 0;
    int is_store = is(op, 3, "store");
    /* What was unmapped may be another's. */
    if (a->kind == EMPTY || a->page[page].state == GONE) return say(c, "-");
    handle(SIGSEGV, on_fault);
    volatile int came = 1;
    may_fault = 1;
    if (sigsetjmp(there, 1) == 0) {
        volatile char *at_page = at(a, page);
        char byte = at_page[0];
        if (is_store) at_page[0] = byte;
        came = 0;
    }
    may_fault = 0;
    int expected = a->page[page].state == NONE || (is_store && a->page[page].state == READ);
    if (came != expected) wrong(c, came ? "a signal came" : "no signal came");
    if (is_store && !expected && a->page[page].known == OR_ZERO) a->page[page].known = UNKNOWN;
    say(c, "ok");
}

const struct entry SIGNALS[] = {
    { "timer", play_timer }, { "jump", play_jump }, { "collect", play_collect }, { "probe", play_probe }, { 0, 0 },
};
