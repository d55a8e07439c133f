/* What a process owns, read before, while and after lowtide serves it: what the parts of this library share.
 *
 * A *way* is how lowtide comes into a process: the command, a library, a binding. The program of a way
 * (`ways/`, `examples/guest.rs`) maps, reads and adopts files as its language does, and calls this library for all
 * the rest, so that ways differ in the lines that map only. With the argument `plain` it does the same by mmap(2)
 * and pread(2). Both must say the same.
 *
 * Some rows are *read* at each moment, in one process. Others are *acts*: what a program does while lowtide serves
 * it, and how that ends; each is a process of its own. A line of output is `MOMENT|ROW|VALUE`. It depends on no
 * address, time or number of a process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u
#define FILE_PAGES 64u
#define FILE_BYTES ((size_t)FILE_PAGES * PAGE)
#define MIB ((size_t)1 << 20)

/* How a file is used: a program has each, or leaves it out. */
enum step { MAPPED, VIEWED, ADOPTED, STEPS };
/* What the program holds of the file meanwhile: a lock of one kind, a running program, or nothing. */
enum kind { RECORD, OPEN_FILE, FLOCK, LEASE, PROGRAM, PLAIN, KINDS };

/* guest.c: for programs. `act` is the name of an act, or `look`. */
void guest_begin(const char *act);
const char *guest_path(int step, int kind);
int guest_file(int step, int kind);
size_t guest_len(int step, int kind);
/* The program's own mapping of a file. */
void *guest_mmap(int step, int kind);
/* Says where a file's bytes are: they are compared. */
void guest_has(int step, int kind, const void *bytes);
/* Reads every row. */
void guest_look(const char *moment);
/* Does the act while all is served; returns where the program goes on. */
void guest_act(void);
/* Ends what guest_mmap made of MAPPED files. */
void guest_unmap(void);
/* After everything was given back. Adopted mappings are still the program's. */
int guest_end(void);

/* guest.c: for the parts. */
struct file {
    char path[64];
    int file;
    size_t len;
    const volatile char *bytes;
};
extern struct file files[STEPS][KINDS];
extern const char *const STEP_NAMES[STEPS], *const KIND_NAMES[KINDS];
extern pid_t second_thread, first_thread;
/* Memory of the program that has nothing to do with files. */
extern char *own_memory;
extern size_t own_len;
void say(const char *row, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads each byte of what a program has of the files; how many differ. */
unsigned wrong_bytes(void);

/* observer.c: another process. */
void observer_begin(void);
/* Asks it, and returns what it says. */
const char *observe(const char *what, const char *path);

/* status.c: text of /proc. */
const char *status_of(pid_t thread, const char *name);
long status_kib(const char *name);
/* The different values that threads of this process have, in order of their first. */
const char *of_all(const char *(*value)(pid_t thread));
/* Runs for each thread. */
void each_thread(void (*call)(pid_t thread, void *with), void *with);
const char *mapping_line(const void *address);
const char *mapping_flags(const void *address);
long mapping_kib(const void *address, const char *name);

/* reads.c, acts.c */
void reads_begin(void);
void read_all(const char *moment);
/* Whether the act is for a program with one thread. */
int act_is_alone(const char *act);
/* What an act does before the first mapping. */
void act_before(const char *act);
void act_now(const char *act);
/* What a program says that an act has become by exec. */
void say_inherited(void);
