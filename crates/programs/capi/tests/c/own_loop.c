/*
 * An event loop of the program, which the library does not interpose: armed rings, and the descriptors of the daemon's wake-ups. Also the
 * text of an error. Usage: own_loop FROM TO
 */
#include "common.h"
#include <netvale.h>

static void
send_some(struct port *p, uint32_t *sent, uint32_t count)
{
	put_frames(NETMAP_TXRING(p->nifp, 0), sent, *sent + count);
	CHECK(ioctl(p->fd, NIOCTXSYNC, NULL) == 0, "txsync");
}

/* Whether one of the descriptors is readable within the time. */
static int
woken(const int *fds, int count, int ms)
{
	struct pollfd all[8];
	int k;

	for (k = 0; k < count; k++)
		all[k] = (struct pollfd){.fd = fds[k], .events = POLLIN};
	return poll(all, (nfds_t)count, ms) > 0;
}

static void
errors(const char *taken)
{
	struct nmreq_register reg = { .nr_mode = NR_REG_ALL_NIC, .nr_flags = NR_EXCLUSIVE };
	int fd = device();

	CHECK(netvale_arm(fd, POLLIN) < 0 && errno == ENXIO, "not registered");
	CHECK(netvale_wake_fds(0, POLLIN, NULL, 0) < 0 && errno == EBADF, "no netmap descriptor");
	netvale_error_clear();
	CHECK(netvale_error()[0] == 0, "nothing went wrong yet");
	CHECK(request(fd, taken, NETMAP_REQ_REGISTER, &reg) < 0 && errno == EBUSY, "somebody has it");
	CHECK(strlen(netvale_error()) > 10, "said: %s", netvale_error());
	close(fd);
}

int
main(int argc, char **argv)
{
	uint32_t sent = 0, got = 0;
	struct port from, to;
	int fds[8], count, k;

	CHECK(argc == 3, "two ports");
	alarm(60);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	errors(argv[2]);
	count = netvale_wake_fds(to.fd, POLLIN, fds, 8);
	CHECK(count == 1, "one rx ring, %d descriptors", count);
	CHECK(netvale_wake_fds(to.fd, POLLIN | POLLOUT, fds, 1) == 2, "both rings are counted, one is written");
	CHECK(netvale_arm(to.fd, POLLOUT) == POLLOUT, "there is room");
	CHECK(netvale_disarm(to.fd, POLLOUT) == 0, "disarm");
	netvale_wake_fds(to.fd, POLLIN, fds, 8);

	/* Each frame that arrives after the ring was found empty wakes the program; earlier wake-ups are discarded. */
	for (k = 0; k < 200; k++) {
		CHECK(netvale_arm(to.fd, POLLIN) == 0, "nothing is there");
		CHECK(!woken(fds, count, 0), "an old wake-up");
		send_some(&from, &sent, 3);
		CHECK(woken(fds, count, 30000), "no wake-up");
		while (got < sent) {
			if (netvale_arm(to.fd, POLLIN) == 0)
				CHECK(woken(fds, count, 30000), "no wake-up");
			take_frames(NETMAP_RXRING(to.nifp, 0), &got);
		}
	}

	/* Frames that are there when the ring is armed are reported immediately. */
	send_some(&from, &sent, 3);
	CHECK(netvale_disarm(to.fd, POLLIN) == 0, "disarm");
	while (got < sent) {
		struct pollfd p = {.fd = to.fd, .events = POLLIN};

		CHECK(poll(&p, 1, 30000) == 1, "poll as before");
		CHECK(netvale_arm(to.fd, POLLIN) == POLLIN, "they are there");
		CHECK(netvale_disarm(to.fd, POLLIN) == 0, "disarm");
		take_frames(NETMAP_RXRING(to.nifp, 0), &got);
	}
	return 0;
}
