/*
 * Frames of a sync, up to a full ring, arrive whether the sender then sleeps without another call, or ends.
 * Usage: arrives FROM TO
 */
#include "common.h"
#include <signal.h>
#include <sys/wait.h>

/* Sends as many frames as a ring takes, with one sync, and then does nothing. */
static void
sender(const char *name, int tell, int ends)
{
	struct port p = open_port(name);
	struct netmap_ring *tx = NETMAP_TXRING(p.nifp, 0);
	uint32_t sent = 0;

	put_frames(tx, &sent, UINT32_MAX);
	CHECK(sent == tx->num_slots - 1, "%u of %u", sent, tx->num_slots);
	CHECK(ioctl(p.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	CHECK(write(tell, &sent, sizeof(sent)) == sizeof(sent), "tell");
	if (ends)
		_exit(0);
	for (;;)
		pause();
}

static void
one(const char *from, struct port *to, int ends)
{
	struct netmap_ring *rx = NETMAP_RXRING(to->nifp, 0);
	uint32_t sent = 0, got = 0;
	int tell[2], status = 0;
	pid_t child;

	CHECK(pipe(tell) == 0, "pipe");
	child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0)
		sender(from, tell[1], ends);
	close(tell[1]);
	CHECK(read(tell[0], &sent, sizeof(sent)) == sizeof(sent), "the sender failed");
	close(tell[0]);
	if (ends)
		CHECK(waitpid(child, &status, 0) == child && status == 0, "the sender: %d", status);
	while (got < sent) {
		CHECK(poll_for(to->fd, POLLIN, 5000) & POLLIN, "%u of %u arrived", got, sent);
		take_frames(rx, &got);
	}
	CHECK(ioctl(to->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	if (!ends)
		CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child, "the sender");
}

int
main(int argc, char **argv)
{
	struct port to;
	int i;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	for (i = 0; i < 6; i++)
		one(argv[1], &to, i & 1);
	close_port(&to);
	return 0;
}
