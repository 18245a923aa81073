/*
 * For libraries that give programs a descriptor to send on which is no socket (netvale's libpcap is one): poll, select and epoll show room to
 * send on it, as far as netvale's netmap library is linked or preloaded. Look the function up with dlsym(RTLD_DEFAULT, ...).
 */
#ifndef NETVALE_OUTPUT_H
#define NETVALE_OUTPUT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions may be called by several threads together, until `release`. */
struct netvale_output {
	void *of;                        /* what they are called with */
	int (*room)(void *of);           /* looks afresh: 1: room, or an error that sending would tell */
	uint64_t (*news)(void *of);      /* changes when there is room again: for edge-triggered epoll */
	/*
	 * Asks to be woken, before a last look and a sleep. Returns how many descriptors it wrote (2 at most) that become readable
	 * then; they stay open until `release`.
	 */
	int (*sleep)(void *of, int fds[2]);
	void (*awake)(void *of);         /* takes that back; once for each sleep */
	void (*release)(void *of);       /* nobody will call again */
};

/*
 * POLLOUT on `fd` is `output`'s from now on, which is copied; all else on it stays the kernel's. NULL: no longer, which must be said before
 * the descriptor is closed. Returns 0, or -1 and errno.
 */
int netvale_watch_output(int fd, const struct netvale_output *output);

#ifdef __cplusplus
}
#endif

#endif
