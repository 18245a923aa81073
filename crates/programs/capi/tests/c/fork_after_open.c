/* The child of a fork receives on its parent's descriptor; the parent then continues to use it. Usage: fork_after_open FROM TO */
#include "common.h"
#include <sys/wait.h>

#define COUNT 1000u

static void
receive(struct port *p)
{
	uint32_t got = 0;

	while (got < COUNT) {
		CHECK(poll_for(p->fd, POLLIN, 5000) & POLLIN, "%u frames came", got);
		take_frames(NETMAP_RXRING(p->nifp, 0), &got);
	}
	CHECK(ioctl(p->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

static void
send_all(struct port *p)
{
	uint32_t sent = 0;

	while (sent < COUNT) {
		put_frames(NETMAP_TXRING(p->nifp, 0), &sent, sent + 50);
		CHECK(poll_for(p->fd, POLLOUT, 5000) & POLLOUT, "room");
		usleep(500);
	}
	CHECK(ioctl(p->fd, NIOCTXSYNC, NULL) == 0, "txsync");
}

int
main(int argc, char **argv)
{
	struct port from, to;
	int status = 0;
	pid_t child;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0) {
		close(from.fd);
		receive(&to);
		exit(0);
	}
	send_all(&from);
	CHECK(waitpid(child, &status, 0) == child && status == 0, "the child's end: %d", status);
	/* The port has not ended with the child. */
	child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0) {
		send_all(&from);
		exit(0);
	}
	receive(&to);
	CHECK(waitpid(child, &status, 0) == child && status == 0, "the second child's end: %d", status);
	return 0;
}
