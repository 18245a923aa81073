/* A descriptor is closed while another thread polls it: the poll ends. So it does when only its daemon's end is gone.
 * Usage: close_during_poll PORT */
#include "common.h"
#include <pthread.h>

static int fd;
static short seen;

static void *
poller(void *arg)
{
	(void)arg;
	seen = poll_for(fd, POLLIN, 10000);
	return NULL;
}

int
main(int argc, char **argv)
{
	struct port p;
	pthread_t t;
	int other;

	CHECK(argc == 2, "a port");
	alarm(30);
	p = open_port(argv[1]);
	fd = p.fd;
	other = dup(fd);
	CHECK(pthread_create(&t, NULL, poller, NULL) == 0, "thread");
	usleep(50000);
	close(other);
	usleep(50000);
	CHECK(seen == 0, "the other number was closed, not this one");
	close(fd);
	CHECK(pthread_join(t, NULL) == 0, "join");
	CHECK(seen != 0, "the poll ended by itself");
	CHECK(ioctl(fd, NIOCRXSYNC, NULL) < 0 && errno == EBADF, "closed");
	return 0;
}
