/* One thread in select(2) on both ports and an ordinary pipe. Usage: select_loop FROM TO */
#include "common.h"
#include <sys/select.h>

#define COUNT 5000u

int
main(int argc, char **argv)
{
	uint32_t sent = 0, got = 0;
	struct port from, to;
	int other[2], seen = 0;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	CHECK(pipe(other) == 0, "pipe");
	while (got < COUNT) {
		struct timeval limit = {5, 0};
		fd_set r, w;
		int n, most = from.fd > to.fd ? from.fd : to.fd;

		most = most > other[0] ? most : other[0];
		FD_ZERO(&r);
		FD_ZERO(&w);
		FD_SET(to.fd, &r);
		FD_SET(other[0], &r);
		if (sent < got + 100 && sent < COUNT)
			FD_SET(from.fd, &w);
		n = select(most + 1, &r, &w, NULL, &limit);
		CHECK(n > 0, "select gave %d after %u frames", n, got);
		CHECK(limit.tv_sec < 5 || limit.tv_usec == 0, "what is left of the time");
		if (FD_ISSET(from.fd, &w)) {
			put_frames(NETMAP_TXRING(from.nifp, 0), &sent, got + 100 < COUNT ? got + 100 : COUNT);
			CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
		}
		if (FD_ISSET(to.fd, &r))
			take_frames(NETMAP_RXRING(to.nifp, 0), &got);
		if (FD_ISSET(other[0], &r)) {
			char c;

			CHECK(read(other[0], &c, 1) == 1, "the pipe was said to be readable");
			seen++;
		}
		if (got / 1000 > (uint32_t)seen)
			CHECK(write(other[1], "x", 1) == 1, "pipe");
	}
	CHECK(seen > 0, "the pipe was never seen");
	{
		struct timeval soon = {0, 20000};
		fd_set r;

		FD_ZERO(&r);
		FD_SET(to.fd, &r);
		CHECK(select(to.fd + 1, &r, NULL, NULL, &soon) == 0, "nothing more comes");
		CHECK(!FD_ISSET(to.fd, &r), "and the set is empty");
	}
	return 0;
}
