/* System calls of `sockets.pyx`, with stand-ins where the system does not have them. */
#ifndef BARNABAS_SOCKETS_H
#define BARNABAS_SOCKETS_H

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#if defined(__linux__)
#include <sys/sendfile.h>
#define BARNABAS_SENDS_FILES 1
static ssize_t barnabas_sendfile(int out, int source, long long position, size_t count) {
    off_t offset = (off_t)position;
    return sendfile(out, source, &offset, count);
}
#else
#define BARNABAS_SENDS_FILES 0
static ssize_t barnabas_sendfile(int out, int source, long long position, size_t count) {
    (void)out; (void)source; (void)position; (void)count;
    errno = ENOSYS;
    return -1;
}
#endif
#if defined(MADV_HUGEPAGE)
#define BARNABAS_LARGE_PAGE ((uintptr_t)1 << 21)
static void barnabas_large_pages(char *start, size_t size) {
    uintptr_t first = ((uintptr_t)start + BARNABAS_LARGE_PAGE - 1) & ~(BARNABAS_LARGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)start + size) & ~(BARNABAS_LARGE_PAGE - 1);
    if (end > first)  /* what comes of it is of no interest: without, it is slower */
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
}
#else
static void barnabas_large_pages(char *start, size_t size) {
    (void)start; (void)size;
}
#endif
#if defined(MSG_MORE)
#define BARNABAS_MORE MSG_MORE
#else
#define BARNABAS_MORE 0
#endif
#if defined(MSG_CMSG_CLOEXEC)
#define BARNABAS_CLOEXEC MSG_CMSG_CLOEXEC
#else
#define BARNABAS_CLOEXEC 0
#endif
#define BARNABAS_MOST_FILES 64
/* recv() for a socket that files may come through: their descriptors are put into `files`, which has room. */
static ssize_t barnabas_recv_files(int fd, void *buffer, size_t size, int *files, int *count) {
    union { char room[CMSG_SPACE(BARNABAS_MOST_FILES * sizeof(int))]; struct cmsghdr aligned; } control;
    struct iovec vector = { buffer, size };
    struct msghdr message = { 0 };
    struct cmsghdr *item;
    ssize_t got;
    *count = 0;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.room;
    message.msg_controllen = sizeof(control.room);
    got = recvmsg(fd, &message, MSG_DONTWAIT | BARNABAS_CLOEXEC);
    if (got < 0)
        return got;
    for (item = CMSG_FIRSTHDR(&message); item != NULL; item = CMSG_NXTHDR(&message, item)) {
        if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS) {
            size_t here = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            if (here > (size_t)(BARNABAS_MOST_FILES - *count))
                here = BARNABAS_MOST_FILES - *count;
            memcpy(files + *count, CMSG_DATA(item), here * sizeof(int));
            *count += (int)here;
        }
    }
    return got;
}
/* send() for a few bytes, with up to that many files. */
static ssize_t barnabas_send_files(int fd, const void *buffer, size_t size, const int *files, int count) {
    union { char room[CMSG_SPACE(BARNABAS_MOST_FILES * sizeof(int))]; struct cmsghdr aligned; } control;
    struct iovec vector = { (void *)buffer, size };
    struct msghdr message = { 0 };
    struct cmsghdr *item;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    if (count > 0) {
        memset(&control, 0, sizeof(control));
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        item = CMSG_FIRSTHDR(&message);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(item), files, count * sizeof(int));
    }
    return sendmsg(fd, &message, MSG_DONTWAIT);
}

#if defined(__linux__)
#include <sys/epoll.h>
#else
struct epoll_event { uint32_t events; union { int fd; } data; };
static int epoll_wait(int fd, struct epoll_event *events, int size, int timeout_ms) {
    (void) fd; (void) events; (void) size; (void) timeout_ms;
    errno = ENOSYS;
    return -1;
}
#endif

#endif
