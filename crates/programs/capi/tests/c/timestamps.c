/* Each sync of an rx ring stores its time, with NR_TIMESTAMP and without; so does poll. Usage: timestamps FROM TO */
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
	CHECK(rx->ts.tv_sec != 0, "without being asked");
	for (int asked = 0; asked < 2; asked++) {
		rx->flags = asked ? NR_TIMESTAMP : 0;
		for (int polls = 0; polls < 2; polls++) {
			gettimeofday(&before, NULL);
			if (polls)
				poll_for(to.fd, POLLIN, 0);
			else
				CHECK(ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
			gettimeofday(&after, NULL);
			CHECK(!timercmp(&rx->ts, &before, <) && !timercmp(&rx->ts, &after, >), "a time between");
		}
	}
	return 0;
}
