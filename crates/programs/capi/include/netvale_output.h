/*
 * For libraries whose descriptors for sending are not sockets, such as netvale's libpcap: poll, select and epoll report room to send on such a
 * descriptor, if netvale's netmap library is linked or preloaded. Look the function up with dlsym(RTLD_DEFAULT, ...).
 */
#ifndef NETVALE_OUTPUT_H
#define NETVALE_OUTPUT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Several threads may call the functions at the same time, until `release`. */
struct netvale_output {
	void *of;                        /* first argument of the functions */
	int (*room)(void *of);           /* checks now; 1: room, or an error that sending would report */
	uint64_t (*news)(void *of);      /* changes when there is room again, for edge-triggered epoll */
	/*
	 * Requests a wake-up, before a last check and a sleep. Writes at most 2 descriptors that become readable on the wake-up, and returns
	 * their number; they stay open until `release`.
	 */
	int (*sleep)(void *of, int fds[2]);
	void (*awake)(void *of);         /* withdraws the request; called once for each sleep */
	void (*release)(void *of);       /* no further call follows */
};

/*
 * Makes `output`, which is copied, report POLLOUT on `fd`; the kernel reports all other events. NULL ends this, and must be passed before the
 * descriptor is closed. Returns 0, or -1 and errno.
 */
int netvale_watch_output(int fd, const struct netvale_output *output);

#ifdef __cplusplus
}
#endif

#endif
