/*
 * A loader of weights that are larger than its memory, as those of mixture-of-experts models are:
 * one file, mapped once; per token a router names a few experts, and only their weights are read.
 *
 * A loader that maps the file (as those of gguf files do) keeps its pointers. What is new here are
 * two calls: lt_adopt, after which the mapping has a budget, and lt_adopted_prefetch, as soon as the
 * router has named the next experts: they are read while the present ones are computed with.
 *
 *   weights FILE make MIB            makes a file
 *   weights FILE run MIB TOKENS      reads experts with lowtide, within MIB of memory
 *   weights FILE plain TOKENS        the same with mmap alone
 *
 * Both print the same sum. The figures to compare are what of the file is in memory at most, and
 * when all is computed. The kernel brings pages in when they are touched, and lowtide evicts others
 * some milliseconds later: "at most" may be above the budget, the other is not for long.
 *
 * The format: a header, then one record for each expert, which begins with a page:
 *
 *   bytes 0..8    "weights1"
 *   bytes 8..16   number of experts
 *   bytes 16..24  bytes of an expert, a multiple of 4096
 *   at 4096       the first expert
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <lowtide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ull
#define EXPERT (256 * 1024ull)
#define LAYERS 4
#define ACTIVE 2

struct weights {
    const unsigned char *data;
    uint64_t len;
    uint64_t experts;
    uint64_t expert_bytes;
    lt_adopted *adopted;
};

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check(int code, const char *what) {
    if (code != LT_OK) {
        die(what, lt_last_error());
    }
}

static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void make(const char *path, uint64_t mib) {
    uint64_t header[3] = {0, mib * 1024 * 1024 / EXPERT, EXPERT}, seed = 88172645463325252ull;
    static uint64_t words[EXPERT / 8];
    static unsigned char page[PAGE];
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        die(path, "cannot be made");
    }
    memcpy(header, "weights1", 8);
    memcpy(page, header, sizeof header);
    int failed = fwrite(page, PAGE, 1, file) != 1;
    for (uint64_t i = 0; i < header[1]; i++) {
        for (uint64_t w = 0; w < EXPERT / 8; w++) {
            words[w] = next(&seed);
        }
        failed |= fwrite(words, EXPERT, 1, file) != 1;
    }
    /* Cold, as a model is that was copied here long ago. */
    failed |= fflush(file) || fsync(fileno(file)) ||
              posix_fadvise(fileno(file), 0, 0, POSIX_FADV_DONTNEED);
    if (failed | fclose(file)) {
        die(path, "cannot be written");
    }
}

static struct weights map(const char *path, int *fd) {
    struct weights weights = {0};
    struct stat stat;
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &stat) != 0) {
        die(path, "cannot be opened");
    }
    weights.len = (uint64_t)stat.st_size;
    weights.data = mmap(NULL, weights.len, PROT_READ, MAP_SHARED, *fd, 0);
    if (weights.data == MAP_FAILED || memcmp(weights.data, "weights1", 8) != 0) {
        die(path, "is no file of weights");
    }
    memcpy(&weights.experts, weights.data + 8, 8);
    memcpy(&weights.expert_bytes, weights.data + 16, 8);
    if (weights.experts == 0 || weights.expert_bytes % PAGE != 0 ||
        weights.experts > (weights.len - PAGE) / weights.expert_bytes) {
        die(path, "is shorter than its header says");
    }
    return weights;
}

static lt_range range_of(const struct weights *weights, uint64_t expert) {
    return (lt_range){PAGE + expert * weights->expert_bytes, weights->expert_bytes};
}

/* Which experts a layer of a token uses: a few are popular, as in real models. */
static void route(const struct weights *weights, uint64_t *seed, uint64_t experts[ACTIVE]) {
    for (int i = 0; i < ACTIVE; i++) {
        uint64_t hot = weights->experts / 16 + 1;
        experts[i] = next(seed) % (next(seed) % 10 < 7 ? hot : weights->experts);
    }
}

static void prefetch(const struct weights *weights, const uint64_t experts[ACTIVE]) {
    lt_range ranges[ACTIVE];
    for (int i = 0; i < ACTIVE; i++) {
        ranges[i] = range_of(weights, experts[i]);
    }
    check(lt_adopted_prefetch(weights->adopted, ranges, ACTIVE), "prefetch");
}

/* Stands for the multiplication. */
static uint64_t compute(const struct weights *weights, uint64_t expert) {
    const unsigned char *data = weights->data + range_of(weights, expert).offset;
    uint64_t sum = 0, word;
    for (uint64_t at = 0; at < weights->expert_bytes; at += sizeof word) {
        memcpy(&word, data + at, sizeof word);
        sum += word ^ (sum << 1);
    }
    return sum;
}

/* Bytes of the mapping that the kernel has in memory. */
static uint64_t cached(const struct weights *weights) {
    uint64_t pages = weights->len / PAGE, in_memory = 0;
    unsigned char *states = malloc(pages + 1);
    if (states == NULL || mincore((void *)weights->data, weights->len, states) != 0) {
        die("mincore", "failed");
    }
    for (uint64_t i = 0; i < pages; i++) {
        in_memory += states[i] & 1;
    }
    free(states);
    return in_memory * PAGE;
}

static uint64_t tokens(const struct weights *weights, uint64_t count, uint64_t *most) {
    uint64_t seed = 2463534242ull, now[ACTIVE], then[ACTIVE], sum = 0;
    *most = 0;
    route(weights, &seed, now);
    for (uint64_t step = 0; step < count * LAYERS; step++) {
        route(weights, &seed, then);
        if (weights->adopted != NULL) {
            prefetch(weights, then);
        }
        for (int i = 0; i < ACTIVE; i++) {
            sum = sum * 31 + compute(weights, now[i]);
        }
        memcpy(now, then, sizeof now);
        if (step % 16 == 15) {
            uint64_t bytes = cached(weights);
            *most = bytes > *most ? bytes : *most;
        }
    }
    return sum;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[2], "make") == 0) {
        make(argv[1], strtoull(argv[3], NULL, 10));
        return 0;
    }
    int with_budget = argc == 5 && strcmp(argv[2], "run") == 0;
    if (!with_budget && !(argc == 4 && strcmp(argv[2], "plain") == 0)) {
        die("usage", "weights FILE make MIB | run MIB TOKENS | plain TOKENS");
    }
    int fd;
    struct weights weights = map(argv[1], &fd);
    lt_pager *pager = NULL;
    if (with_budget) {
        lt_pager_options options = {.size = sizeof options};
        options.max = strtoull(argv[3], NULL, 10) << 20;
        check(lt_pager_open(&options, &pager), "pager");
        check(lt_adopt(pager, fd, weights.data, weights.len, NULL, &weights.adopted), "adopt");
    }
    close(fd);
    struct timespec begin, end;
    uint64_t most;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    uint64_t sum = tokens(&weights, strtoull(argv[argc - 1], NULL, 10), &most);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (end.tv_nsec - begin.tv_nsec) / 1e9;
    printf("sum %016llx\n", (unsigned long long)sum);
    uint64_t rest = cached(&weights), max = with_budget ? strtoull(argv[3], NULL, 10) << 20 : 0;
    for (int looks = 0; with_budget && rest > max && looks < 60000; looks++) {
        usleep(1000);
        rest = cached(&weights);
    }
    printf("%llu KiB in memory at the end, at most %llu of %llu, %.2f s\n",
           (unsigned long long)(rest >> 10), (unsigned long long)(most >> 10),
           (unsigned long long)(weights.len >> 10), seconds);
    check(lt_forget(weights.adopted), "forget");
    munmap((void *)weights.data, weights.len);
    check(lt_pager_close(pager), "pager");
    return 0;
}
