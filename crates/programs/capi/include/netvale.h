/*
 * What netvale adds to netmap's interface, for programs that bring an event loop of their own, and for other languages.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * poll, select and epoll on a netmap descriptor go through this library, which asks the daemon to wake the program for as long as they
 * last. A loop whose calls the library does not see (asyncio, libuv, GLib, io_uring) does the same in three steps:
 *
 *     n = netvale_wake_fds(fd, POLLIN, fds, 8);          once: the loop watches these for reading, and fd itself for hang-up
 *     if (netvale_arm(fd, POLLIN) != 0) ...              frames are there: take them, and arm again
 *     else ...                                           to the loop; when one is readable: take frames, and arm again
 *
 * Functions return -1 and set errno when something is wrong: EBADF for what is no netmap descriptor, ENXIO before it is registered.
 */
#ifndef NETVALE_H_
#define NETVALE_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Writes up to `count` descriptors and returns how many there are. They are the library's, and stay open as long as `fd`. */
int netvale_wake_fds(int fd, int events, int *fds, int count);

/*
 * From now on the daemon wakes when there are frames (POLLIN) or room (POLLOUT). Syncs, and returns those of `events` that are ready already:
 * for them there may be no wake-up. Wake-ups from before are forgotten.
 */
int netvale_arm(int fd, int events);

/* No longer: to be said before the descriptor is waited for by poll, select or epoll again. */
int netvale_disarm(int fd, int events);

/*
 * The last error of a call of this library's in this thread, in words: what the daemon said when it refused, and what to do about it. Valid
 * until the next one; empty if there was none. As with errno, only meaningful after a call has failed.
 */
const char *netvale_error(void);
void netvale_error_clear(void);

#ifdef __cplusplus
}
#endif

#endif /* NETVALE_H_ */
