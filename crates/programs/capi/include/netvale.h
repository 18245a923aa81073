/*
 * netvale's additions to netmap's interface, for programs with their own event loop, and for other languages.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * This library interposes poll, select and epoll on a netmap descriptor, and requests wake-ups from the daemon while they wait. A loop whose
 * calls it cannot interpose (asyncio, libuv, GLib, io_uring) does the same in three steps:
 *
 *     n = netvale_wake_fds(fd, POLLIN, fds, 8);          once: watch these for reading, and fd itself for hang-up
 *     if (netvale_arm(fd, POLLIN) != 0) ...              there are frames: take them, and arm again
 *     else ...                                           wait in the loop until one is readable: take frames, and arm again
 *
 * On failure, functions return -1 and set errno: EBADF if fd is not a netmap descriptor, ENXIO before a port is registered.
 */
#ifndef NETVALE_H_
#define NETVALE_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Writes up to `count` descriptors, and returns how many there are. The library owns them; they stay open as long as `fd`. */
int netvale_wake_fds(int fd, int events, int *fds, int count);

/*
 * Requests a wake-up when there are frames (POLLIN) or room (POLLOUT). Syncs, and returns those of `events` that are ready already, for
 * which there may be no wake-up. Discards earlier wake-ups.
 */
int netvale_arm(int fd, int events);

/* Withdraws the request. Must be called before poll, select or epoll wait for the descriptor again. */
int netvale_disarm(int fd, int events);

/*
 * Returns the text of the last error of this library in this thread: the daemon's reason and advice. Valid until the next error; empty if
 * there was none. As with errno, only meaningful after a call has failed.
 */
const char *netvale_error(void);
void netvale_error_clear(void);

#ifdef __cplusplus
}
#endif

#endif /* NETVALE_H_ */
