/*
 * lowtide: use files and heaps larger than the memory you give them.
 *
 * This file is made from the sources of liblowtide; change those.
 *
 * Errors. A function returns LT_OK (0), a number of errno (positive) or one of lowtide (negative).
 * lt_strerror says what a number means, and lt_last_error what happened: which file, which page,
 * and what to do about it. The comment at a function names the numbers that are worth a case of
 * their own; any function may return others. Each one may return EINVAL (a null pointer where
 * something is needed), LT_FORKED and LT_PANIC. No function unwinds or ends the process.
 *
 * Handles. A handle is opaque and comes from one function, which writes it to `out`, or null where
 * it fails. Each handle has one closing function; call it once and do not use the handle
 * afterwards. Handles may be closed in any order; the last one frees what they share. But unpin
 * pages before their view or region is closed.
 *
 * Structures that begin with `size` are set to zero, then to sizeof in `size`. So a program works
 * with a newer library and with an older one. Flags begin with the name of their structure, and no
 * two share a bit: one in another structure is EINVAL, one of a newer header LT_TOO_NEW.
 *
 * Threads. A comment says which threads may call a function; "any" means several at a time, too.
 * Do not call lowtide in a handler of a signal, and never unload it by dlclose.
 *
 * fork. A child does not have the pagers of its parent: calls with handles of the parent return
 * LT_FORKED and change nothing. It can open pagers of its own. A child of a raw clone(2) cannot.
 */

#ifndef LOWTIDE_H
#define LOWTIDE_H

#include <stddef.h>
#include <stdint.h>

// All is well.
#define LT_OK 0

// The library met a defect of its own. The text says where. Report it.
#define LT_PANIC -30001

// The range, or the page, is past the end of the file or the region.
#define LT_OUT_OF_RANGE -30002

// The budget of a tenant, or of the pager, is full of what cannot be evicted.
#define LT_NO_ROOM -30003

// This thread has the page pinned, and would wait for itself. Unpin it before.
#define LT_HELD_HERE -30004

// Another thread had the page pinned for too long.
#define LT_HELD_ELSEWHERE -30005

// The call is not possible in a callback of lt_view_get_many, where it would wait for other
// threads.
#define LT_NESTED -30006

// The device did not answer in time.
#define LT_TIMEOUT -30007

// The view was opened for reading only.
#define LT_READ_ONLY -30008

// The pager met a defect before. Flushed data are safe; close it and open another one.
#define LT_POISONED -30009

// The tenant has been removed.
#define LT_GONE -30010

// A tenant of this name exists.
#define LT_EXISTS -30011

// Another process, or another pager, has the file locked.
#define LT_LOCKED -30012

// A mapping of this kind is not possible here. The text says why.
#define LT_NOT_POSSIBLE -30013

// The page is not in memory at this moment. Only lt_view_try_pin returns this.
#define LT_NOT_RESIDENT -30014

// The handle belongs to the parent of this process.
#define LT_FORKED -30015

// Another thread pinned the page, and that thread must unpin it.
#define LT_WRONG_THREAD -30016

// A structure has a choice that this library does not know: the program was compiled with a newer
// header.
#define LT_TOO_NEW -30017

// The library starts no threads: it reclaims and writes in the threads that call it.
#define LT_PAGER_NO_BACKGROUND (1 << 0)

// Takes all memory of the budget when the pager is opened.
#define LT_PAGER_POPULATE (1 << 1)

// Reads and writes through the kernel's page cache.
#define LT_PAGER_BUFFERED (1 << 2)

// Reads and writes past the kernel's page cache, or fails.
#define LT_PAGER_DIRECT (1 << 3)

// Pages of files that are evicted do not stay compressed, also where that would pay.
#define LT_PAGER_NO_ZCACHE (1 << 4)

// For reading and writing.
#define LT_VIEW_WRITE (1 << 8)

// Makes the file if there is none, and as long as `create_size`. Implies LT_VIEW_WRITE.
#define LT_VIEW_CREATE (1 << 9)

// Makes the file, or fails with EEXIST. Implies LT_VIEW_WRITE.
#define LT_VIEW_CREATE_NEW (1 << 10)

// lt_view_write_at returns when the bytes are durable.
#define LT_VIEW_SYNC (1 << 11)

// Takes no lock on the file. The program makes sure that no other one writes it.
#define LT_VIEW_NO_LOCK (1 << 12)

// Does not wait for the lock.
#define LT_VIEW_NO_WAIT (1 << 13)

// Reads nothing ahead.
#define LT_VIEW_NO_READ_AHEAD (1 << 14)

// Stores reach the file. Without this and the next flag the mapping is for reading.
#define LT_MAP_WRITE (1 << 20)

// Stores are the mapping's own, as with MAP_PRIVATE; pages that were stored to are not in the
// budget.
#define LT_MAP_COPY (1 << 21)

// Reads the beginning before the call returns, as far as there is room.
#define LT_MAP_POPULATE (1 << 22)

// Reads nothing ahead.
#define LT_MAP_NO_READ_AHEAD (1 << 23)

// Something was lost, or will be.
#define LT_LOG_ERROR 1

// Something needs attention.
#define LT_LOG_WARN 2

// Something that happens once.
#define LT_LOG_INFO 3

// Something for those who look for the cause of a problem.
#define LT_LOG_DEBUG 4

// Sequential accesses are read ahead.
#define LT_ADVICE_NORMAL 0

// Nothing is read ahead.
#define LT_ADVICE_RANDOM 1

// It is read in order.
#define LT_ADVICE_SEQUENTIAL 2

// No limit: lt_tenant_set takes it for LT_LIMIT_HIGH, LT_LIMIT_MAX and LT_LIMIT_SWAP.
#define LT_UNLIMITED UINT64_MAX

// Hard protection, in bytes.
#define LT_LIMIT_MIN 1

// Best-effort protection.
#define LT_LIMIT_LOW 2

// Above it a thread evicts before it goes on.
#define LT_LIMIT_HIGH 3

// Usage never exceeds it.
#define LT_LIMIT_MAX 4

// Bytes that may be in swap.
#define LT_LIMIT_SWAP 5

// The version of this header: breaking changes.
#define LT_VERSION_MAJOR 0

// The version of this header: additions.
#define LT_VERSION_MINOR 1

// The version of this header: corrections.
#define LT_VERSION_PATCH 0

// The version of this header as one number: 10203 is 1.2.3.
#define LT_VERSION (((LT_VERSION_MAJOR * 10000) + (LT_VERSION_MINOR * 100)) + LT_VERSION_PATCH)

// A mapping of the program that is kept within a budget.
typedef struct lt_adopted lt_adopted;

// Addresses that lt_map has made.
typedef struct lt_mapping lt_mapping;

// One budget of memory, and what shares it.
typedef struct lt_pager lt_pager;

// Memory whose pages are in swap when they are not in use.
typedef struct lt_region lt_region;

// A budget within the budget of a pager.
typedef struct lt_tenant lt_tenant;

// An open file under a pager. Like a file, it may be opened several times.
typedef struct lt_view lt_view;

// The choices for a mapping, and for one that is adopted. Zero is the default.
typedef struct lt_map_options {
    // sizeof(lt_map_options).
    size_t size;
    // LT_MAP_WRITE and others that begin so. Only LT_MAP_NO_READ_AHEAD for lt_adopt.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
    // "auto" (the default); "userfault": the budget is exact; "pagecache": works everywhere, and
    // the budget may be exceeded for moments. Not for lt_adopt, which is "pagecache".
    const char *mode;
    // The tenant that pays. Null: the root.
    const struct lt_tenant *tenant;
    // Where in the file it begins, in bytes. Not for lt_map_anon.
    uint64_t offset;
    // Its bytes. 0: up to the end of the file. Not for lt_adopt and lt_map_anon.
    uint64_t len;
    // Bytes that are read ahead at a time, at most. 0: 8 MiB.
    uint64_t read_ahead;
} lt_map_options;

// A part of a file or of a mapping, in bytes. A pair of numbers: it has no `size`.
typedef struct lt_range {
    // Where it begins.
    uint64_t offset;
    // How long it is.
    uint64_t len;
} lt_range;

// Gets a message: its level, the text, which is valid during the call, and what was given to
// lt_set_log.
typedef void (*lt_log_fn)(int level, const char *text, void *arg);

// A page that is pinned: its bytes stay where they are, and as they are. Read `data` and `len`;
// the rest is the library's. Before it is used first, set `size` to its sizeof and the rest to
// zero. The structure may be moved and copied: all copies are one pin, which is unpinned once.
typedef struct lt_page {
    // sizeof(lt_page).
    size_t size;
    // The bytes: always a whole page, with zeroes past the end of the file. Null if no page is
    // pinned.
    const void *data;
    // Bytes of a page.
    size_t len;
    // The library's.
    size_t pin;
    // The library's.
    size_t guard[3];
} lt_page;

// The choices for a pager. Set `size` to sizeof(lt_pager_options) and the rest to zero, which
// stands for the defaults; set what should differ.
typedef struct lt_pager_options {
    // sizeof(lt_pager_options).
    size_t size;
    // Bytes of the budget. 0: seven eighths of the limit of this process's memory cgroup.
    uint64_t max;
    // Bytes of a page, a power of two. 0: 4096, which mappings need.
    uint64_t page_size;
    // LT_PAGER_POPULATE and others that begin so.
    uint32_t flags;
    // Reads that lt_view_get_many keeps in flight. 0: 32.
    uint32_t depth;
    // The policy of reclaim: "mglru" (the default), "lru", "tide", or one of a kernel version.
    const char *policy;
    // "auto" (the default), "uring" or "psync".
    const char *io_engine;
    // How long a call waits for room or for pages that are pinned, in milliseconds. 0: 10 s.
    // UINT64_MAX: without limit; so in the next two.
    uint64_t memory_timeout_ms;
    // How long a call waits for pages to be written. 0: 60 s.
    uint64_t io_timeout_ms;
    // How long a call waits for pages to be read. 0: as long as the device takes.
    uint64_t read_timeout_ms;
    // Bytes of the budget that compressed pages of regions may take. 0: none, and no swap.
    uint64_t swap;
    // A directory for a swap file. Null: no file.
    const char *swap_dir;
    // Bytes of the swap file, at most.
    uint64_t swap_file;
    // A file with the list of the pages that were in memory, which are read again when their files
    // are opened; it is saved when the pager ends. Null: the start is cold.
    const char *warm;
} lt_pager_options;

// The choices for a region. Zero is the default.
typedef struct lt_region_options {
    // sizeof(lt_region_options).
    size_t size;
    // The tenant that pays. Null: the root.
    const struct lt_tenant *tenant;
    // Its name in errors and reports. Null: none.
    const char *name;
    // Bytes that it can grow to, if more than 64 GiB.
    uint64_t growth;
} lt_region_options;

// Counters of a pager since it was opened, and sizes now, in bytes.
typedef struct lt_stats {
    // sizeof(lt_stats).
    size_t size;
    // The budget: bytes of page frames.
    uint64_t budget;
    // Bytes of pages that are charged: in use and on their way.
    uint64_t usage;
    // Bytes of frames that are backed by memory.
    uint64_t resident;
    // Bytes of tables, in addition to the budget.
    uint64_t metadata;
    // Bytes of pages of files.
    uint64_t file;
    // Bytes of pages of regions.
    uint64_t anon;
    // Bytes that are dirty or being written.
    uint64_t unwritten;
    // Pages whose last write failed.
    uint64_t failed_pages;
    // Reads of pages found in memory, estimated; pointers are not counted.
    uint64_t hits;
    // Reads of pages that waited for the device.
    uint64_t misses;
    // Transfers from files.
    uint64_t reads;
    // Bytes read from files.
    uint64_t read_bytes;
    // Transfers to files.
    uint64_t writes;
    // Bytes written to files.
    uint64_t written_bytes;
    // Pages that were read ahead.
    uint64_t ahead_pages;
    // Pages that were read ahead and evicted unused.
    uint64_t ahead_wasted;
    // Pages of files that came back after they had been evicted.
    uint64_t refaults;
    // Time that threads slept because a tenant was over a limit, in nanoseconds.
    uint64_t throttled_ns;
    // 1 if the pager met a defect, after which most figures are zero.
    uint64_t poisoned;
} lt_stats;

// The limits of a new tenant, in bytes. Zero is none.
typedef struct lt_tenant_options {
    // sizeof(lt_tenant_options).
    size_t size;
    // Never evicted for others up to this usage.
    uint64_t min;
    // Evicted for others up to this usage only if there is nothing else.
    uint64_t low;
    // Above it a thread evicts pages of the tenant before it goes on.
    uint64_t high;
    // Usage never exceeds it.
    uint64_t max;
} lt_tenant_options;

// Counts of events at the limits of a tenant and below, as in the kernel's memory.events.
typedef struct lt_event_counts {
    // sizeof(lt_event_counts).
    size_t size;
    // Visits of reclaim although usage was below `low`.
    uint64_t low;
    // Reclaims because usage was above `high`.
    uint64_t high;
    // Charges that met `max` and evicted for it.
    uint64_t max;
    // Charges that found no room: LT_NO_ROOM.
    uint64_t oom;
} lt_event_counts;

// The choices for a view. Zero is the default.
typedef struct lt_view_options {
    // sizeof(lt_view_options).
    size_t size;
    // LT_VIEW_WRITE and others that begin so.
    uint32_t flags;
    // Pages come in 2^folio_order at a time.
    uint32_t folio_order;
    // The tenant that pays. Null: the root.
    const struct lt_tenant *tenant;
    // With LT_VIEW_CREATE or LT_VIEW_CREATE_NEW: the file is made at least this long.
    uint64_t create_size;
    // Bytes by which the file may grow while it is open. 0: 1 TiB.
    uint64_t growth;
    // Bytes that are read ahead at a time, at most. 0: 8 MiB.
    uint64_t read_ahead;
    // How long another program's lock is waited for, in milliseconds. 0: 10 s.
    uint64_t lock_timeout_ms;
} lt_view_options;

// Gets a page of lt_view_get_many: `arg`, the position in the list, and the bytes, which are valid
// during the call. 0 goes on; any other number ends the call, which returns it.
typedef int (*lt_page_fn)(void *arg, size_t index, const void *data, size_t len);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Takes over a mapping that the program made of `fd`, with mmap(2), at `addr`: its pages in memory
// are charged and evicted from now on. The mapping stays the program's. It is shared, or private
// and never stored to; `options`, which may be null, say where in the file it begins. The
// descriptor may be closed.
//
// Drops cached pages of the file that are not in use, so that later faults can be observed.
//
// EBADF. EINVAL: a length of 0, an address that is no page's, or a choice that is for lt_map only.
// LT_NOT_POSSIBLE: this machine does not say which pages are in memory. LT_GONE. LT_TOO_NEW.
// Threads: any. Call lt_forget before the addresses are unmapped or get another mapping.
int lt_adopt(const struct lt_pager *pager,
             int fd,
             const void *addr,
             size_t len,
             const struct lt_map_options *options,
             struct lt_adopted **out);

// Ends it: when this returns, nothing of the mapping is evicted any more, and the program may
// unmap it. Null is no error. Threads: any; no other thread may use the handle.
int lt_forget(struct lt_adopted *adopted);

// As lt_forget, for a part of the mapping, in bytes from its beginning; its whole pages and those
// at its ends. The handle stays. EINVAL: no part of it. Threads: any.
int lt_forget_range(const struct lt_adopted *adopted,
                    uint64_t offset,
                    uint64_t len);

// Says which parts of the mapping will be needed soon, in bytes from its beginning: they are read
// in the background, as far as there is room, and no more than an eighth of the budget at a time.
// EINVAL: one is no part of the mapping; those before it are on their way. Threads: any.
int lt_adopted_prefetch(const struct lt_adopted *adopted,
                        const struct lt_range *ranges,
                        size_t n);

// Bytes of the file that are known to be in memory. Threads: any.
int lt_adopted_resident(const struct lt_adopted *adopted, uint64_t *bytes);

// What went wrong in the last call of this thread that failed: what, where, and what to do. It is
// the empty text if no call has failed. The text is valid until the next call of this thread that
// fails. Threads: any.
const char *lt_last_error(void);

// The general meaning of a code, also of one of errno. The text is valid forever. Threads: any,
// but for positive codes the rules of strerror(3) hold.
const char *lt_strerror(int code);

// Sends log messages up to `level` (LT_LOG_ERROR to LT_LOG_DEBUG) to `log`, passing `arg`. NULL
// turns logging off. When this returns, the former function is not running and is not called any
// more.
//
// The function is called by any thread of the program and of the library, several at a time. It
// must not call lowtide. A child of fork has the function of its parent, and must not set another.
//
// EINVAL: no such level. EBUSY: Rust code in this process has a subscriber of its own.
// Threads: any, but not in the function itself.
int lt_set_log(int level,
               lt_log_fn log,
               void *arg);

// Maps a file, whose descriptor may be closed afterwards. `options` may be null: the whole file,
// for reading. A page that cannot be read is SIGBUS at the touch, as with mmap(2); lt_map_error
// says why.
//
// While the mapping lives, no program may change what is mapped for reading, or make the file
// shorter.
//
// The budget holds what the mapping has in memory: lt_pager_stat says how much. In "userfault"
// mode that is memory of the library's own (shared memory in /proc/self/smaps), and what the page
// cache has of the file from before, or through other programs, stays there.
//
// EBADF. EACCES: stores through a descriptor without the right. EINVAL: a range that is not in a
// file. LT_NOT_POSSIBLE: a mode that this machine, or this kind, does not have. LT_LOCKED.
// LT_GONE. LT_TOO_NEW. Threads: any.
int lt_map(const struct lt_pager *pager,
           int fd,
           const struct lt_map_options *options,
           struct lt_mapping **out);

// Makes `len` bytes of zeroes without a file, behind a pointer. They can be stored to, take no
// memory before that, and may be more than the budget: pages that are not in use are in swap,
// which the pager has to be opened with, or they stay. `options` may be null; they have no
// `offset` and `len`, and neither LT_MAP_WRITE nor LT_MAP_COPY.
//
// EINVAL: a length of 0. LT_NOT_POSSIBLE, EPERM: this machine does not let the library serve page
// faults. LT_GONE. LT_TOO_NEW. Threads: any. The other functions are those of lt_map.
int lt_map_anon(const struct lt_pager *pager,
                size_t len,
                const struct lt_map_options *options,
                struct lt_mapping **out);

// Ends a mapping: its addresses are gone, and so are its pages and its charge. Stores reach the
// file, but are durable only after lt_map_flush. Null is no error. Threads: any; no other thread
// may use the handle or the addresses.
int lt_unmap(struct lt_mapping *mapping);

// The first byte; null if the handle is null or of another process. A mapping for reading must not
// be stored to: that is SIGSEGV. Threads: any.
void *lt_map_data(const struct lt_mapping *mapping);

// Bytes of the mapping; 0 if the handle is null or of another process. Threads: any.
size_t lt_map_len(const struct lt_mapping *mapping);

// Returns when the stores to a part of the mapping are durable; one for reading has none.
//
// EINVAL: no part of the mapping. EIO, ENOSPC and others where a write failed. Threads: any.
int lt_map_flush(const struct lt_mapping *mapping,
                 uint64_t offset,
                 uint64_t len);

// Says how a part of the mapping will be used: LT_ADVICE_RANDOM and others. EINVAL. Threads: any.
int lt_map_advise(const struct lt_mapping *mapping,
                  uint64_t offset,
                  uint64_t len,
                  int advice);

// Says which parts of the mapping will be needed soon: they are read in the background, as far as
// there is room. EINVAL: one is no part of the mapping; those before it are on their way.
// Threads: any.
int lt_map_prefetch(const struct lt_mapping *mapping,
                    const struct lt_range *ranges,
                    size_t n);

// Why a page could not be brought in, if that ever happened: for a handler of SIGBUS that has
// passed the news on. LT_OK: it did not. Threads: any, but not in the handler.
int lt_map_error(const struct lt_mapping *mapping);

// Gives a page back that lt_view_pin, lt_view_try_pin or lt_region_pin has pinned; the structure
// can be used again. A structure without a page, or null, is no error.
//
// EINVAL: a copy of the structure was unpinned before; nothing changes. LT_WRONG_THREAD: another
// thread pinned it, which may have ended, and it stays pinned.
// Threads: the one that pinned the page.
int lt_unpin(struct lt_page *page);

// Opens a pager. `options` may be null.
//
// EINVAL: a choice that makes no sense, or no budget where no cgroup has a limit. ENOMEM: more
// than the limit of the memory cgroup. LT_TOO_NEW. Else what the kernel refuses.
// Threads: any. All handles may be shared by threads, unless their functions say otherwise.
int lt_pager_open(const struct lt_pager_options *options,
                  struct lt_pager **out);

// Writes and syncs everything, and closes the handle, also where it fails. Views and others that
// are still open keep working; the memory is given back when they are closed, too. Null is no
// error.
//
// What a write fails with, for the first file that could not be written: it is lost when its last
// view is closed. LT_FORKED: the handle is as it was.
// Threads: any; no other thread may use the handle.
int lt_pager_close(struct lt_pager *pager);

// Saves the list of the pages that are in memory in a file, as a whole or not at all.
//
// The error of the kernel, if it refuses. Threads: any.
int lt_pager_save_warm(const struct lt_pager *pager, const char *file);

// Waits until the pages are read that were in memory of all files that were opened so far, as far
// as there is room. ETIMEDOUT: they are not after `timeout_ms` milliseconds. Threads: any.
int lt_pager_wait_warm(const struct lt_pager *pager,
                       uint64_t timeout_ms);

// Bytes of a page; 0 if the handle is null or of another process. Threads: any.
size_t lt_pager_page_size(const struct lt_pager *pager);

// Makes a region of `bytes` zeroes, which take no memory before they are stored to. Pages leave
// memory only if the pager was opened with swap. `options` may be null.
//
// EINVAL: a tenant of another pager. LT_NO_ROOM. LT_GONE. EFBIG. LT_TOO_NEW. Threads: any.
int lt_region_open(const struct lt_pager *pager,
                   uint64_t bytes,
                   const struct lt_region_options *options,
                   struct lt_region **out);

// Gives everything back. Unpin its pages before. Null is no error. Threads: any; no other thread
// may use the handle.
int lt_region_close(struct lt_region *region);

// Bytes of the region; 0 if the handle is null or of another process. Threads: any.
uint64_t lt_region_len(const struct lt_region *region);

// Copies bytes from the region. LT_OUT_OF_RANGE. LT_NO_ROOM. EIO: a page cannot be brought back
// from swap. Threads: any.
int lt_region_read_at(const struct lt_region *region,
                      uint64_t offset,
                      void *buf,
                      size_t len);

// Stores bytes to the region. LT_OUT_OF_RANGE. LT_HELD_HERE and LT_HELD_ELSEWHERE: the page is
// pinned. LT_NO_ROOM. Threads: any.
int lt_region_write_at(const struct lt_region *region,
                       uint64_t offset,
                       const void *buf,
                       size_t len);

// Pins a page for reading, as lt_view_pin does. Threads: any; the same one unpins it.
int lt_region_pin(const struct lt_region *region, uint64_t page, struct lt_page *out);

// Makes bytes zeroes; whole pages among them take neither memory nor swap any more.
// LT_OUT_OF_RANGE. LT_HELD_HERE and LT_HELD_ELSEWHERE. Threads: any.
int lt_region_clear(const struct lt_region *region, uint64_t offset, uint64_t len);

// Makes the region longer by `bytes` zeroes. EFBIG or ENOMEM: longer than it can grow.
// Threads: any.
int lt_region_grow(const struct lt_region *region, uint64_t bytes);

// One snapshot of the counters; takes about a millisecond. Set `size` of the structure before.
// Threads: any.
int lt_pager_stat(const struct lt_pager *pager,
                  struct lt_stats *stats);

// The same as the text of a memory.stat, with hits and misses. Writes what fits into `len` bytes,
// the last of which is zero, and to `needed`, if that is not null, the bytes that all of it takes.
//
// ERANGE: it did not fit. Threads: any.
int lt_pager_stat_text(const struct lt_pager *pager,
                       char *buf,
                       size_t len,
                       size_t *needed);

// Makes a tenant below `parent`, or below the root if that is null. `options` may be null.
//
// EINVAL: a name with a slash, an empty one, too many tenants, or a parent of another pager.
// LT_EXISTS. LT_GONE. LT_TOO_NEW.
// Threads: any.
int lt_tenant_create(const struct lt_pager *pager,
                     const struct lt_tenant *parent,
                     const char *label,
                     const struct lt_tenant_options *options,
                     struct lt_tenant **out);

// Finds a tenant by its path, as "search/hot"; the empty path is the root.
//
// ENOENT: there is none. Threads: any.
int lt_tenant_find(const struct lt_pager *pager,
                   const char *path,
                   struct lt_tenant **out);

// Changes a limit (LT_LIMIT_MIN and others), in bytes. A lower `max` or `high` evicts before this
// returns. Of the root only `max` can be set.
//
// EINVAL: no such limit, or one that the root does not have. EBUSY: pages above the new limit
// could not be evicted yet; the limit is set. LT_GONE. Threads: any.
int lt_tenant_set(const struct lt_tenant *tenant,
                  int limit,
                  uint64_t bytes);

// Evicts up to `bytes` of the tenant now, and says in `evicted`, if that is not null, how many
// were. LT_GONE. Threads: any.
int lt_tenant_reclaim(const struct lt_tenant *tenant,
                      uint64_t bytes,
                      uint64_t *evicted);

// Bytes that are charged to the tenant and to those below it now. LT_GONE. Threads: any.
int lt_tenant_usage(const struct lt_tenant *tenant, uint64_t *bytes);

// Counts the events at the limits of the tenant and below. Set `size` of the structure before.
// LT_GONE. Threads: any.
int lt_tenant_events(const struct lt_tenant *tenant,
                     struct lt_event_counts *counts);

// Removes the tenant; its parent gets its pages. Handles of it stay valid, and get
// LT_GONE.
//
// EINVAL: the root. ENOTEMPTY: tenants below. EBUSY: try again. LT_GONE. Threads: any.
int lt_tenant_remove(const struct lt_tenant *tenant);

// Closes the handle; the tenant stays. Null is no error. Threads: any; no other thread may use the
// handle.
int lt_tenant_close(struct lt_tenant *tenant);

// The version of the library that the program runs with, as LT_VERSION is that of the header it
// was compiled with. Threads: any.
int lt_version(void);

// Opens a file. `options` may be null: for reading.
//
// ENOENT, EACCES and others of open(2). EINVAL: not a file with pages, or an impossible folio.
// LT_LOCKED. LT_GONE: the tenant. LT_TOO_NEW. Threads: any.
int lt_view_open(const struct lt_pager *pager,
                 const char *name,
                 const struct lt_view_options *options,
                 struct lt_view **out);

// Opens the file of a descriptor, which stays the program's and may be closed. EBADF; else as
// lt_view_open. Threads: any.
int lt_view_open_fd(const struct lt_pager *pager,
                    int fd,
                    const struct lt_view_options *options,
                    struct lt_view **out);

// Makes everything durable, and closes the handle, also where that fails. Unpin its pages before.
// Null is no error.
//
// LT_NESTED: in a function that lt_view_get_many of this view calls; the handle is as it was. Else
// as lt_view_flush; writes that failed are tried again until the pager is closed.
// Threads: any; no other thread may use the handle.
int lt_view_close(struct lt_view *view);

// Bytes of the file when it was last looked at; 0 if the handle is null or of another process.
// Threads: any.
uint64_t lt_view_len(const struct lt_view *view);

// Copies `len` bytes at `offset` to a buffer. A large range is read in large transfers, several at
// a time.
//
// LT_OUT_OF_RANGE: the file ends before the range does; a part may be copied. LT_NO_ROOM.
// LT_NESTED. LT_TIMEOUT. Else what the device says: EIO. Threads: any.
int lt_view_read_at(const struct lt_view *view,
                    uint64_t offset,
                    void *buf,
                    size_t len);

// Stores `len` bytes at `offset`; past the end the file becomes longer. They are durable after
// lt_view_flush.
//
// LT_READ_ONLY. LT_HELD_HERE and LT_HELD_ELSEWHERE: the page is pinned. LT_NO_ROOM. LT_NESTED.
// ENOSPC and others where the file cannot grow. Threads: any.
int lt_view_write_at(const struct lt_view *view,
                     uint64_t offset,
                     const void *buf,
                     size_t len);

// Pins a page, by its number: its bytes stay where they are, and as they are, until lt_unpin. A
// store to it waits. So unpin it soon, and do not wait for other threads before that.
//
// EINVAL: the structure has a page already. LT_OUT_OF_RANGE. LT_NO_ROOM. LT_NESTED. LT_TIMEOUT.
// Else what the device says. Threads: any; the same one unpins it.
int lt_view_pin(const struct lt_view *view,
                uint64_t page,
                struct lt_page *out);

// As lt_view_pin, without waiting for a device: LT_NOT_RESIDENT if the page is not in memory.
// It reads nothing; lt_view_prefetch does that in the background. lt_last_error has no text
// for it. Threads: any; the same one unpins it.
int lt_view_try_pin(const struct lt_view *view,
                    uint64_t page,
                    struct lt_page *out);

// Shows `n` pages to a function. Those in memory come first; the others are read with many reads
// in flight, and come as they arrive. A sorted list is the cheapest.
//
// In the function a call on this pager that would have to wait fails with LT_NESTED, and so does
// lt_view_close of this view. It must return, and not leave by longjmp or an exception. A number
// other than 0 ends the call: no further page is shown, and the number is returned, without a text
// in lt_last_error.
//
// LT_OUT_OF_RANGE and others of lt_view_pin, for the first page that fails; others may have been
// shown. Threads: any; the function is called by this one.
int lt_view_get_many(const struct lt_view *view,
                     const uint64_t *pages,
                     size_t n,
                     lt_page_fn callback,
                     void *arg);

// Says which parts of the file will be needed soon: they are read in the background, as far as
// there is room. Does not wait. Parts past the end are ignored. Threads: any.
int lt_view_prefetch(const struct lt_view *view,
                     const struct lt_range *ranges,
                     size_t n);

// Returns when all bytes that were stored before, through any handle of the file, are durable.
//
// EIO, ENOSPC and others where a write failed, also earlier: each handle gets each incident once.
// Pages whose write failed stay in memory and are tried again. LT_TIMEOUT. Threads: any.
int lt_view_flush(const struct lt_view *view);

// As lt_view_flush, for a part of the file. Threads: any.
int lt_view_flush_range(const struct lt_view *view, uint64_t offset, uint64_t len);

// Makes the file longer, with zeroes, or shorter.
//
// LT_READ_ONLY. LT_HELD_HERE and LT_HELD_ELSEWHERE: a page that goes is pinned. LT_TIMEOUT.
// LT_NESTED. Else what the file system says; the file is as it was. Threads: any.
int lt_view_set_len(const struct lt_view *view,
                    uint64_t len);

// Makes a part of the file zeroes, and gives its space on disk back where the file system can.
// LT_READ_ONLY and others of lt_view_set_len. Threads: any.
int lt_view_punch(const struct lt_view *view,
                  uint64_t offset,
                  uint64_t len);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LOWTIDE_H */
