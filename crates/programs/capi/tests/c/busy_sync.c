/* NIOCTXSYNC and NIOCRXSYNC in a loop, without poll. Usage: busy_sync FROM TO */
#include "common.h"

#define COUNT 20000u

int
main(int argc, char **argv)
{
	uint32_t sent = 0, got = 0;
	struct port from, to;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	while (got < COUNT) {
		struct netmap_ring *r = NETMAP_TXRING(from.nifp, 0);
		uint32_t limit = got + window_of(r);

		put_frames(r, &sent, limit < COUNT ? limit : COUNT);
		CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
		CHECK(ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		take_frames(NETMAP_RXRING(to.nifp, 0), &got);
	}
	return 0;
}
