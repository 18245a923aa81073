/* A sender and a receiver, a thread each, both in poll(2). Usage: poll_loop FROM TO */
#include "common.h"
#include <pthread.h>

#define COUNT 20000u

static volatile uint32_t got;

static void *
receive(void *arg)
{
	struct port *p = arg;
	struct netmap_ring *r = NETMAP_RXRING(p->nifp, 0);
	uint32_t n = 0;

	while (n < COUNT) {
		CHECK(poll_for(p->fd, POLLIN, 10000) & POLLIN, "%u frames came", n);
		take_frames(r, &n);
		got = n;
	}
	return NULL;
}

int
main(int argc, char **argv)
{
	uint32_t sent = 0;
	struct port from, to;
	pthread_t t;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	CHECK(pthread_create(&t, NULL, receive, &to) == 0, "thread");
	while (sent < COUNT) {
		struct netmap_ring *r = NETMAP_TXRING(from.nifp, 0);
		uint32_t limit = got + window_of(r);

		CHECK(poll_for(from.fd, POLLOUT, 10000) & POLLOUT, "no room after %u", sent);
		put_frames(r, &sent, limit < COUNT ? limit : COUNT);
	}
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "last sync");
	pthread_join(t, NULL);
	close_port(&from);
	close_port(&to);
	return 0;
}
