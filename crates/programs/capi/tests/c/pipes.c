/* Both ends of a pipe, in two processes; buffers cross, bytes are not copied. Usage: pipes NAME */
#include "common.h"
#include <libnetmap.h>
#include <sys/wait.h>

#define COUNT 5000u

static void
slave(const char *name)
{
	struct nmport_d *d;
	uint32_t got = 0, back = 0;
	char end[128];

	snprintf(end, sizeof(end), "%s}1", name);
	d = nmport_open(end);
	CHECK(d != NULL, "%s", end);
	while (got < COUNT) {
		CHECK(poll_for(d->fd, POLLIN, 5000) & POLLIN, "%u frames came", got);
		take_frames(NETMAP_RXRING(d->nifp, 0), &got);
	}
	while (back < 100) {
		put_frames(NETMAP_TXRING(d->nifp, 0), &back, 100);
		CHECK(poll_for(d->fd, POLLOUT, 5000) & POLLOUT, "room");
	}
	CHECK(ioctl(d->fd, NIOCTXSYNC, NULL) == 0, "txsync");
	nmport_close(d);
	exit(0);
}

int
main(int argc, char **argv)
{
	struct nmport_d *d;
	uint32_t sent = 0, back = 0;
	int status = 0;
	char end[128];
	pid_t child;

	CHECK(argc == 2, "a name");
	alarm(30);
	snprintf(end, sizeof(end), "%s{1", argv[1]);
	d = nmport_open(end);
	CHECK(d != NULL, "%s", end);
	child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0)
		slave(argv[1]);
	while (sent < COUNT) {
		/* A full pipe holds the sender; nothing is lost. */
		CHECK(poll_for(d->fd, POLLOUT, 5000) & POLLOUT, "room after %u", sent);
		put_frames(NETMAP_TXRING(d->nifp, 0), &sent, COUNT);
	}
	/* A poll for input sends all filled slots. Unread or unreturned slots do not make it wait. */
	while (back < 100) {
		CHECK(poll_for(d->fd, POLLIN, 5000) & POLLIN, "%u frames came back", back);
		take_frames(NETMAP_RXRING(d->nifp, 0), &back);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "the other end: %d", status);
	nmport_close(d);
	return 0;
}
