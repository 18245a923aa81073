/* NR_TIMESTAMP: each sync of an rx ring says when it was. Usage: timestamps FROM TO */
#include "common.h"

int
main(int argc, char **argv)
{
	struct netmap_ring *rx;
	struct timeval before, after;
	struct port from, to;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	rx = NETMAP_RXRING(to.nifp, 0);
	exchange(&from, &to, 10);
	CHECK(rx->ts.tv_sec == 0, "not asked for");
	rx->flags |= NR_TIMESTAMP;
	gettimeofday(&before, NULL);
	CHECK(ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	gettimeofday(&after, NULL);
	CHECK(!timercmp(&rx->ts, &before, <) && !timercmp(&rx->ts, &after, >), "a time between");
	return 0;
}
