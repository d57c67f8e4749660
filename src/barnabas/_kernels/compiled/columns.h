/* What `columns.pyx` needs of the compiler and the system: prefetching, and reading a file at a position. */
#ifndef BARNABAS_COLUMNS_H
#define BARNABAS_COLUMNS_H

#if defined(__GNUC__) || defined(__clang__)
#define fetch_early(address) __builtin_prefetch(address)
#else
#define fetch_early(address) ((void) (address))
#endif

#include <errno.h>
#if defined(_WIN32)
static int read_file(int fd, void *into, size_t size, long long position) {
    (void) fd; (void) into; (void) size; (void) position;
    return 0;
}
#else
#include <unistd.h>
static int read_file(int fd, void *into, size_t size, long long position) {
    char *at = (char *) into;
    while (size) {
        ssize_t count = pread(fd, at, size, (off_t) position);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return 0;
        at += count;
        position += count;
        size -= (size_t) count;
    }
    return 1;
}
#endif

#endif
